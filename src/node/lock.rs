//! One daemon a folder.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// Why the folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another daemon has it.
    #[error("another claimfs (process {pid}) uses {}\nfix: end it, or choose another --run-dir", .folder.display())]
    Taken {
        /// The folder.
        folder: PathBuf,
        /// Who has it.
        pid: String,
    },
    /// It cannot be used.
    #[error("cannot use {}: {source}", .path.display())]
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
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Held for as long as this value lives, however the process ends.
pub(super) struct Lock {
    _file: Flock<File>,
}

impl Lock {
    pub(super) fn take(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("lock");
        let unusable = |source: io::Error| Error::Unusable { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(unusable)?;
        let deadline = Instant::now() + PATIENCE;
        let locked = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Err((busy, Errno::EWOULDBLOCK)) if Instant::now() < deadline => file = busy,
                locked => break locked,
            }
            thread::sleep(LOOK_EVERY);
        };
        match locked {
            Ok(mut file) => {
                file.set_len(0).and_then(|()| file.rewind()).map_err(unusable)?;
                writeln!(file, "{}", std::process::id()).map_err(unusable)?;
                Ok(Self { _file: file })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                // Without a number the message is still true.
                let _ = file.read_to_string(&mut pid);
                Err(Error::Taken { folder: folder.to_owned(), pid: pid.trim().to_owned() })
            }
            Err((_, errno)) => Err(unusable(errno.into())),
        }
    }
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
        Lock::take(folder.path()).unwrap();
    }
}
