//! Who uses a claim: runs, each of which is there for as long as somebody has its FIFO open.
//!
//! Whoever runs something opens the FIFO before it asks for devices, and what it starts inherits it: `podman`, and
//! `conmon`, which watches over the container. So a run lasts until the last of them has ended, however it ended.
//! The kernel tells at once, and it tells the next daemon, too; nobody has to believe in process numbers, and a
//! reboot ends all runs.

use std::{
    fmt, fs,
    io::{self, Read},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::stat::Mode,
    unistd::mkfifo,
};
use tokio::net::unix::pipe::Receiver;

use super::kernel;
use crate::device::ClaimUid;

/// How often a FIFO may be taken away between two steps of ours.
const ATTEMPTS: usize = 5;
/// The lowest number that it has in what is started: scripts use the small ones for files of their own.
const NUMBER: i32 = 200;

/// A run: what its FIFO is called. Such names have only letters, digits and dashes, as UIDs do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(ClaimUid);

impl RunId {
    /// As somebody else has written it.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// A name that nobody else has, with the number of this process for people.
    fn new() -> io::Result<Self> {
        let name = format!("{}-{}", std::process::id(), &kernel::uuid()?[..8]);
        Self::parse(&name).ok_or_else(|| io::Error::other("the kernel's UUID is none"))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A run of our own.
pub struct Presence {
    id: RunId,
    path: PathBuf,
    fifo: OwnedFd,
}

impl Presence {
    /// From here on it is there.
    pub fn begin(run_dir: &Path) -> io::Result<Self> {
        let folder = make(run_dir)?;
        for _ in 0..ATTEMPTS {
            let id = RunId::new()?;
            let path = folder.join(id.as_str());
            mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
            // To read, too: nobody need listen yet. Before it was open, a daemon could take it for one that is over.
            let fifo = match fs::OpenOptions::new().read(true).write(true).open(&path) {
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
                fifo => fifo?,
            };
            match fs::metadata(&path) {
                Ok(there) if there.ino() == fifo.metadata()?.ino() => {
                    return Ok(Self { id, path, fifo: out_of_the_way(&fifo)? });
                }
                _ => {}
            }
        }
        Err(io::Error::other("somebody else removes what is made in the run folder"))
    }

    /// What it is called.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Lets what is started from now on have it, too.
    pub fn hand_down(&self) -> io::Result<()> {
        fcntl(&self.fifo, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    }

    /// Ends our part of it. Where nobody knows of it, nothing is left.
    pub fn end(self) {
        let Self { path, fifo, .. } = self;
        drop(fifo);
        if let Ok(false) = is_open(&path) {
            // Whoever follows it removes it otherwise.
            let _ = fs::remove_file(path);
        }
    }
}

/// All runs, as those see them who follow them.
pub struct Runs {
    folder: PathBuf,
}

impl Runs {
    /// Uses a run folder.
    pub fn open(run_dir: &Path) -> io::Result<Self> {
        Ok(Self { folder: make(run_dir)? })
    }

    /// Whether anybody has it open.
    pub fn is_present(&self, run: &RunId) -> io::Result<bool> {
        is_open(&self.folder.join(run.as_str()))
    }

    /// Waits until nobody has it open.
    pub async fn gone(&self, run: &RunId) -> io::Result<()> {
        let path = self.folder.join(run.as_str());
        let Some(mut fifo) = listen(&path)? else { return Ok(()) };
        // The kernel tells of an end only those who were there before it.
        if read_is_end(fifo.read(&mut [0; 64]))? {
            return Ok(());
        }
        let fifo = Receiver::from_file(fifo)?;
        loop {
            fifo.readable().await?;
            if read_is_end(fifo.try_read(&mut [0; 64]))? {
                return Ok(());
            }
        }
    }

    /// There need not be one.
    pub fn remove(&self, run: &RunId) {
        let _ = fs::remove_file(self.folder.join(run.as_str()));
    }

    /// Removes what runs that are over have left, of which nobody knows.
    pub fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if !is_open(&path)? {
                // Its owner may have removed it meanwhile.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

/// The same file under a number that nobody wants.
#[allow(unsafe_code)]
fn out_of_the_way(fifo: &fs::File) -> io::Result<OwnedFd> {
    let number = fcntl(fifo, FcntlArg::F_DUPFD_CLOEXEC(NUMBER))?;
    // SAFETY: the kernel has just made it for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn make(run_dir: &Path) -> io::Result<PathBuf> {
    let folder = run_dir.join("runs");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

fn is_open(path: &Path) -> io::Result<bool> {
    match listen(path)? {
        Some(mut fifo) => read_is_end(fifo.read(&mut [0; 64])).map(|is_end| !is_end),
        None => Ok(false),
    }
}

/// The end to read from, without waiting for anybody who writes.
fn listen(path: &Path) -> io::Result<Option<fs::File>> {
    match fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Nobody should write into it; whoever does is there.
fn read_is_end(read: io::Result<usize>) -> io::Result<bool> {
    match read {
        Ok(bytes) => Ok(bytes == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        time::Duration,
    };

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_run_lasts_until_the_last_process_that_has_inherited_it_ends() {
        let place = TempDir::new().unwrap();
        let runs = Runs::open(place.path()).unwrap();
        let presence = Presence::begin(place.path()).unwrap();
        let run = presence.id().clone();
        presence.hand_down().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        presence.end();
        assert!(runs.is_present(&run).unwrap());
        let gone = runs.gone(&run);
        tokio::pin!(gone);
        assert!(timeout(Duration::from_millis(20), &mut gone).await.is_err());
        child.kill().unwrap();
        timeout(Duration::from_secs(20), gone).await.expect("it is seen").unwrap();
        assert!(!runs.is_present(&run).unwrap());
        // Who comes later sees it at once.
        timeout(Duration::from_secs(20), runs.gone(&run)).await.expect("it is seen").unwrap();
        runs.sweep().unwrap();
        assert_eq!(fs::read_dir(place.path().join("runs")).unwrap().count(), 0);
        child.wait().unwrap();
    }

    #[test]
    fn a_run_that_nobody_knows_leaves_nothing() {
        let place = TempDir::new().unwrap();
        Presence::begin(place.path()).unwrap().end();
        let present = Presence::begin(place.path()).unwrap();
        let runs = Runs::open(place.path()).unwrap();
        runs.sweep().unwrap();
        assert!(runs.is_present(present.id()).unwrap());
        assert_eq!(fs::read_dir(place.path().join("runs")).unwrap().count(), 1);
        assert_eq!(RunId::parse("../x"), None);
    }
}
