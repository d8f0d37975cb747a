//! Programs that are waited for, none of them for ever.

use std::{
    io,
    process::{Child, Command, ExitStatus, Output},
    thread,
    time::{Duration, Instant},
};

use super::{DEADLINE, interrupt};
use crate::program;

/// How often it is looked whether something has happened.
pub(super) const POLL: Duration = Duration::from_millis(5);
/// How long what is under way may take to end when something went wrong, or somebody has seen enough.
pub(super) const ENDING: Duration = Duration::from_secs(5);
/// How long what clears up then may take.
const CLEARING: Duration = Duration::from_secs(10);

/// What a program says until it ends. One that is interrupted leaves what it was about to mount, so somebody who
/// interrupts us waits for it, but not for long.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    let is_clearing = interrupt::is_known();
    let mut end = Instant::now() + if is_clearing { CLEARING } else { DEADLINE };
    program::output_unless(command, || {
        let now = Instant::now();
        if interrupt::is_asked() && !is_clearing {
            end = end.min(now + ENDING);
        }
        now >= end
    })
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
    fn no_child_is_waited_for_longer_than_its_time() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(status(&mut child, Instant::now()).unwrap().is_none());
        child.kill().unwrap();
        assert!(!status(&mut child, Instant::now() + DEADLINE).unwrap().unwrap().success());
    }
}
