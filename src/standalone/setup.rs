//! What a daemon was started with, and for how long.

use std::{
    ffi::OsString,
    fmt, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    time::Duration,
};

/// When a daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// On a signal.
    Always,
    /// When there has been no claim for so long, too. Nothing of it is left then.
    UntilIdle(Duration),
}

/// Tells settings from others: those of another version, too, and what is in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    settings: String,
    content: String,
}

impl Stamp {
    /// Of all settings, and of what is in the configuration now.
    #[must_use]
    pub fn of(environment: &[(&'static str, OsString)], config: &Path) -> Self {
        // What is no file can be read once, by the daemon; one that cannot be read is another one, too.
        let is_file = fs::metadata(config).is_ok_and(|found| found.is_file());
        let content = is_file.then(|| fs::read(config).ok());
        let settings = hashed((env!("CARGO_PKG_VERSION"), environment));
        Self { settings, content: hashed(content) }
    }

    /// Whether the configuration says the same, whatever the other settings are.
    #[must_use]
    pub fn has_same_content(&self, other: &Self) -> bool {
        self.content == other.content
    }

    /// As somebody else has written it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (settings, content) = text.split_once('-')?;
        Some(Self { settings: settings.to_owned(), content: content.to_owned() })
    }
}

fn hashed(what: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl fmt::Display for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.settings, self.content)
    }
}

/// What a daemon goes by.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Its settings.
    pub stamp: Stamp,
    /// Its configuration.
    pub config: PathBuf,
    /// When it ends.
    pub stay: Stay,
}

/// What becomes of somebody who would have started a daemon with settings of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    /// They are the same.
    Same,
    /// The daemon makes way for one that has them.
    Others,
    /// The daemon has others, and keeps them.
    Kept,
}

impl Setup {
    /// A daemon that nobody has asked to stay makes way as soon as it has nothing to do. Whoever wants none in particular
    /// takes any.
    #[must_use]
    pub fn meet(&self, wanted: Option<&Stamp>, work: Work) -> Terms {
        match (self.stay, work) {
            _ if wanted.is_none_or(|wanted| *wanted == self.stamp) => Terms::Same,
            (Stay::UntilIdle(_), Work::None) => Terms::Others,
            _ => Terms::Kept,
        }
    }
}

/// Whether there is something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// There are claims, or somebody is being served.
    Some,
    /// There is nothing.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_was_edited_is_another_one() {
        let folder = tempfile::TempDir::new().unwrap();
        let config = folder.path().join("config.yaml");
        let settings = [("CLAIMFS_CONFIG", OsString::from(&config))];
        let nothing = Stamp::of(&settings, &config);
        fs::write(&config, "sources: []").unwrap();
        let before = Stamp::of(&settings, &config);
        assert_eq!(before, Stamp::of(&settings, &config));
        assert_ne!(before, Stamp::of(&[], &config));
        fs::write(&config, "sources: [] # edited").unwrap();
        let edited = Stamp::of(&settings, &config);
        assert!(edited != before && edited != nothing && before != nothing);
        assert!(!edited.has_same_content(&before) && edited.has_same_content(&Stamp::of(&[], &config)));
        assert_eq!(Stamp::parse(&edited.to_string()), Some(edited));
        // Nobody would write into it.
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Stamp::of(&settings, &pipe).has_same_content(&nothing));
    }

    #[test]
    fn only_one_that_does_not_stay_and_has_nothing_to_do_makes_way() {
        let stamp = |text: &str| Stamp { settings: text.to_owned(), content: String::new() };
        let passing = Stay::UntilIdle(Duration::from_secs(10));
        for (stay, wanted, work, expected) in [
            (passing, "a", Work::Some, Terms::Same),
            (passing, "b", Work::None, Terms::Others),
            (passing, "b", Work::Some, Terms::Kept),
            (Stay::Always, "b", Work::None, Terms::Kept),
            (Stay::Always, "a", Work::None, Terms::Same),
        ] {
            let setup = Setup { stamp: stamp("a"), config: PathBuf::from("/c"), stay };
            assert_eq!(setup.meet(Some(&stamp(wanted)), work), expected);
            assert_eq!(setup.meet(None, work), Terms::Same);
        }
    }
}
