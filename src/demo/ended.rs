//! Programs that are waited for, none of them for ever.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::{DEADLINE, interrupt};

/// How often it is looked whether something has happened.
pub(super) const POLL: Duration = Duration::from_millis(5);
/// How long what is under way may take to end when something went wrong, or somebody has seen enough.
pub(super) const ENDING: Duration = Duration::from_secs(5);

/// What a program says until it ends. It is apart from our terminal: one that is interrupted leaves what it was about to
/// mount. So somebody who interrupts us waits for it, but not for long.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    output_until(command, Instant::now() + DEADLINE)
}

fn output_until(command: &mut Command, mut end: Instant) -> io::Result<Output> {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    // Invariant: the kernel's numbers of processes are far below 2^31.
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let (sender, ended) = mpsc::channel();
    // Ends with the program and what it has started. Nobody listens any more where that took too long.
    thread::spawn(move || sender.send(child.wait_with_output()));
    // What is run after an interruption clears up, and has its time.
    let is_clearing = interrupt::is_asked();
    loop {
        if let Ok(output) = ended.recv_timeout(POLL) {
            return output;
        }
        if interrupt::is_asked() && !is_clearing {
            end = end.min(Instant::now() + ENDING);
        }
        if Instant::now() >= end {
            // It may have ended by itself.
            let _ = killpg(group, Signal::SIGKILL);
            let program = command.get_program().display().to_string();
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} does not end")));
        }
    }
}

/// How a child ends, if it does before a moment.
pub(super) fn status(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= end {
            return Ok(status);
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_heard_to_its_end() {
        let output = output(Command::new("sh").args(["-c", "echo a; echo b >&2; exit 3"])).unwrap();
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"a\n"[..], &b"b\n"[..]));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn nothing_is_waited_for_longer_than_its_time() {
        let mut command = Command::new("sh");
        let error = output_until(command.args(["-c", "sleep 1000; true"]), Instant::now()).unwrap_err();
        assert_eq!(error.to_string(), "sh does not end");
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(status(&mut child, Instant::now()).unwrap().is_none());
        child.kill().unwrap();
        assert!(!status(&mut child, Instant::now() + DEADLINE).unwrap().unwrap().success());
    }
}
