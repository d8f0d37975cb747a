//! Who uses a claim: runs, each of which is there for as long as somebody has its FIFO open.
//!
//! Whoever runs something opens the FIFO before it asks for devices, and what it starts inherits it: `podman`, and
//! `conmon`, which watches over the container. So a run lasts until the last of them has ended, however it ended.
//! The kernel tells at once, and it tells the next daemon, too; nobody has to believe in process numbers, and a
//! reboot ends all runs. Whether the one who began a run is still there tells a lock on the FIFO, which nobody inherits;
//! and whether it ended in order tells that nobody can write into the FIFO, or that there is none. What it runs is written
//! beside it, for people.

use std::{
    ffi::OsString,
    fmt, fs,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl},
    sys::stat::{Mode, fchmod},
    unistd::mkfifo,
};
use tokio::net::unix::pipe::Receiver;

use super::kernel;
use crate::{device::ClaimUid, hold::RUNS};

/// Where a run folder has what runs run: one that is left alone is known by nothing else.
const COMMANDS: &str = "commands";
/// How much of it is kept.
const LONGEST_COMMAND: usize = 2000;

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

    /// What its FIFO is called.
    #[must_use]
    pub fn fifo(&self) -> &ClaimUid {
        &self.0
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

/// Who asks for a claim.
#[derive(Debug, Clone)]
pub enum Asker {
    /// A run, which uses it.
    Run(RunId),
    /// Somebody who lets it stay, with a run for as long as it waits.
    Keeper(Option<RunId>),
}

impl Asker {
    /// The run that uses the claim.
    #[must_use]
    pub fn user(&self) -> Option<&RunId> {
        match self {
            Self::Run(run) => Some(run),
            Self::Keeper(_) => None,
        }
    }

    /// The run by which it is known.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Run(run) => Some(run),
            Self::Keeper(run) => run.as_ref(),
        }
    }
}

/// A run of our own.
pub struct Presence {
    id: RunId,
    path: PathBuf,
    command: PathBuf,
    fifo: OwnedFd,
    /// That we are there ourselves.
    _lead: Flock<fs::File>,
}

