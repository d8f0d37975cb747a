//! The daemon: everything that runs on a node, in the right order.
//!
//! [`Daemon::build`] takes the lock, recovers what is prepared and makes the sockets; [`Daemon::run`] serves.
//! The service is there before the registration. At the end the kubelet's calls are answered first, then the
//! work under way is finished; slices and prepared claims stay for whoever comes next.

mod lock;
mod memory;
mod show;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use kube::Client;
use tokio::{task::JoinError, time};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{lock::Lock, show::Show};
use crate::{
    claims::ApiServer,
    config::Config,
    device::NodeName,
    discover::Roots,
    exhibit::{self, Exhibit, Mode},
    hold::Places,
    inventory::{self, Inventory},
    kubelet::{self, Health, Instance, Paths, Plugin},
    observe::{Events, Probes, Readiness},
    prepare::{self, BootId, Preparer},
    publish::{self, Publisher},
};

/// How long the end may take: the kubelet waits 30 s for a driver that comes back.
const DRAIN: Duration = Duration::from_secs(20);

/// Why the daemon does not run (any more).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another one runs, or the folder cannot be used.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// The devices cannot be followed.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// What is prepared cannot be recovered.
    #[error(transparent)]
    Prepare(#[from] prepare::Error),
    /// Containers cannot read about their devices.
    #[error(transparent)]
    Exhibit(#[from] exhibit::Error),
    /// The kubelet cannot be served.
    #[error(transparent)]
    Kubelet(#[from] kubelet::Error),
    /// The probes cannot be served.
    #[error("cannot serve the probes on {address}: {source}")]
    Probes {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A part ended in a panic.
    #[error("a part of the daemon broke: {0}")]
    Broken(#[from] JoinError),
}

/// Everything that can be chosen.
pub struct Settings {
    /// The devices.
    pub config: Config,
    /// This node.
    pub node: NodeName,
    /// The cluster.
    pub client: Client,
    /// Where the kubelet's sockets are.
    pub kubelet_dir: PathBuf,
    /// Where runtimes look for specs.
    pub cdi_dir: PathBuf,
    /// Where the lock and the journal are.
    pub run_dir: PathBuf,
    /// Where the machine's folders are.
    pub roots: Roots,
    /// What tells one boot from another.
    pub boot_id: PathBuf,
    /// Whether another process of this driver may run beside us.
    pub instance: Instance,
    /// Where the probes are served, if at all.
    pub http: Option<SocketAddr>,
    /// Where and how containers read about their devices, if they do.
    pub metadata: Option<(Places, Mode)>,
    /// How often to look for claims that the kubelet has forgotten.
    pub collect_every: Duration,
}

/// A daemon that is about to run.
pub struct Daemon {
    _lock: Lock,
    inventory: Inventory,
    preparer: Arc<Preparer<ApiServer>>,
    plugin: Plugin<ApiServer>,
    publisher: Publisher,
    readiness: Readiness,
    probes: Option<(SocketAddr, Probes)>,
    events: Events,
    show: Option<Show<ApiServer>>,
    collect_every: Duration,
}

impl Daemon {
    /// Takes and makes everything that can be refused.
    pub fn build(settings: Settings) -> Result<Self, Error> {
        let Settings {
            config,
            node,
            client,
            kubelet_dir,
            cdi_dir,
            run_dir,
            roots,
            boot_id,
            instance,
            http,
            metadata,
            collect_every,
        } = settings;
        let lock = Lock::take(&run_dir)?;
        let driver = config.driver.clone();
        let inventory = Inventory::build(config, roots)?;
        let snapshots = inventory.subscribe();
        for notice in &snapshots.borrow().notices {
            warn!(%notice, "something is left out");
        }
        let boot = BootId::read(&boot_id).map_err(prepare::Error::from)?;
        let exhibit = metadata
            .map(|(places, mode)| Exhibit::new(driver.clone(), node.clone(), places, mode).map(Arc::new))
            .transpose()?;
        let preparing = prepare::Settings {
            driver: driver.clone(),
            node: node.clone(),
            cdi_folder: cdi_dir,
            journal_folder: run_dir.join("claims"),
            boot,
            exhibit: exhibit.clone(),
        };
        let claims = ApiServer::new(client.clone());
        let preparer = Arc::new(Preparer::recover(preparing, claims, snapshots.clone())?);
        // The tree is complete from the first moment that the kernel can ask.
        let show = exhibit
            .map(|exhibit| Show::start(exhibit, snapshots.clone(), Arc::clone(&preparer)))
            .transpose()?;
        let held = Arc::clone(&preparer);
        let held = Arc::new(move || held.owners().into_keys().collect());
        let health = Health::new(node.clone(), snapshots.clone(), held);
        let paths = Paths::new(kubelet_dir, driver.clone(), instance);
        let plugin = Plugin::bind(&paths, &driver, Arc::clone(&preparer), health)?;
        let events = Events::new(client.clone(), &driver, &node);
        let publisher = Publisher::new(client, publish::Settings { driver, node }, snapshots);
        let readiness = Readiness { registered: plugin.registered(), published: publisher.published() };
        let probes = http
            .map(|address| {
                let probes = Probes::bind(address, readiness.clone());
                Ok::<_, Error>((address, probes.map_err(|source| Error::Probes { address, source })?))
            })
            .transpose()?;
        Ok(Self {
            _lock: lock,
            inventory,
            preparer,
            plugin,
            publisher,
            readiness,
            probes,
            events,
            show,
            collect_every,
        })
    }

    /// Serves until the shutdown is asked for or a part fails; then ends in order, within a deadline.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self {
            _lock,
            inventory,
            preparer,
            plugin,
            publisher,
            readiness,
            probes,
            events,
            show,
            collect_every,
        } = self;
        // The kubelet is let go first, the rest when its calls are answered.
        let (front, back) = (CancellationToken::new(), CancellationToken::new());
        let mut plugin = tokio::spawn(plugin.run(front.clone()));
        let mut inventory = tokio::spawn(inventory.run(back.clone()));
        let mut probes = tokio::spawn(serve_probes(probes, back.clone()));
        let collector = tokio::spawn(collect(Arc::clone(&preparer), events, collect_every, back.clone()));
        let show = tokio::spawn(show::run(show, back.clone()));
        let rounds = publisher.published();
        let small = tokio::spawn(memory::stay_small(rounds, back.clone()));
        let publisher = tokio::spawn(publisher.run(back.clone()));
        let ready = tokio::spawn(async move {
            readiness.ready().await;
            info!("ready");
        });

        let outcome = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            ended = &mut plugin => flatten(ended),
            ended = &mut inventory => flatten(ended),
            ended = &mut probes => flatten(ended),
        };
        info!("ending");
        ready.abort();
        front.cancel();
        let end = async {
            if !plugin.is_finished() {
                flatten(plugin.await)?;
            }
            back.cancel();
            collector.await?;
            preparer.drain().await;
            publisher.await?;
            small.await?;
            show.await??;
            if !inventory.is_finished() {
                flatten(inventory.await)?;
            }
            if !probes.is_finished() {
                flatten(probes.await)?;
            }
            Ok::<(), Error>(())
        };
        match time::timeout(DRAIN, end).await {
            Ok(ended) => outcome.and(ended),
            Err(_) => {
                warn!(
                    "the end took longer than {} s; what is left is undone at the next start",
                    DRAIN.as_secs()
                );
                outcome
            }
        }
    }
}

/// Looks for claims that the kubelet has forgotten, now and then.
async fn collect(
    preparer: Arc<Preparer<ApiServer>>,
    events: Events,
    every: Duration,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = time::sleep(every) => {}
        }
        for claim in preparer.collect().await {
            events.released(&claim).await;
        }
    }
}

async fn serve_probes(
    probes: Option<(SocketAddr, Probes)>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    match probes {
        Some((address, probes)) => {
            probes.run(shutdown).await.map_err(|source| Error::Probes { address, source })
        }
        None => {
            shutdown.cancelled().await;
            Ok(())
        }
    }
}

fn flatten<E: Into<Error>>(ended: Result<Result<(), E>, JoinError>) -> Result<(), Error> {
    ended?.map_err(Into::into)
}
