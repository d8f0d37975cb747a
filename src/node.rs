//! The daemon: everything that runs on a node, in the right order.
//!
//! [`Daemon::build`] takes the lock, recovers what is prepared and makes the sockets; [`Daemon::run`] serves.
//! The service is there before the registration. At the end the kubelet's calls are answered first, then the
//! work under way is finished; slices and prepared claims stay for whoever comes next.
//!
//! Where another process of this driver may run beside us, the new one registers first; calls that reach it
//! wait. Then it knocks at the old one's door, which ends as on a signal and stands by, and takes the lock.

mod alone;
mod back;
mod lock;
mod seen;
mod show;

use std::{
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kube::Client;
use tokio::{
    sync::{SetOnce, watch},
    task::JoinError,
    time,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::{
    alone::Alone,
    lock::Lock,
    seen::{Error as SeenError, Held, Seen},
};
use self::{
    back::{Back, Closed},
    show::Show,
};
use crate::{
    claims::{ApiServer, ClaimRef, FolderError},
    config::Config,
    device::NodeName,
    discover::Roots,
    exhibit::{self, Mode},
    hold::Places,
    inventory::{self, Inventory},
    kubelet::{self, Health, Instance, Late, Paths, Plugin, Registered},
    memory,
    observe::{Events, Probes, Readiness},
    prepare::{self, Preparer},
    publish::{self, Published, Publisher},
};

/// How long the end may take: the kubelet waits 30 s for a driver that comes back.
const DRAIN: Duration = Duration::from_secs(20);

/// How long a new daemon waits for the kubelet before it takes the place of the old one: the kubelet may be
/// away.
const REGISTER: Duration = Duration::from_secs(10);

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
    /// A successor cannot be heard.
    #[error("cannot listen for another daemon: {0}")]
    Door(#[source] std::io::Error),
    /// The claims of a node without a cluster cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A claim was made when the node or the driver had another name.
    #[error(
        "claim {claim} has devices of driver {driver} on node {node}\nfix: start it with --node-name {node} and that driver, delete the claim (claimfs claim delete), and start it anew"
    )]
    Elsewhere {
        /// The claim.
        claim: ClaimRef,
        /// The driver then.
        driver: String,
        /// The node then.
        node: String,
    },
    /// It cannot be told who uses claims.
    #[error("cannot tell who uses claims: {0}")]
    Runs(#[source] std::io::Error),
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
    /// The lock, if it is ours already.
    pub lock: Option<Lock>,
}

/// Why a daemon has ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Asked,
    /// It has stepped back for another one, and can stand by for it.
    Succeeded,
}

/// A daemon that is about to run.
pub struct Daemon {
    inventory: Inventory,
    preparer: Late<ApiServer>,
    plugin: Plugin<ApiServer>,
    publisher: Publisher,
    readiness: Readiness,
    probes: Option<(SocketAddr, Probes)>,
    events: Events,
    behind: Behind,
    collect_every: Duration,
}

