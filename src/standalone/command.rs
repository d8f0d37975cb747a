//! What a runtime is told: its command line with the devices in it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Stands where the devices are to go.
const PLACE: &str = "{}";
/// The runtimes that take CDI devices by `--device`.
const RUNTIMES: [&str; 4] = ["podman", "docker", "nerdctl", "ctr"];
/// What makes a container in all of them.
const VERBS: [&str; 2] = ["run", "create"];

/// Why a command line has no place for devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no command.
    #[error(
        "there is no command to run\nfix: put one behind --, e.g. claimfs run --device-class claimfs.dev -- podman run --rm IMAGE"
    )]
    Nothing,
    /// The program is not known.
    #[error(
        "{program} is none of {}: it is not known where it takes devices\nfix: put {{}} where the --device options are to go, or run it as it is with --plain",
        RUNTIMES.join(", ")
    )]
    Unknown {
        /// The program.
        program: String,
    },
    /// A runtime makes no container.
    #[error(
        "{program}: there is no run or create among its words, after which devices could go\nfix: put {{}} where the --device options are to go"
    )]
    NoVerb {
        /// The program.
        program: String,
    },
}

/// Where devices go in a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<OsString>,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Wherever the user has said.
    Marked,
    /// Before this word.
    Before(usize),
    /// Nowhere: the program looks at its environment.
    Environment,
}

/// How a command gets its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On its command line.
    Words,
    /// In its environment alone.
    Environment,
}

impl CommandLine {
    /// Finds the place before anything is asked for.
    pub fn new(words: Vec<OsString>, way: Way) -> Result<Self, Error> {
        let program = words.first().ok_or(Error::Nothing)?.clone();
        let name = Path::new(&program).file_name().and_then(OsStr::to_str).unwrap_or_default();
        let shown = || program.display().to_string();
        let is_marked = |word: &OsString| word.to_str().is_some_and(|word| word.contains(PLACE));
        let place = if way == Way::Environment {
            Place::Environment
        } else if words.iter().skip(1).any(is_marked) {
            Place::Marked
        } else if RUNTIMES.contains(&name) {
            let is_verb = |word: &OsString| VERBS.iter().any(|verb| word == verb);
            let verb = words.iter().skip(1).position(is_verb);
            Place::Before(verb.ok_or_else(|| Error::NoVerb { program: shown() })? + 2)
        } else {
            return Err(Error::Unknown { program: shown() });
        };
        Ok(Self { words, place })
    }

    /// The program and its arguments, with these CDI devices in them.
    #[must_use]
    pub fn with(self, devices: &[String]) -> Vec<OsString> {
        let Self { mut words, place } = self;
        let options = || devices.iter().flat_map(|device| ["--device".into(), OsString::from(device)]);
        match place {
            Place::Environment => words,
            Place::Before(index) => {
                words.splice(index..index, options());
                words
            }
            Place::Marked => {
                let joined = devices.join(",");
                words
                    .into_iter()
                    .flat_map(|word| match word.to_str() {
                        Some(PLACE) => options().collect(),
                        Some(text) if text.contains(PLACE) => vec![text.replace(PLACE, &joined).into()],
                        _ => vec![word],
                    })
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(line: &str, way: Way) -> Result<String, Error> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let words = CommandLine::new(words, way)?.with(&[String::from("v/c=a"), String::from("v/c=b")]);
        Ok(words.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn devices_go_behind_the_word_that_makes_a_container() {
        let devices = "--device v/c=a --device v/c=b";
        for (line, expected) in [
            ("podman run --rm image run", format!("podman run {devices} --rm image run")),
            (
                "/usr/bin/docker --context x container run i",
                format!("/usr/bin/docker --context x container run {devices} i"),
            ),
            ("nerdctl create i", format!("nerdctl create {devices} i")),
            ("ctr -n k8s.io run --rm i c sh", format!("ctr -n k8s.io run {devices} --rm i c sh")),
            ("sudo podman run {} i", format!("sudo podman run {devices} i")),
            ("kata --annotation=cdi={} i", String::from("kata --annotation=cdi=v/c=a,v/c=b i")),
            ("podman run {} i", format!("podman run {devices} i")),
        ] {
            assert_eq!(with(line, Way::Words).unwrap(), expected);
        }
        assert_eq!(with("./train.sh run", Way::Environment).unwrap(), "./train.sh run");
    }

    #[test]
    fn a_command_without_a_place_is_refused_with_the_way_out() {
        assert_eq!(with("", Way::Words), Err(Error::Nothing));
        let error = with("sudo podman run i", Way::Words).unwrap_err().to_string();
        assert!(
            error.starts_with("sudo is none of podman, docker, nerdctl, ctr")
                && error.contains("put {} where"),
            "{error}"
        );
        let error = with("podman ps", Way::Words).unwrap_err().to_string();
        assert!(error.contains("no run or create"), "{error}");
    }
}
