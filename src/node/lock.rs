//! One daemon a folder.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{Flock, FlockArg},
    unistd::Pid,
};
use tokio::time;

use crate::{
    lock::{self, Successor},
    standalone::setup::Stay,
};

/// Why the folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another daemon has it.
    #[error("another claimfs (process {pid}) uses {}\nfix: end it; one beside it needs folders of its own (--run-dir, --cdi-dir, --mount-point) and another driver", .folder.display())]
    Taken {
        /// The folder.
        folder: PathBuf,
        /// Who has it.
        pid: String,
    },
    /// It cannot be used.
    #[error("cannot use {}: {source}\nfix: run it as root, or name another folder with --run-dir", .path.display())]
    Unusable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A daemon that was killed while it started another process shares its lock with that one, for as long as
/// that takes to start.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long one that steps back waits for its successor to be there.
const SUCCESSION: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Held for as long as this value lives, however the process ends.
pub struct Lock {
    file: Flock<File>,
}

/// What a daemon without a cluster writes behind its number, and what one that ends when it is idle.
const ALONE: &str = "standalone";
const PASSING: &str = "until idle";

impl Lock {
    /// Takes it, or says who has it.
    pub(super) fn take(folder: &Path) -> Result<Self, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::try_take(folder)? {
                Ok(lock) => return Ok(lock),
                Err(Busy) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
                Err(Busy) => return Err(taken(folder)),
            }
        }
    }

    /// Takes it for a daemon that stays, also from one that was started for as long as somebody needs it: that one is
    /// asked to end, and its claims and containers are taken over.
    pub(super) async fn take_for_good(folder: &Path) -> Result<Self, Error> {
        let deadline = Instant::now() + SUCCESSION;
        let mut successor = Successor::default();
        loop {
            match Self::try_take(folder)? {
                Ok(lock) => return Ok(lock),
                Err(Busy) => match passing(folder) {
                    Some(daemon) if Instant::now() < deadline => {
                        successor.ask(daemon);
                        time::sleep(LOOK_EVERY).await;
                    }
                    _ => return Self::take(folder),
                },
            }
        }
    }

    /// Takes it from a daemon that steps back for us.
    pub(super) async fn succeed(folder: &Path, within: Duration) -> Result<Self, Error> {
        let deadline = Instant::now() + within;
        loop {
            match Self::try_take(folder)? {
                Ok(lock) => return Ok(lock),
                Err(Busy) if Instant::now() < deadline => time::sleep(LOOK_EVERY).await,
                Err(Busy) => return Err(taken(folder)),
            }
        }
    }

    /// Takes it back when the successor for whom we have stepped back is gone.
    pub async fn stand_by(folder: &Path) -> Result<Self, Error> {
        let deadline = Instant::now() + SUCCESSION;
        while Instant::now() < deadline && Self::try_take(folder)?.is_ok() {
            time::sleep(LOOK_EVERY).await;
        }
        loop {
            match Self::try_take(folder)? {
                Ok(lock) => return Ok(lock),
                Err(Busy) => time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Whether nobody has it.
    #[must_use]
    pub fn is_free(folder: &Path) -> bool {
        match File::open(folder.join("lock")) {
            Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_ok(),
            Err(_) => true,
        }
    }

    /// Takes it if nobody has it.
    pub(super) fn try_take(folder: &Path) -> Result<Result<Self, Busy>, Error> {
        let (path, file) = open(folder)?;
        match lock::try_take(file).map_err(|source| Error::Unusable { path, source })? {
            Ok(file) => Ok(Ok(Self::of(folder, file)?)),
            Err(_) => Ok(Err(Busy)),
        }
    }

    /// With our number in it, for those who are refused.
    fn of(folder: &Path, mut file: Flock<File>) -> Result<Self, Error> {
        let written = file.set_len(0).and_then(|()| file.rewind());
        let written = written.and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(|source| Error::Unusable { path: folder.join("lock"), source })?;
        Ok(Self { file })
    }

    /// Says that there is no cluster, and how long we stay.
    pub(super) fn alone(mut self, folder: &Path, stay: Stay) -> Result<Self, Error> {
        let written = match stay {
            Stay::Always => writeln!(self.file, "{ALONE}"),
            Stay::UntilIdle(_) => writeln!(self.file, "{ALONE}\n{PASSING}"),
        };
        written.map_err(|source| Error::Unusable { path: folder.join("lock"), source })?;
        Ok(self)
    }

    /// Whether whoever has it, or had it last, serves without a cluster.
    #[must_use]
    pub fn is_of_one_alone(folder: &Path) -> bool {
        fs::read_to_string(folder.join("lock")).is_ok_and(|text| text.lines().any(|line| line == ALONE))
    }
}

/// Another one has it.
#[derive(Debug)]
pub(super) struct Busy;

fn open(folder: &Path) -> Result<(PathBuf, File), Error> {
    let path = folder.join("lock");
    let unusable = |source: io::Error| Error::Unusable { path: path.clone(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(unusable)?;
    Ok((path, file))
}

/// Who has it only until it is idle.
fn passing(folder: &Path) -> Option<Pid> {
    lock::owner_that_says(&fs::read_to_string(folder.join("lock")).ok()?, PASSING)
}

fn taken(folder: &Path) -> Error {
    // Without a number the message is still true.
    let text = fs::read_to_string(folder.join("lock")).unwrap_or_default();
    let pid = text.lines().next().unwrap_or_default().trim().to_owned();
    Error::Taken { folder: folder.to_owned(), pid }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_folder_has_one_daemon_at_a_time() {
        let folder = TempDir::new().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let refused = Lock::take(folder.path()).err().unwrap().to_string();
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
        drop(lock);
        assert!(!Lock::is_of_one_alone(folder.path()));
        let lock = Lock::take(folder.path()).unwrap().alone(folder.path(), Stay::Always).unwrap();
        let refused = Lock::take(folder.path()).err().unwrap().to_string();
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
        assert!(Lock::is_of_one_alone(folder.path()));
        assert_eq!(passing(folder.path()), None);
        drop(lock);
        let stay = Stay::UntilIdle(Duration::ZERO);
        let _lock = Lock::take(folder.path()).unwrap().alone(folder.path(), stay).unwrap();
        assert!(Lock::is_of_one_alone(folder.path()));
        assert_eq!(passing(folder.path()), Some(Pid::this()));
    }
}
