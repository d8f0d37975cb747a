//! Runs a command with its devices, and answers with how it ended.

use std::{
    ffi::OsString,
    fs, future, io,
    mem::MaybeUninit,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, getpgrp, getpid, getppid, tcgetpgrp},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
};

use super::{api::Granted, presence::Presence};
use crate::runtime::Runtime;

/// So many signals make docker leave at once, whatever its daemon is doing.
const IMPATIENCE: u32 = 3;

/// What names the claim, and its devices in CDI.
const CLAIM: &str = "CLAIMFS_CLAIM";
const DEVICES: &str = "CLAIMFS_CDI_DEVICES";

/// How a command has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// As the kernel tells it.
    pub status: ExitStatus,
    /// How many signals it was told of before.
    pub signals: u32,
}

impl Ended {
    /// Whether it may have ended before what it has asked a runtime's daemon for was done. `program` is the runtime that it
    /// is itself.
    #[must_use]
    pub fn is_cut_short(self, program: Option<Runtime>) -> bool {
        match (self.status.code(), program) {
            (Some(0), _) => false,
            (Some(_), Some(_)) => self.signals >= IMPATIENCE,
            // Scripts and other programs say in their own ways that a runtime was killed, or say nothing of it.
            (None, _) | (Some(_), None) => true,
        }
    }
}

/// Runs it on our terminal until it ends. It is told of signals that we get, and of our end.
pub async fn run(
    words: &[OsString],
    presence: &Presence,
    granted: &Granted,
    devices: &[String],
) -> io::Result<Ended> {
    let [program, arguments @ ..] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
    // From here on a signal does not end us, but what we run.
    let mut terminate = Heard::listen(Signal::SIGTERM)?;
    let mut hang_up = Heard::listen(Signal::SIGHUP)?;
    let mut interrupt = Heard::listen(Signal::SIGINT)?;
    let mut quit = Heard::listen(Signal::SIGQUIT)?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(CLAIM, format!("{}/{}", granted.namespace, granted.name)).env(DEVICES, devices.join(" "));
    end_with_us(&mut command);
    presence.hand_down_to(&mut command)?;
    let mut child = command.spawn()?;
    // Invariant: the kernel's numbers of processes are far below 2^31.
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    // One that has just ended does not need it.
    let pass_on = |signal| {
        let _ = kill(pid, signal);
    };
    let mut ended = spawn_blocking(move || child.wait());
    let mut signals = 0;
    loop {
        tokio::select! {
            status = &mut ended => return Ok(Ended { status: status.map_err(io::Error::other)??, signals }),
            () = terminate.next() => pass_on(Signal::SIGTERM),
            () = hang_up.next() => pass_on(Signal::SIGHUP),
            () = interrupt.next() => if !is_in_foreground() { pass_on(Signal::SIGINT) },
            () = quit.next() => if !is_in_foreground() { pass_on(Signal::SIGQUIT) },
        }
        signals += 1;
    }
}

/// Those who want us to end while nothing runs that they could mean.
pub struct Interrupts {
    terminate: Heard,
    hang_up: Heard,
    interrupt: Heard,
    quit: Heard,
}

impl Interrupts {
    /// From here on they do not end us.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: Heard::listen(Signal::SIGTERM)?,
            hang_up: Heard::listen(Signal::SIGHUP)?,
            interrupt: Heard::listen(Signal::SIGINT)?,
            quit: Heard::listen(Signal::SIGQUIT)?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            () = self.terminate.next() => {}
            () = self.hang_up.next() => {}
            () = self.interrupt.next() => {}
            () = self.quit.next() => {}
        }
    }
}

/// A signal that we wait for. One that is ignored when we are started, by `nohup` for example, is left so, and what we run
/// ignores it, too.
enum Heard {
    Comes(tokio::signal::unix::Signal),
    IsIgnored,
}

impl Heard {
    fn listen(which: Signal) -> io::Result<Self> {
        if is_ignored(which)? {
            return Ok(Self::IsIgnored);
        }
        signal(SignalKind::from_raw(which as i32)).map(Self::Comes)
    }

    async fn next(&mut self) {
        match self {
            // It never ends.
            Self::Comes(signal) => signal.recv().await.unwrap_or_default(),
            Self::IsIgnored => future::pending().await,
        }
    }
}

#[allow(unsafe_code)]
fn is_ignored(which: Signal) -> io::Result<bool> {
    let mut found = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no action to take over, the kernel only writes what there is into memory of ours that is large enough.
    let asked = unsafe { libc::sigaction(which as i32, std::ptr::null(), found.as_mut_ptr()) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has written it.
    Ok(unsafe { found.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// A terminal tells all who are in its foreground by itself.
fn is_in_foreground() -> bool {
    let terminal = fs::File::open("/dev/tty").ok();
    // Seen from another namespace of processes, every group has the number 0.
    let is_ours = |group: Pid| group == getpgrp() && group.as_raw() != 0;
    terminal.is_some_and(|terminal| tcgetpgrp(terminal).is_ok_and(is_ours))
}

/// As shells say it: its own code, or 128 and the signal.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Lets it know when we are killed: it would go on without anybody who waits for it.
#[allow(unsafe_code)]
pub(crate) fn end_with_us(command: &mut Command) {
    let us = getpid();
    let ask = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
        // We may have ended before it was asked for.
        if getppid() == us { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: it makes two system calls, and neither allocates nor locks anything.
    unsafe { command.pre_exec(ask) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_not_have_waited_for_its_daemon_is_known_by_its_end() {
        let docker = Some(Runtime::Docker);
        for (status, signals, program, expected) in [
            (0, 9, docker, false),
            (0, 9, None, false),
            (9, 0, docker, true),
            (9, 0, None, true),
            (1 << 8, 2, docker, false),
            (1 << 8, 3, docker, true),
            (124 << 8, 0, None, true),
        ] {
            let ended = Ended { status: ExitStatus::from_raw(status), signals };
            assert_eq!(ended.is_cut_short(program), expected, "{ended:?} {program:?}");
        }
    }

    #[tokio::test]
    async fn the_end_is_passed_on_and_the_claim_is_named() {
        let granted = Granted { namespace: String::from("n"), name: String::from("c"), ..Granted::default() };
        let place = tempfile::TempDir::new().unwrap();
        let presence = Presence::begin(place.path(), &[]).unwrap();
        let words = |script: &str| ["sh", "-c", script].map(OsString::from);
        let devices = [String::from("v/c=a"), String::from("v/c=b")];
        for (script, code) in [
            ("exit 7", 7),
            ("kill -9 $$", 137),
            ("[ \"$CLAIMFS_CLAIM $CLAIMFS_CDI_DEVICES\" = 'n/c v/c=a v/c=b' ]", 0),
        ] {
            let ended = run(&words(script), &presence, &granted, &devices).await.unwrap();
            assert_eq!(exit_code(ended.status), code, "{script}");
        }
    }
}
