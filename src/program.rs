//! Our own program, to be started once more.

use std::{env, os::unix::process::CommandExt, process::Command};

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
