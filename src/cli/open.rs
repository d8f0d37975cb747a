//! `claimfs open`: opens files of the live file system for the daemon, which must not wait for itself.

use clap::Args;

use super::Error;
use crate::{hold, privilege};

/// Open files of the file system for the daemon, which starts it by itself
#[derive(Debug, Args)]
pub(super) struct Open {}

impl Open {
    pub(super) fn run(self) -> Result<(), Error> {
        let Self {} = self;
        privilege::drop_all().map_err(Error::Start)?;
        Ok(hold::open_for_standard_input()?)
    }
}
