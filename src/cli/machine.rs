//! What every command that needs a daemon has to know about this machine.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use tracing::warn;

use super::hold::GRACE;
use crate::{
    config, device::NodeName, exhibit::Mode, hold::kernel, prepare::BootId, reader::PLACE,
    standalone::client::Launcher,
};

/// How long a daemon stays that a command has started, in seconds.
const UNTIL_IDLE: u64 = 10;
/// What a daemon is told it by.
pub(super) const UNTIL_IDLE_VARIABLE: &str = "CLAIMFS_UNTIL_IDLE";

/// Where everything is on this machine.
#[derive(Debug, Args)]
pub(super) struct Machine {
    /// The configuration
    #[arg(long, value_name = "FILE", env = "CLAIMFS_CONFIG", default_value = config::DEFAULT_PATH)]
    pub(super) config: PathBuf,

    /// The name of this node in the cluster; the host name when not given
    #[arg(long, value_name = "NAME", env = "CLAIMFS_NODE_NAME")]
    pub(super) node_name: Option<NodeName>,

    /// Where container runtimes look for CDI specs
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_CDI_DIR", default_value = "/var/run/cdi")]
    pub(super) cdi_dir: PathBuf,

    /// For the lock and the journal; must not outlive a boot, or be told of it
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_RUN_DIR", default_value = "/run/claimfs")]
    pub(super) run_dir: PathBuf,

    /// Without a cluster: where claims are, and classes in files of its folder `classes`
    #[arg(
        long,
        value_name = "FOLDER",
        env = "CLAIMFS_OBJECTS_DIR",
        default_value = "/var/lib/claimfs/objects"
    )]
    pub(super) objects_dir: PathBuf,

    /// Where device metadata are seen on the host
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_MOUNT_POINT", default_value = PLACE)]
    pub(super) mount_point: PathBuf,

    /// How containers read about their devices
    #[arg(long, value_enum, value_name = "HOW", env = "CLAIMFS_METADATA", default_value_t = Metadata::Auto)]
    pub(super) metadata: Metadata,

    /// How long readers wait for a daemon that is gone, before they get the last versions as plain files
    #[arg(long, value_name = "SECONDS", env = "CLAIMFS_GRACE", default_value_t = GRACE)]
    pub(super) grace: u64,

    /// Where the host's /dev is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_DEV", default_value = "/dev")]
    pub(super) dev: PathBuf,

    /// Where the host's /sys is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_SYSFS", default_value = "/sys")]
    pub(super) sysfs: PathBuf,

    /// What tells one boot of this machine from another
    #[arg(long, value_name = "FILE", env = "CLAIMFS_BOOT_ID", default_value = BootId::PATH)]
    pub(super) boot_id: PathBuf,
}

/// How containers read about their devices.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Metadata {
    /// By the live file system where the kernel can (6.9 or newer, with /dev/fuse), and from files otherwise
    Auto,
    /// By the live file system
    Fuse,
    /// From plain files that are mounted anew for each version (kernel 6.5 or newer; the first version otherwise)
    Files,
    /// Not at all
    Off,
}

impl Metadata {
    /// What is chosen for this machine.
    pub(super) fn mode(self, fuse: &Path) -> Option<Mode> {
        match self {
            Self::Files => Some(Mode::Files),
            Self::Off => None,
            Self::Auto if !kernel::is_at_least(6, 9) => {
                warn!("the kernel is older than 6.9 and cannot resend: the metadata are plain files");
                Some(Mode::Files)
            }
            Self::Auto if !fuse.exists() => {
                warn!("there is no {}: the metadata are plain files", fuse.display());
                Some(Mode::Files)
            }
            Self::Fuse | Self::Auto => Some(Mode::Fuse),
        }
    }
}

impl Machine {
    /// The way to the daemon of this machine, without a cluster.
    pub(super) fn launcher(&self) -> Launcher {
        let metadata = self.metadata.to_possible_value().map(|value| value.get_name().to_owned());
        let mut environment: Vec<(&'static str, OsString)> = vec![
            ("CLAIMFS_CONFIG", self.config.clone().into()),
            ("CLAIMFS_CDI_DIR", self.cdi_dir.clone().into()),
            ("CLAIMFS_RUN_DIR", self.run_dir.clone().into()),
            ("CLAIMFS_OBJECTS_DIR", self.objects_dir.clone().into()),
            ("CLAIMFS_MOUNT_POINT", self.mount_point.clone().into()),
            ("CLAIMFS_METADATA", metadata.unwrap_or_default().into()),
            ("CLAIMFS_GRACE", self.grace.to_string().into()),
            ("CLAIMFS_DEV", self.dev.clone().into()),
            ("CLAIMFS_SYSFS", self.sysfs.clone().into()),
            ("CLAIMFS_BOOT_ID", self.boot_id.clone().into()),
        ];
        environment.extend(self.node_name.as_ref().map(|name| ("CLAIMFS_NODE_NAME", name.as_str().into())));
        if std::env::var_os(UNTIL_IDLE_VARIABLE).is_none() {
            environment.push((UNTIL_IDLE_VARIABLE, UNTIL_IDLE.to_string().into()));
        }
        Launcher { run_dir: self.run_dir.clone(), environment }
    }
}
