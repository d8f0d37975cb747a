//! What every command that needs a daemon has to know about this machine.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use tracing::warn;

use super::{Error, hold::GRACE, output};
use crate::{
    config,
    device::NodeName,
    exhibit::Mode,
    hold::kernel,
    prepare::BootId,
    reader::PLACE,
    standalone::{
        client::{self, Launcher, News},
        presence::Presence,
        setup::Stamp,
    },
};

/// How long a daemon stays that a command has started, in seconds.
const UNTIL_IDLE: u64 = 10;
/// What a daemon is told it by.
pub(super) const UNTIL_IDLE_VARIABLE: &str = "CLAIMFS_UNTIL_IDLE";

/// Where everything is on this machine.
#[derive(Debug, Args)]
pub(super) struct Machine {
    /// The configuration; a daemon that stays, or has claims, keeps its own
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
    pub(super) fn mode(self, fuse: &Path) -> Result<Option<Mode>, Error> {
        Ok(match self {
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
            Self::Fuse if !fuse.exists() => return Err(Error::NoFuse { path: fuse.to_owned() }),
            Self::Fuse | Self::Auto => {
                if let Some(seconds) = kernel::request_timeout() {
                    warn!(
                        seconds,
                        "the kernel ends the file system when we are gone for so long (claimfs check)"
                    );
                }
                Some(Mode::Fuse)
            }
        })
    }
}

impl Machine {
    /// The way to the daemon of this machine, without a cluster.
    pub(super) fn launcher(&self) -> Launcher {
        let mut environment = self.environment();
        if std::env::var_os(UNTIL_IDLE_VARIABLE).is_none() {
            environment.push((UNTIL_IDLE_VARIABLE, UNTIL_IDLE.to_string().into()));
        }
        Launcher { run_dir: self.run_dir.clone(), environment, stamp: self.stamp() }
    }

    /// Begins a run of these words.
    pub(super) fn begin(&self, words: &[OsString]) -> Result<Presence, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(client::Error::NotRoot.into());
        }
        let path = &self.run_dir;
        Presence::begin(path, words).map_err(|source| Error::RunDir { path: path.clone(), source })
    }

    /// What tells these settings from others.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::of(&self.environment(), &self.config)
    }

    /// Tells people what is heard while they wait: a log does not need every step forward, and whoever has not named a
    /// configuration means the daemon's, as it is now.
    pub(super) fn tell(&self) -> impl FnMut(News) {
        let (ours, has_named) = (self.stamp(), self.config != Path::new(config::DEFAULT_PATH));
        let path = std::path::absolute(&self.config).unwrap_or_else(|_| self.config.clone());
        let (mut is_log, mut is_told) = (false, false);
        move |news| match news {
            News::Waiting(_) if is_log => {}
            News::Waiting(before) => {
                output::complain(format_args!("waiting for devices, {before} before us"));
                is_log = !io::stderr().is_terminal();
            }
            News::Kept { process, config, stamp } => {
                let is_edited =
                    path == Path::new(&config) && stamp.is_some_and(|theirs| !theirs.has_same_content(&ours));
                if !is_told && (has_named || is_edited) {
                    output::complain(format_args!(
                        "warning: claimfs node (process {process}) was started with other settings, and keeps them; \
                         its configuration is {config}{}\n\
                         fix: to apply these, end it (kill {process}, or systemctl restart claimfs); claims and containers stay",
                        if is_edited { ", as it was then" } else { "" }
                    ));
                    is_told = true;
                }
            }
        }
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let metadata = self.metadata.to_possible_value().map(|value| value.get_name().to_owned());
        // Wherever it is started, it means the same.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).into();
        let mut environment: Vec<(&'static str, OsString)> = vec![
            ("CLAIMFS_CONFIG", absolute(&self.config)),
            ("CLAIMFS_CDI_DIR", absolute(&self.cdi_dir)),
            ("CLAIMFS_RUN_DIR", absolute(&self.run_dir)),
            ("CLAIMFS_OBJECTS_DIR", absolute(&self.objects_dir)),
            ("CLAIMFS_MOUNT_POINT", absolute(&self.mount_point)),
            ("CLAIMFS_METADATA", metadata.unwrap_or_default().into()),
            ("CLAIMFS_GRACE", self.grace.to_string().into()),
            ("CLAIMFS_DEV", absolute(&self.dev)),
            ("CLAIMFS_SYSFS", absolute(&self.sysfs)),
            ("CLAIMFS_BOOT_ID", absolute(&self.boot_id)),
        ];
        environment.extend(self.node_name.as_ref().map(|name| ("CLAIMFS_NODE_NAME", name.as_str().into())));
        environment
    }
}
