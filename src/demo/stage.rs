//! Where a demonstration is seen.

use std::{
    io::{self, IsTerminal, Read, Write},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use super::{Error, interrupt};

/// How often it is looked whether somebody has seen enough.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What makes the next step come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The end of the one before.
    Flowing,
    /// A key.
    ByKey,
}

/// Standard output, with colours on a terminal.
#[derive(Debug)]
pub struct Stage {
    pace: Pace,
    looks: Looks,
    steps: u32,
    keys: Option<Keys>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looks {
    Plain,
    Coloured,
}

impl Stage {
    /// With this pace.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        let is_coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let looks = if is_coloured { Looks::Coloured } else { Looks::Plain };
        Self { pace, looks, steps: 0, keys: None }
    }

    /// Says in one line what happens next.
    pub(super) fn step(&mut self, what: &str) -> Result<(), Error> {
        interrupt::check()?;
        self.steps += 1;
        let text = match self.looks {
            Looks::Coloured => format!("\n\x1b[1;36m{}. {what}\x1b[0m\n", self.steps),
            Looks::Plain => format!("\n{}. {what}\n", self.steps),
        };
        print(&text);
        if self.pace == Pace::ByKey {
            print("   (Enter goes on) ");
            self.keys.get_or_insert_with(Keys::listen).wait()?;
        }
        Ok(())
    }

    /// Shows what came of it.
    #[expect(clippy::unused_self, reason = "who shows something has a stage")]
    pub(super) fn show(&self, text: &str) {
        print(
            &text.lines().map(|line| format!("   {line}").trim_end().to_owned() + "\n").collect::<String>(),
        );
    }
}

/// What is typed. It is read by a thread of its own, which ends with the process: an interrupt throws away what was typed
/// before it, also after it was said to be there, and whoever reads then waits for more.
#[derive(Debug)]
struct Keys(Receiver<()>);

impl Keys {
    fn listen() -> Self {
        let (sender, pressed) = mpsc::channel();
        thread::spawn(move || {
            while io::stdin().lock().read(&mut [0; 64]).is_ok_and(|read| read > 0) && sender.send(()).is_ok()
            {
            }
        });
        Self(pressed)
    }

    fn wait(&self) -> Result<(), Error> {
        // Whoever closes the input wants no more questions.
        while self.0.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            interrupt::check()?;
        }
        Ok(())
    }
}

/// Nobody has to look: what is tested is tested all the same.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
