//! Containers that were made and that nobody will start.
//!
//! A runtime makes a container first, and starts it then; in between a process of the runtime waits in the container
//! for somebody to open its FIFO. Whoever makes one starts it in a moment. When it is killed before it could, the
//! process waits for ever, with everything mounted: what it would have used is never free again.

use std::{
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
    time::Duration,
};

use nix::{
    time::{ClockId, clock_gettime},
    unistd::{SysconfVar, sysconf},
};

/// What runc and crun call the FIFO.
const FIFO: &str = "exec.fifo";
/// Nobody takes so long between the two.
const LONGEST: Duration = Duration::from_secs(5);

/// A process that has waited for too long, and is no other even when its number is given away.
pub(super) struct Unstarted(OwnedFd);

impl Unstarted {
    /// Whether a process, by its folder in /proc, is one. Those that end meanwhile are none.
    pub(super) fn find(process: &Path) -> io::Result<Option<Self>> {
        let Some(id) = process.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            return Ok(None);
        };
        let is_one = || -> io::Result<bool> { Ok(waits(process)? && age(process)? >= LONGEST) };
        let found = || -> io::Result<Option<Self>> {
            if !is_one()? {
                return Ok(None);
            }
            let held = hold(id)?;
            // Again: it is the one that is held.
            Ok(is_one()?.then_some(Self(held)))
        };
        match found() {
            Err(gone) if matches!(gone.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => Ok(None),
            found => found,
        }
    }

    /// Ends it: whoever watches over the container sees that, and cleans up.
    #[allow(unsafe_code)]
    pub(super) fn kill(self) -> io::Result<()> {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is ours and open, and without further information the kernel reads no memory of ours.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), libc::SIGKILL, nothing, 0)
        };
        match io::Error::last_os_error() {
            // It has ended by itself.
            error if sent < 0 && error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }
}

#[allow(unsafe_code)]
fn hold(id: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: it takes two numbers, and makes a descriptor.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = i32::try_from(made).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether it has the FIFO that it waits on. What it executes when it is started has not.
fn waits(process: &Path) -> io::Result<bool> {
    for descriptor in fs::read_dir(process.join("fd"))? {
        // Others open and close theirs all the time.
        let Ok(target) = fs::read_link(descriptor?.path()) else { continue };
        if target.file_name().is_some_and(|name| name == FIFO) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn age(process: &Path) -> io::Result<Duration> {
    let stat = fs::read_to_string(process.join("stat"))?;
    let started = started(&stat).ok_or_else(|| io::Error::other("the kernel does not tell a start"))?;
    let ticks = sysconf(SysconfVar::CLK_TCK)?.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100);
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok(now.saturating_sub(Duration::from_millis(started * 1000 / ticks)))
}

/// The 22nd field; the second is a name, in which there can be anything.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_start_is_found_whatever_the_process_is_called() {
        let fields = (4..=30).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started(&format!("7 (a ) b) S {fields}")), Some(22));
        assert_eq!(started("7 (a"), None);
    }

    #[test]
    fn a_process_is_as_old_as_it_is() {
        let age = age(Path::new("/proc/self")).unwrap();
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }

    #[test]
    fn only_who_has_the_fifo_waits_and_it_can_be_ended() {
        let folder = tempfile::TempDir::new().unwrap();
        let fifo = folder.path().join(FIFO);
        fs::write(&fifo, "").unwrap();
        let mut waiting =
            Command::new("cat").stdin(Stdio::piped()).stdout(fs::File::open(&fifo).unwrap()).spawn().unwrap();
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let path = |id: u32| Path::new("/proc").join(id.to_string());
        assert!(waits(&path(waiting.id())).unwrap() && !waits(&path(other.id())).unwrap());
        // Too young to be taken for one that is left.
        assert!(Unstarted::find(&path(waiting.id())).unwrap().is_none());
        let id = i32::try_from(waiting.id()).unwrap();
        Unstarted(hold(id).unwrap()).kill().unwrap();
        assert_eq!(waiting.wait().unwrap().signal(), Some(libc::SIGKILL));
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(Unstarted::find(&path(other.id())).unwrap().is_none());
    }
}
