//! Runs a command with its devices, and answers with how it ended.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, getpid, getppid},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
};

use super::api::Granted;

/// What names the claim, and its devices in CDI.
const CLAIM: &str = "CLAIMFS_CLAIM";
const DEVICES: &str = "CLAIMFS_CDI_DEVICES";

/// Runs it on our terminal until it ends. It is told of signals that we get, and of our end.
pub async fn run(words: &[OsString], granted: &Granted, devices: &[String]) -> io::Result<ExitStatus> {
    let [program, arguments @ ..] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
    // From here on a signal does not end us, but what we run.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(CLAIM, format!("{}/{}", granted.namespace, granted.name)).env(DEVICES, devices.join(" "));
    end_with_us(&mut command);
    let mut child = command.spawn()?;
    // Invariant: the kernel's numbers of processes are far below 2^31.
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    // One that has just ended does not need it.
    let pass_on = |signal| {
        let _ = kill(pid, signal);
    };
    // A terminal tells all who are in its foreground by itself.
    let is_told = io::stdin().is_terminal();
    let mut ended = spawn_blocking(move || child.wait());
    loop {
        tokio::select! {
            status = &mut ended => return status.map_err(io::Error::other)?,
            _ = terminate.recv() => pass_on(Signal::SIGTERM),
            _ = hang_up.recv() => pass_on(Signal::SIGHUP),
            _ = interrupt.recv() => if !is_told { pass_on(Signal::SIGINT) },
            _ = quit.recv() => if !is_told { pass_on(Signal::SIGQUIT) },
        }
    }
}

/// As shells say it: its own code, or 128 and the signal.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Lets it know when we are killed: it would go on without anybody who waits for it.
#[allow(unsafe_code)]
fn end_with_us(command: &mut Command) {
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

    #[tokio::test]
    async fn the_end_is_passed_on_and_the_claim_is_named() {
        let granted = Granted { namespace: String::from("n"), name: String::from("c"), ..Granted::default() };
        let words = |script: &str| ["sh", "-c", script].map(OsString::from);
        let devices = [String::from("v/c=a"), String::from("v/c=b")];
        for (script, code) in [
            ("exit 7", 7),
            ("kill -9 $$", 137),
            ("[ \"$CLAIMFS_CLAIM $CLAIMFS_CDI_DEVICES\" = 'n/c v/c=a v/c=b' ]", 0),
        ] {
            let status = run(&words(script), &granted, &devices).await.unwrap();
            assert_eq!(exit_code(status), code, "{script}");
        }
    }
}
