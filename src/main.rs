//! The `claimfs` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    claimfs::cli::run()
}
