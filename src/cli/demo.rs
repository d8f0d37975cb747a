//! `claimfs demo`: what claimfs does, on this machine.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::Error;
use crate::{
    demo::{self, Pace, Stage},
    runtime::Runtime,
};

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

    /// What to run containers with; the first of podman, docker, nerdctl and ctr that can when not given
    #[arg(long, value_name = "PROGRAM", value_parser = runtime_parser())]
    runtime: Option<Runtime>,

    /// Where container runtimes look for CDI specs
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_CDI_DIR", default_value = "/var/run/cdi")]
    cdi_dir: PathBuf,
}

impl Demo {
    pub(super) fn run(self) -> Result<(), Error> {
        let mut stage = Stage::new(if self.step { Pace::ByKey } else { Pace::Flowing });
        let among = self.runtime.map_or_else(|| Runtime::ALL.to_vec(), |one| vec![one]);
        Ok(demo::play(&mut stage, &self.cdi_dir, &among)?)
    }
}

fn runtime_parser() -> impl TypedValueParser<Value = Runtime> {
    PossibleValuesParser::new(Runtime::ALL.map(Runtime::name))
        .try_map(|name| Runtime::of(name).ok_or("it is not known"))
}
