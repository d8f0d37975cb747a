//! `claimfs node`: the daemon.

use std::{
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Error, hold::GRACE, node_name};
use crate::{
    cluster,
    config::{self, Config},
    device::{NodeName, PodUid},
    discover::Roots,
    exhibit::Mode,
    hold::{Places, Starter, kernel},
    kubelet::Instance,
    node::{self, Daemon, Ended, Lock, Settings},
    observe,
    prepare::BootId,
    privilege,
    reader::PLACE,
};

/// Serve the devices of this node to its kubelet
///
/// Publishes them as ResourceSlices, registers with the kubelet and prepares claims. Ends on SIGTERM: calls
/// under way are answered, and what is prepared stays for the next start.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 ended on a signal, 1 not possible, 2 wrong usage or configuration.")]
pub(super) struct Node {
    /// The configuration
    #[arg(long, value_name = "FILE", env = "CLAIMFS_CONFIG", default_value = config::DEFAULT_PATH)]
    config: PathBuf,

    /// How to reach the cluster; in a pod its service account is used
    #[arg(long, value_name = "FILE", env = "CLAIMFS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// The name of this node in the cluster; the host name when not given
    #[arg(long, value_name = "NAME", env = "CLAIMFS_NODE_NAME")]
    node_name: Option<NodeName>,

    /// The kubelet's folder, in which plugins are registered
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_KUBELET_DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,

    /// Where container runtimes look for CDI specs
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_CDI_DIR", default_value = "/var/run/cdi")]
    cdi_dir: PathBuf,

    /// For the lock and the journal; must not outlive a boot, or be told of it
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_RUN_DIR", default_value = "/run/claimfs")]
    run_dir: PathBuf,

    /// Where device metadata are seen on the host
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_MOUNT_POINT", default_value = PLACE)]
    mount_point: PathBuf,

    /// How containers read about their devices
    #[arg(long, value_enum, value_name = "HOW", env = "CLAIMFS_METADATA", default_value_t = Metadata::Auto)]
    metadata: Metadata,

    /// How long readers wait for a daemon that is gone, before they get the last versions as plain files
    #[arg(long, value_name = "SECONDS", env = "CLAIMFS_GRACE", default_value_t = GRACE)]
    grace: u64,

    /// Who starts the process that keeps the file system mounted (claimfs hold)
    #[arg(long, value_enum, value_name = "WHO", env = "CLAIMFS_HOLDER", default_value_t = Holder::Start)]
    holder: Holder,

    /// The UID of our pod, where a new pod may start before the old one has ended
    #[arg(long, value_name = "UID", env = "CLAIMFS_POD_UID")]
    pod_uid: Option<PodUid>,

    /// Where to serve /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", env = "CLAIMFS_HTTP")]
    http: Option<SocketAddr>,

    /// How often to look for claims that are gone while the kubelet never asked to release them
    #[arg(long, value_name = "SECONDS", env = "CLAIMFS_COLLECT_EVERY", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    collect_every: u64,

    /// What to log, e.g. info or claimfs=debug
    #[arg(long, value_name = "FILTER", env = "CLAIMFS_LOG", default_value = "info")]
    log: String,

    /// Where the host's /dev is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_DEV", default_value = "/dev")]
    dev: PathBuf,

    /// Where the host's /sys is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_SYSFS", default_value = "/sys")]
    sysfs: PathBuf,

    /// What tells one boot of this machine from another
    #[arg(long, value_name = "FILE", env = "CLAIMFS_BOOT_ID", default_value = BootId::PATH)]
    boot_id: PathBuf,
}

/// How containers read about their devices.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Metadata {
    /// By the live file system where the kernel can (6.9 or newer, with /dev/fuse), and from files otherwise
    Auto,
    /// By the live file system
    Fuse,
    /// From plain files that are mounted anew for each version (kernel 6.5 or newer; the first version otherwise)
    Files,
    /// Not at all
    Off,
}

/// Who starts a holder.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Holder {
    /// The daemon, when there is none
    Start,
    /// Somebody else; without one new claims are not prepared
    Wait,
}

impl Metadata {
    /// What is chosen for this machine.
    fn mode(self, fuse: &Path) -> Option<Mode> {
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

/// Says that this process has stepped back for another one.
const STANDBY: &str = "CLAIMFS_STANDBY";

impl Node {
    pub(super) fn run(self) -> Result<(), Error> {
        observe::log_to_stderr(&self.log)?;
        // One thread: what is to do between two answers takes microseconds, and a change of threads more.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime.map_err(Error::Start)?.block_on(self.serve())? {
            Ended::Asked => Ok(()),
            Ended::Succeeded => Err(Error::Start(start_again())),
        }
    }

    async fn serve(self) -> Result<Ended, Error> {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Start)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Start)?;
        let lock = match std::env::var_os(STANDBY) {
            Some(_) => {
                info!("standing by");
                tokio::select! {
                    lock = Lock::stand_by(&self.run_dir) => Some(lock.map_err(node::Error::from)?),
                    _ = interrupt.recv() => return Ok(Ended::Asked),
                    _ = terminate.recv() => return Ok(Ended::Asked),
                }
            }
            None => None,
        };
        let grace = Duration::from_secs(self.grace);
        // A holder that somebody else starts has the host's.
        let (starter, fuse) = match self.holder {
            Holder::Start => (Starter::Daemon, PathBuf::from("/dev/fuse")),
            Holder::Wait => (Starter::Somebody, self.dev.join("fuse")),
        };
        let places = |mode| {
            let places = Places::new(&self.run_dir, &self.mount_point, grace, starter)?;
            Ok::<_, Error>((places, mode))
        };
        let settings = Settings {
            config: Config::load(&self.config)?,
            node: node_name(self.node_name.as_ref())?,
            client: cluster::connect(cluster::config(self.kubeconfig.as_deref()).await?)?,
            metadata: self.metadata.mode(&fuse).map(places).transpose()?,
            kubelet_dir: self.kubelet_dir,
            cdi_dir: self.cdi_dir,
            roots: Roots { dev: self.dev, sys: self.sysfs },
            boot_id: self.boot_id,
            instance: self.pod_uid.map_or(Instance::Only, Instance::Pod),
            http: self.http,
            run_dir: self.run_dir,
            collect_every: Duration::from_secs(self.collect_every),
            lock,
        };
        match starter {
            Starter::Daemon => privilege::drop_all(),
            Starter::Somebody => privilege::drop_for_ever(),
        }
        .map_err(Error::Start)?;
        let shutdown = CancellationToken::new();
        let daemon = Daemon::build(settings)?.run(shutdown.clone());
        tokio::pin!(daemon);
        tokio::select! {
            ended = &mut daemon => return Ok(ended?),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        shutdown.cancel();
        Ok(daemon.await?)
    }
}

/// Becomes a daemon that waits for the end of its successor: without a thread that could still answer for the
/// file system, which is not ours any more. Comes back only with an error.
fn start_again() -> std::io::Error {
    match std::env::current_exe() {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).env(STANDBY, "1").exec(),
        Err(error) => error,
    }
}
