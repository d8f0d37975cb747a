//! Locks between processes, and who makes way for whom.
//!
//! A lock that makes way has the number of its process on the first line, and what it says of itself on the next ones.

use std::{fs::File, io};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Takes a lock, or gives the file back where somebody has it.
pub(crate) fn try_take(file: File) -> io::Result<Result<Flock<File>, File>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Ok(lock)),
        Err((file, Errno::EWOULDBLOCK)) => Ok(Err(file)),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Who has a lock and says this of itself, as long as it has it.
pub(crate) fn owner_that_says(text: &str, mark: &str) -> Option<Pid> {
    let mut lines = text.lines();
    let owner = lines.next()?.trim().parse().ok().filter(|owner| *owner > 1)?;
    lines.any(|line| line == mark).then(|| Pid::from_raw(owner))
}

/// Asks those to end who make way for us, each once.
#[derive(Default)]
pub(crate) struct Successor {
    asked: Option<Pid>,
}

impl Successor {
    pub(crate) fn ask(&mut self, owner: Pid) {
        if self.asked != Some(owner) {
            // One that has just ended does not need it.
            let _ = kill(owner, Signal::SIGTERM);
            self.asked = Some(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_says_so_makes_way() {
        assert_eq!(owner_that_says("42\nstandalone\nuntil idle\n", "until idle"), Some(Pid::from_raw(42)));
        for text in ["", "42\n", "42\nstandalone\n", "1\nuntil idle\n", "-1\nuntil idle\n", "x\nuntil idle\n"]
        {
            assert_eq!(owner_that_says(text, "until idle"), None, "{text:?}");
        }
    }

    #[test]
    fn whoever_is_asked_ends() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut successor = Successor::default();
        successor.ask(Pid::from_raw(i32::try_from(child.id()).unwrap()));
        assert!(!child.wait().unwrap().success());
    }
}
