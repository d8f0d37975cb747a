//! `claimfs demo`: what claimfs does, on this machine.

use std::{env, fs, io, path::PathBuf, process};

use clap::Args;

use super::Error;
use crate::demo::{self, Pace, Stage};

/// Show what claimfs does, on this machine
///
/// Starts a node with simulated devices in a temporary folder, runs a real container with one of them, changes the
/// device's health, kills the daemon while the container reads, and asks for a device that is not there. Needs root and
/// podman, docker, nerdctl or containerd; takes some seconds, pulls nothing and leaves nothing behind.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 every step did what it says, 1 one did not.")]
pub(super) struct Demo {
    /// Wait for Enter before each step
    #[arg(long)]
    step: bool,

    /// Where container runtimes look for CDI specs
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_CDI_DIR", default_value = "/var/run/cdi")]
    cdi_dir: PathBuf,
}

impl Demo {
    pub(super) fn run(self) -> Result<(), Error> {
        let folder = env::temp_dir().join(format!("claimfs-demo-{}", process::id()));
        fs::create_dir(&folder).map_err(|source| Error::DemoFolder { path: folder.clone(), source })?;
        let mut stage = Stage::new(if self.step { Pace::ByKey } else { Pace::Flowing });
        let outcome = demo::play(&mut stage, &folder, &self.cdi_dir);
        match fs::remove_dir_all(&folder) {
            Err(source) if outcome.is_ok() && source.kind() != io::ErrorKind::NotFound => {
                Err(Error::DemoFolder { path: folder, source })
            }
            _ => Ok(outcome?),
        }
    }
}
