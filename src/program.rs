//! Programs that are started: our own once more, and others that are heard to their end.

use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// How often whoever waits is asked whether that is enough.
const POLL: Duration = Duration::from_millis(5);

/// The program that runs here, also when its file was replaced meanwhile: an update takes the old one away.
pub(crate) fn itself() -> Command {
    match env::current_exe() {
        Ok(path) if path.exists() => Command::new(path),
        _ => {
            let mut command = Command::new("/proc/self/exe");
            command.arg0(env!("CARGO_PKG_NAME"));
            command
        }
    }
}

/// What a program says until it ends. It is apart from our terminal: whoever interrupts us interrupts nothing that it is
/// about to do, and we end it. When it was enough before, it is killed with what it has started.
pub(crate) fn output_unless(
    command: &mut Command,
    mut is_enough: impl FnMut() -> bool,
) -> io::Result<Output> {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let group = id(&child);
    let (sender, ended) = mpsc::channel();
    // Ends with the program and what it has started. Nobody listens any more where that took too long.
    thread::spawn(move || sender.send(child.wait_with_output()));
    loop {
        if let Ok(output) = ended.recv_timeout(POLL) {
            return output;
        }
        if is_enough() {
            kill_group(group);
            let program = command.get_program().display().to_string();
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} does not end")));
        }
    }
}

/// The number of a process.
pub(crate) fn id(child: &Child) -> Pid {
    // Invariant: the kernel's numbers of processes are far below 2^31.
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// Kills a program that leads a group, and what it has started.
pub(crate) fn kill_group(group: Pid) {
    // They may have ended by themselves.
    let _ = killpg(group, Signal::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_heard_to_its_end() {
        let mut command = Command::new("sh");
        let output = output_unless(command.args(["-c", "echo a; echo b >&2; exit 3"]), || false).unwrap();
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"a\n"[..], &b"b\n"[..]));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn nobody_is_waited_for_longer_than_somebody_wants_to() {
        let mut command = Command::new("sh");
        let error = output_unless(command.args(["-c", "sleep 1000; true"]), || true).unwrap_err();
        assert_eq!(error.to_string(), "sh does not end");
    }
}
