//! One holder a run folder.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::fcntl::Flock;

use super::super::{Error, Starter};
use crate::lock::{self, Successor};

/// What one that a daemon has started writes behind its number: it makes way.
const ON_DEMAND: &str = "on demand";
/// How long one may take to make way, or to die: whoever is killed keeps its lock longer than its socket.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Takes the lock. Whoever was not started by a daemon, but by systemd for example, takes it from one that was: the daemon
/// gives the connection to the next one, and what is mounted stays.
pub(super) fn take(path: &Path, starter: Starter) -> Result<Flock<File>, Error> {
    take_within(path, starter, PATIENCE)
}

fn take_within(path: &Path, starter: Starter, patience: Duration) -> Result<Flock<File>, Error> {
    let unusable = |source| Error::Socket { path: path.to_owned(), source };
    let deadline = Instant::now() + patience;
    let mut successor = Successor::default();
    loop {
        let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        match lock::try_take(open.map_err(unusable)?).map_err(unusable)? {
            Ok(lock) => {
                let mark = match starter {
                    Starter::Daemon => ON_DEMAND,
                    Starter::Somebody => "",
                };
                let written = lock.set_len(0);
                let written = written.and_then(|()| writeln!(&*lock, "{}\n{mark}", std::process::id()));
                return written.map(|()| lock).map_err(unusable);
            }
            Err(file) if Instant::now() < deadline => {
                let text = io::read_to_string(file).map_err(unusable)?;
                match (starter, lock::owner_that_says(&text, ON_DEMAND)) {
                    (Starter::Somebody, Some(holder)) => successor.ask(holder),
                    (Starter::Somebody, None) | (Starter::Daemon, _) => {}
                }
                thread::sleep(LOOK_EVERY);
            }
            Err(_) => return Err(Error::Locked { path: path.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn only_one_has_it_and_says_whether_it_makes_way() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("hold.lock");
        for (starter, expected) in [(Starter::Somebody, None), (Starter::Daemon, Some(Pid::this()))] {
            let _lock = take(&path, starter).unwrap();
            let refused = take_within(&path, Starter::Daemon, Duration::ZERO);
            assert!(matches!(refused, Err(Error::Locked { .. })));
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(lock::owner_that_says(&text, ON_DEMAND), expected);
        }
    }

    #[test]
    fn one_that_is_dying_is_waited_for() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("hold.lock");
        let dying = take(&path, Starter::Daemon).unwrap();
        thread::scope(|scope| {
            let next = scope.spawn(|| take(&path, Starter::Daemon).map(drop));
            // So that it is met while it has the lock.
            thread::sleep(10 * LOOK_EVERY);
            drop(dying);
            next.join().unwrap().unwrap();
        });
    }
}
