//! Where a demonstration is seen.

use std::io::{self, IsTerminal, Read, Write};

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
        Self { pace, looks: if is_coloured { Looks::Coloured } else { Looks::Plain }, steps: 0 }
    }

    /// Says in one line what happens next.
    pub(super) fn step(&mut self, what: &str) {
        self.steps += 1;
        let text = match self.looks {
            Looks::Coloured => format!("\n\x1b[1;36m{}. {what}\x1b[0m\n", self.steps),
            Looks::Plain => format!("\n{}. {what}\n", self.steps),
        };
        print(&text);
        if self.pace == Pace::ByKey {
            print("   (Enter goes on) ");
            // Whoever closes the input wants no more questions.
            let _ = io::stdin().lock().read(&mut [0; 64]);
        }
    }

    /// Shows what came of it.
    #[expect(clippy::unused_self, reason = "who shows something has a stage")]
    pub(super) fn show(&self, text: &str) {
        print(
            &text.lines().map(|line| format!("   {line}").trim_end().to_owned() + "\n").collect::<String>(),
        );
    }
}

/// Nobody has to look: what is tested is tested all the same.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