/// What is behind the lock.
enum Behind {
    Ours(Back<ApiServer>),
    Anothers(Box<Closed<ApiServer>>),
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
            lock,
        } = settings;
        // Before anything of another daemon could be touched.
        let lock = match (lock, &instance) {
            (Some(lock), _) => Some(lock),
            (None, Instance::Only) => Some(Lock::take(&run_dir)?),
            (None, Instance::Pod(_)) => Lock::try_take(&run_dir)?.ok(),
        };
        let driver = config.driver.clone();
        let inventory = Inventory::build(config, roots)?;
        let snapshots = inventory.subscribe();
        for notice in &snapshots.borrow().notices {
            warn!(%notice, "something is left out");
        }
        let closed = Closed {
            driver: driver.clone(),
            node: node.clone(),
            claims: ApiServer::new(client.clone()),
            inventory: snapshots.clone(),
            instance: instance.clone(),
            cdi_dir,
            run_dir,
            boot_id,
            metadata,
        };
        let behind = match lock {
            Some(lock) => Behind::Ours(closed.open(lock)?),
            None => Behind::Anothers(Box::new(closed)),
        };
        let preparer: Late<ApiServer> = Arc::new(SetOnce::new());
        let held = Arc::clone(&preparer);
        let held = Arc::new(move || held.get().map(|preparer| preparer.held()).unwrap_or_default());
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
        Ok(Self { inventory, preparer, plugin, publisher, readiness, probes, events, behind, collect_every })
    }

    /// Serves until the shutdown is asked for, another daemon takes over or a part fails; then ends in order,
    /// within a deadline.
    pub async fn run(self, shutdown: CancellationToken) -> Result<Ended, Error> {
        let Self {
            inventory,
            preparer: late,
            plugin,
            publisher,
            readiness,
            probes,
            events,
            behind,
            collect_every,
        } = self;
        // The kubelet is let go first, the rest when its calls are answered.
        let (front, back) = (CancellationToken::new(), CancellationToken::new());
        let registered = plugin.registered();
        let mut plugin = tokio::spawn(plugin.run(front.clone()));
        let mut inventory = tokio::spawn(inventory.run(back.clone()));
        let mut probes = tokio::spawn(serve_probes(probes, back.clone()));
        let Back { lock: _lock, preparer, show, door } = match behind {
            Behind::Ours(back) => back,
            Behind::Anothers(closed) => tokio::select! {
                () = shutdown.cancelled() => return Ok(Ended::Asked),
                opened = succeed(*closed, registered) => opened?,
            },
        };
        // Invariant: nobody else sets it.
        let _ = late.set(Arc::clone(&preparer));
        let events = Arc::new(events);
        let told = tokio::spawn(tell_mode(show.as_ref().map(Show::mode), Arc::clone(&events)));
        let collector = tokio::spawn(collect(Arc::clone(&preparer), events, collect_every, back.clone()));
        let show = tokio::spawn(show::run(show, back.clone()));
        let rounds = publisher.published();
        let small = tokio::spawn(stay_small(rounds, back.clone()));
        let publisher = tokio::spawn(publisher.run(back.clone()));
        let ready = tokio::spawn(async move {
            readiness.ready().await;
            info!("ready");
        });

        let outcome = tokio::select! {
            () = shutdown.cancelled() => Ok(Ended::Asked),
            knocked = door.knocked() => knocked.map(|()| Ended::Succeeded).map_err(Error::Door),
            ended = &mut plugin => flatten(ended).map(|()| Ended::Asked),
            ended = &mut inventory => flatten(ended).map(|()| Ended::Asked),
            ended = &mut probes => flatten(ended).map(|()| Ended::Asked),
        };
        info!("ending");
        ready.abort();
        told.abort();
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
            Ok(ended) => outcome.and_then(|outcome| ended.map(|()| outcome)),
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

/// Takes the place of the daemon that has the lock, once the kubelet knows us.
async fn succeed(
    closed: Closed<ApiServer>,
    mut registered: watch::Receiver<Registered>,
) -> Result<Back<ApiServer>, Error> {
    info!("another daemon serves this node; waiting for the kubelet before taking over");
    let known = registered.wait_for(|verdict| *verdict == Registered::Yes);
    if time::timeout(REGISTER, known).await.is_err() {
        warn!("the kubelet has not registered us; taking over nevertheless");
    }
    knock(&closed.run_dir);
    let lock = Lock::succeed(&closed.run_dir, DRAIN).await?;
    info!("taking over");
    closed.open(lock)
}

/// Asks the daemon that has the lock to step back. One that has just died does not hear it, and has no lock.
fn knock(run_dir: &Path) {
    if let Err(error) = UnixStream::connect(back::door(run_dir)) {
        warn!(%error, "the other daemon does not hear us");
    }
}

/// Operators should know how containers read about their devices.
async fn tell_mode(mode: Option<Mode>, events: Arc<Events>) {
    if let Some(mode) = mode {
        events.metadata(mode).await;
    }
}

/// Gives back what each round of publishing has left free: a thousand devices are published in megabytes and
/// remembered in kilobytes.
async fn stay_small(mut rounds: watch::Receiver<Published>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            round = rounds.changed() => if round.is_err() { return },
        }
        memory::trim();
        memory::forget_files();
    }
}

/// Looks for claims that the kubelet has forgotten, now and then.
async fn collect(
    preparer: Arc<Preparer<ApiServer>>,
    events: Arc<Events>,
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