impl Presence {
    /// From here on it is there. The words are what it runs.
    pub fn begin(run_dir: &Path, words: &[OsString]) -> io::Result<Self> {
        let (folder, commands) = (make(run_dir, RUNS)?, make(run_dir, COMMANDS)?);
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
                    // Not before the FIFO: what has none is removed.
                    let command = commands.join(id.as_str());
                    fs::write(&command, shown(words))?;
                    let (fifo, lead) = (out_of_the_way(&fifo)?, lead(&fifo)?);
                    return Ok(Self { id, path, command, fifo, _lead: lead });
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

    /// Lets a command have it, too, and what that starts; nothing else that we start has it. The command itself keeps it
    /// for as long as it is there, to be started again.
    #[allow(unsafe_code)]
    pub fn hand_down_to(&self, command: &mut Command) -> io::Result<()> {
        let fifo = out_of_the_way(&self.fifo)?;
        let keep = move || {
            fcntl(&fifo, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        };
        // SAFETY: it makes one system call, and neither allocates nor locks anything.
        unsafe { command.pre_exec(keep) };
        Ok(())
    }

    /// Ends it where nothing was granted.
    pub fn withdraw(self) {
        let command = self.command.clone();
        self.end();
        // Whoever follows a run that was refused may have done so.
        let _ = fs::remove_file(command);
    }

    /// Ends our part of it in order: nothing that it has begun is still under way. Where nobody knows of it, nothing is
    /// left. Whoever cannot say so drops it.
    pub fn end(self) {
        let Self { path, fifo, _lead: lead, .. } = self;
        // Without it more is looked at before the claim is released.
        let _ = fchmod(&fifo, Mode::S_IRUSR);
        drop((fifo, lead));
        if let Ok(false) = is_open(&path) {
            // Whoever follows it removes it otherwise.
            let _ = fs::remove_file(path);
        }
    }
}

/// All runs, as those see them who follow them.
pub struct Runs {
    folder: PathBuf,
    commands: PathBuf,
}

impl Runs {
    /// Uses a run folder.
    pub fn open(run_dir: &Path) -> io::Result<Self> {
        Ok(Self { folder: make(run_dir, RUNS)?, commands: make(run_dir, COMMANDS)? })
    }

    /// Whether anybody has it open.
    pub fn is_present(&self, run: &RunId) -> io::Result<bool> {
        is_open(&self.folder.join(run.as_str()))
    }

    /// Whether whoever began it has not said that it is over.
    #[must_use]
    pub fn is_cut_short(&self, run: &RunId) -> bool {
        let found = fs::metadata(self.folder.join(run.as_str()));
        found.is_ok_and(|found| found.mode() & Mode::S_IWUSR.bits() != 0)
    }

    /// Whether the one who began it is there; what it has started may be there without it.
    pub fn is_led(&self, run: &RunId) -> io::Result<bool> {
        let Some(fifo) = listen(&self.folder.join(run.as_str()))? else { return Ok(false) };
        match Flock::lock(fifo, FlockArg::LockSharedNonblock) {
            Ok(_) => Ok(false),
            Err((_, Errno::EWOULDBLOCK)) => Ok(true),
            Err((_, errno)) => Err(errno.into()),
        }
    }

    /// All whose beginners are there.
    pub fn led(&self) -> io::Result<Vec<RunId>> {
        let mut led = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            if let Some(run) = entry?.file_name().to_str().and_then(RunId::parse)
                && self.is_led(&run)?
            {
                led.push(run);
            }
        }
        Ok(led)
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

    /// What it runs, as far as that is known.
    #[must_use]
    pub fn command(&self, run: &RunId) -> String {
        fs::read_to_string(self.commands.join(run.as_str())).unwrap_or_default()
    }

    /// There need not be one.
    pub fn remove(&self, run: &RunId) {
        let _ = fs::remove_file(self.folder.join(run.as_str()));
        let _ = fs::remove_file(self.commands.join(run.as_str()));
    }

    /// Removes what runs that are over have left, and nobody follows.
    pub fn sweep(&self, is_followed: impl Fn(&str) -> bool) -> io::Result<()> {
        let is_followed = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(&is_followed);
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Whoever follows it still asks whether it was cut short.
            if !is_followed(&entry) && !is_open(&entry.path())? {
                // Its owner may have removed it meanwhile.
                let _ = fs::remove_file(entry.path());
            }
        }
        for entry in fs::read_dir(&self.commands)? {
            let entry = entry?;
            // A container can use a claim after all have ended who had the FIFO.
            if !is_followed(&entry) && !self.folder.join(entry.file_name()).exists() {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

/// On one line, which need not be whole.
fn shown(words: &[OsString]) -> String {
    let text = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut text: String = text.chars().map(plain).collect();
    if let Some((end, _)) = text.char_indices().nth(LONGEST_COMMAND) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A lock on a FIFO that goes with us alone: it belongs to what is opened, and nobody inherits this.
fn lead(fifo: &fs::File) -> io::Result<Flock<fs::File>> {
    let ours = format!("/proc/self/fd/{}", fifo.as_raw_fd());
    let ours = fs::OpenOptions::new().read(true).write(true).open(ours)?;
    // Whoever looks whether we are there has it for a moment.
    Flock::lock(ours, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

/// The same file under a number that nobody wants.
#[allow(unsafe_code)]
fn out_of_the_way(fifo: impl AsFd) -> io::Result<OwnedFd> {
    let number = fcntl(fifo, FcntlArg::F_DUPFD_CLOEXEC(NUMBER))?;
    // SAFETY: the kernel has just made it for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn make(run_dir: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = run_dir.join(name);
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
    use std::{process::Stdio, time::Duration};

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_run_lasts_until_the_last_process_that_has_inherited_it_ends() {
        let place = TempDir::new().unwrap();
        let runs = Runs::open(place.path()).unwrap();
        let words = ["podman", "run", "a\nb"].map(OsString::from);
        let presence = Presence::begin(place.path(), &words).unwrap();
        let run = presence.id().clone();
        assert_eq!(runs.command(&run), "podman run a b");
        assert_eq!(runs.led().unwrap(), std::slice::from_ref(&run));
        let mut other = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut command = Command::new("cat");
        presence.hand_down_to(&mut command).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        drop(command);
        let fifo = place.path().join(RUNS).join(run.as_str());
        let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().map(Result::unwrap);
        // What it has opened to be started may just be closed.
        let inherited =
            descriptors.filter(|entry| fs::read_link(entry.path()).is_ok_and(|file| file == fifo));
        let numbers: Vec<i32> =
            inherited.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect();
        assert!(!numbers.is_empty() && numbers.iter().all(|number| *number >= NUMBER), "{numbers:?}");
        assert!(runs.is_cut_short(&run));
        presence.end();
        assert!(runs.is_present(&run).unwrap() && runs.led().unwrap().is_empty() && !runs.is_cut_short(&run));
        let gone = runs.gone(&run);
        tokio::pin!(gone);
        assert!(timeout(Duration::from_millis(20), &mut gone).await.is_err());
        child.kill().unwrap();
        timeout(Duration::from_secs(20), gone).await.expect("it is seen").unwrap();
        assert!(!runs.is_present(&run).unwrap());
        // Who comes later sees it at once.
        timeout(Duration::from_secs(20), runs.gone(&run)).await.expect("it is seen").unwrap();
        runs.sweep(|followed| followed == run.as_str()).unwrap();
        assert!(fifo.exists());
        assert_eq!(runs.command(&run), "podman run a b");
        runs.sweep(|_| false).unwrap();
        for folder in [RUNS, COMMANDS] {
            assert_eq!(fs::read_dir(place.path().join(folder)).unwrap().count(), 0, "{folder}");
        }
        child.wait().unwrap();
        // Who was not given it had no part in it.
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_run_that_nobody_knows_leaves_nothing() {
        let place = TempDir::new().unwrap();
        Presence::begin(place.path(), &[]).unwrap().withdraw();
        let present = Presence::begin(place.path(), &["é".repeat(LONGEST_COMMAND + 1).into()]).unwrap();
        let runs = Runs::open(place.path()).unwrap();
        runs.sweep(|_| false).unwrap();
        assert!(runs.is_present(present.id()).unwrap());
        assert_eq!(runs.command(present.id()), "é".repeat(LONGEST_COMMAND) + "…");
        for folder in [RUNS, COMMANDS] {
            assert_eq!(fs::read_dir(place.path().join(folder)).unwrap().count(), 1, "{folder}");
        }
        assert_eq!(RunId::parse("../x"), None);
    }
}
