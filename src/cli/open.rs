//! `claimfs open`: opens files of the live file system for the daemon, which must not wait for itself.

use clap::Args;

use super::Error;
use crate::hold;

/// Open files of the file system for the daemon, which starts it by itself
#[derive(Debug, Args)]
pub(super) struct Open {}

impl Open {
    pub(super) fn run(self) -> Result<(), Error> {
        let Self {} = self;
        Ok(hold::open_for_standard_input()?)
    }
}
