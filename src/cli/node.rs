//! `claimfs node`: the daemon.

use std::{net::SocketAddr, os::unix::process::CommandExt, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use futures::{FutureExt, TryFutureExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    Error,
    machine::{Machine, UNTIL_IDLE_VARIABLE},
    node_name,
};
use crate::{
    cluster,
    config::Config,
    device::PodUid,
    discover::Roots,
    exhibit::Mode,
    hold::{Places, Starter},
    kubelet::Instance,
    node::{self, Alone, Daemon, Ended, Lock, Settings},
    observe, privilege, program,
    standalone::setup::{Setup, Stay},
};

/// Serve the devices of this node, to its kubelet or without a cluster
///
/// Publishes them as ResourceSlices, registers with the kubelet and prepares claims. With --standalone it needs
/// neither: it allocates by itself what `claimfs run` and `claimfs claim` ask for. Ends on SIGTERM: calls under way
/// are answered, and what is prepared stays for the next start.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 ended on a signal, 1 not possible, 2 wrong usage or configuration.")]
pub(super) struct Node {
    #[command(flatten)]
    machine: Machine,

    /// Serve this machine alone, without a kubelet and a cluster
    #[arg(long, env = "CLAIMFS_STANDALONE", conflicts_with_all = ["kubeconfig", "pod_uid", "http"])]
    standalone: bool,

    /// With --standalone: end when there has been no claim for so long, and leave nothing
    #[arg(long, value_name = "SECONDS", env = UNTIL_IDLE_VARIABLE, requires = "standalone")]
    until_idle: Option<u64>,

    /// How to reach the cluster; in a pod its service account is used
    #[arg(long, value_name = "FILE", env = "CLAIMFS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// The kubelet's folder, in which plugins are registered
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_KUBELET_DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,

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
}

/// Who starts a holder.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Holder {
    /// The daemon, when there is none
    Start,
    /// Somebody else; without one new claims are not prepared
    Wait,
}

/// Says that this process has stepped back for another one.
const STANDBY: &str = "CLAIMFS_STANDBY";

impl Node {
    pub(super) fn run(self) -> Result<(), Error> {
        observe::log_to_stderr(&self.log)?;
        privilege::open_as_many_as_allowed().map_err(Error::Start)?;
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
                    lock = Lock::stand_by(&self.machine.run_dir) => Some(lock.map_err(node::Error::from)?),
                    _ = interrupt.recv() => return Ok(Ended::Asked),
                    _ = terminate.recv() => return Ok(Ended::Asked),
                }
            }
            None => None,
        };
        let shutdown = CancellationToken::new();
        let daemon = if self.standalone {
            self.alone(shutdown.clone())?.map_ok(|()| Ended::Asked).boxed_local()
        } else {
            self.in_cluster(lock).await?.run(shutdown.clone()).boxed_local()
        };
        tokio::pin!(daemon);
        tokio::select! {
            ended = &mut daemon => return Ok(ended?),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        shutdown.cancel();
        Ok(daemon.await?)
    }

    fn alone(
        self,
        shutdown: CancellationToken,
    ) -> Result<impl Future<Output = Result<(), node::Error>>, Error> {
        // Before it is read: one that is edited meanwhile is another one.
        let stamp = self.machine.stamp();
        let alone = Alone {
            config: Config::load(&self.machine.config)?,
            node: node_name(self.machine.node_name.as_ref())?,
            metadata: self.metadata()?,
            objects_dir: self.machine.objects_dir.clone(),
            cdi_dir: self.machine.cdi_dir.clone(),
            run_dir: self.machine.run_dir.clone(),
            roots: self.roots(),
            boot_id: self.machine.boot_id.clone(),
            setup: Setup {
                stamp,
                config: std::path::absolute(&self.machine.config).map_err(Error::Start)?,
                stay: self.until_idle.map_or(Stay::Always, |long| Stay::UntilIdle(Duration::from_secs(long))),
            },
        };
        self.drop_privilege()?;
        Ok(alone.run(shutdown))
    }

    async fn in_cluster(self, lock: Option<Lock>) -> Result<Daemon, Error> {
        let settings = Settings {
            config: Config::load(&self.machine.config)?,
            node: node_name(self.machine.node_name.as_ref())?,
            client: cluster::connect(cluster::config(self.kubeconfig.as_deref()).await?)?,
            metadata: self.metadata()?,
            kubelet_dir: self.kubelet_dir.clone(),
            cdi_dir: self.machine.cdi_dir.clone(),
            roots: self.roots(),
            boot_id: self.machine.boot_id.clone(),
            instance: self.pod_uid.clone().map_or(Instance::Only, Instance::Pod),
            http: self.http,
            run_dir: self.machine.run_dir.clone(),
            collect_every: Duration::from_secs(self.collect_every),
            lock,
        };
        self.drop_privilege()?;
        Ok(Daemon::build(settings)?)
    }

    fn roots(&self) -> Roots {
        Roots { dev: self.machine.dev.clone(), sys: self.machine.sysfs.clone() }
    }

    /// Where and how containers read about their devices.
    fn metadata(&self) -> Result<Option<(Places, Mode)>, Error> {
        let Machine { run_dir, mount_point, grace, dev, metadata, .. } = &self.machine;
        // A holder that somebody else starts has the host's.
        let (starter, fuse) = match self.holder {
            Holder::Start => (Starter::Daemon, PathBuf::from("/dev/fuse")),
            Holder::Wait => (Starter::Somebody, dev.join("fuse")),
        };
        let Some(mode) = metadata.mode(&fuse)? else { return Ok(None) };
        Ok(Some((Places::new(run_dir, mount_point, Duration::from_secs(*grace), starter)?, mode)))
    }

    fn drop_privilege(&self) -> Result<(), Error> {
        match self.holder {
            Holder::Start => privilege::drop_all(),
            Holder::Wait => privilege::drop_for_ever(),
        }
        .map_err(Error::Start)
    }
}

/// Becomes a daemon that waits for the end of its successor: without a thread that could still answer for the
/// file system, which is not ours any more. Comes back only with an error.
fn start_again() -> std::io::Error {
    program::itself().args(std::env::args_os().skip(1)).env(STANDBY, "1").exec()
}
