//! `claimfs hold`: the small process that mounts and keeps.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::Error;
use crate::{
    hold::{Holder, Places, Starter},
    observe,
    reader::PLACE,
};

/// How long readers wait for a server that is gone, in seconds, when nothing else is said.
pub(super) const GRACE: u64 = 60;

/// Keep the file system of the device metadata mounted
///
/// `claimfs node` starts one by itself. It mounts the file system and keeps it while daemons come and go, so
/// that no reader fails; it needs root, and does nothing else.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 1 not possible, 2 wrong usage.")]
pub(super) struct Hold {
    /// The run folder of the daemon
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_RUN_DIR", default_value = "/run/claimfs")]
    run_dir: PathBuf,

    /// Where to mount the file system
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_MOUNT_POINT", default_value = PLACE)]
    mount_point: PathBuf,

    /// How long readers wait for a daemon that is gone, before they get the last versions as plain files
    #[arg(long, value_name = "SECONDS", env = "CLAIMFS_GRACE", default_value_t = GRACE)]
    grace: u64,

    /// Make way for one that is not started by a daemon
    #[arg(long, hide = true)]
    on_demand: bool,

    /// What to log, e.g. info or claimfs=debug
    #[arg(long, value_name = "FILTER", env = "CLAIMFS_LOG", default_value = "info")]
    log: String,
}

impl Hold {
    pub(super) fn run(self) -> Result<(), Error> {
        observe::log_to_stderr(&self.log)?;
        // A session of its own: what ends the daemon's must not end us. Where we lead one already, all is well.
        let _ = nix::unistd::setsid();
        let starter = if self.on_demand { Starter::Daemon } else { Starter::Somebody };
        let grace = Duration::from_secs(self.grace);
        let places = Places::new(&self.run_dir, &self.mount_point, grace, starter)?;
        Ok(Holder::bind(places)?.run()?)
    }
}
