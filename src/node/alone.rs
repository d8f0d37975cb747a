//! The daemon without a cluster: no kubelet, no API server, and a control socket in their place.

use std::{path::PathBuf, sync::Arc};

use tokio::{task::spawn_blocking, time};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    DRAIN, Error,
    back::{Back, Closed},
    flatten,
    lock::Lock,
    show::{self, Show},
};
use crate::{
    claims::Folder,
    config::Config,
    device::{DriverName, NodeName},
    discover::Roots,
    exhibit::{Exhibit, Mode},
    hold::Places,
    inventory::Inventory,
    kubelet::{Instance, Listener},
    prepare::Preparer,
    standalone::{
        books::{self, Books},
        desk::{Desk, Parts},
        presence::Runs,
        service,
        setup::{Setup, Stay},
        users,
    },
};

/// Everything that can be chosen.
pub struct Alone {
    /// The devices.
    pub config: Config,
    /// This node.
    pub node: NodeName,
    /// Where claims and classes are.
    pub objects_dir: PathBuf,
    /// Where runtimes look for specs.
    pub cdi_dir: PathBuf,
    /// Where the lock, the journal and the control socket are.
    pub run_dir: PathBuf,
    /// Where the machine's folders are.
    pub roots: Roots,
    /// What tells one boot from another.
    pub boot_id: PathBuf,
    /// Where and how containers read about their devices, if they do.
    pub metadata: Option<(Places, Mode)>,
    /// What it was started with, and when it ends.
    pub setup: Setup,
}

impl Alone {
    /// Serves until the shutdown is asked for, it is idle or a part fails; then ends in order, within a deadline.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { config, node, objects_dir, cdi_dir, run_dir, roots, boot_id, metadata, setup } = self;
        let stay = setup.stay;
        // Before anything of another daemon could be touched.
        let lock = match stay {
            Stay::Always => Lock::take_for_good(&run_dir).await?,
            Stay::UntilIdle(_) => Lock::take(&run_dir)?,
        };
        let lock = lock.alone(&run_dir, stay)?;
        let folder = Arc::new(Folder::open(objects_dir.join("claims"))?);
        let driver = config.driver.clone();
        let runs = Runs::open(&run_dir).map_err(Error::Runs)?;
        refuse_elsewhere(&folder, &runs, &driver, &node)?;
        let inventory = Inventory::build(config, roots)?;
        let snapshots = inventory.subscribe();
        for notice in &snapshots.borrow().notices {
            warn!(%notice, "something is left out");
        }
        let closed = Closed {
            driver: driver.clone(),
            node: node.clone(),
            claims: Arc::clone(&folder),
            inventory: snapshots.clone(),
            instance: Instance::Only,
            cdi_dir,
            run_dir: run_dir.clone(),
            boot_id,
            metadata,
        };
        let Back { lock: _lock, preparer, show, door: _ } = closed.open(lock)?;
        let exhibit = show.as_ref().map(Show::exhibit);
        let settings = books::Settings {
            driver: driver.clone(),
            node: node.clone(),
            classes: objects_dir.join("classes"),
        };
        let parts = Parts {
            driver,
            node,
            books: Books::open(settings, folder, snapshots.clone()),
            preparer: Arc::clone(&preparer),
            exhibit: exhibit.clone(),
            inventory: snapshots,
            runs,
            setup,
        };
        // Those who ask are let go first, the rest when they are answered.
        let (front, back) = (CancellationToken::new(), CancellationToken::new());
        let desk = Desk::new(parts, front.clone());
        let mut inventory = tokio::spawn(inventory.run(back.clone()));
        let show = tokio::spawn(show::run(show, back.clone()));
        desk.recover().await.map_err(Error::Runs)?;
        let listener = Listener::bind(service::socket(&run_dir))?;
        let mut control = tokio::spawn(service::serve(listener, Arc::clone(&desk), front.clone()));
        let serving = tokio::spawn(Arc::clone(&desk).run());
        info!("ready");

        let mut rest = Rest::Stays;
        let outcome = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            () = idle(&desk, stay) => {
                rest = Rest::Goes;
                Ok(())
            }
            ended = &mut control => flatten(ended),
            ended = &mut inventory => flatten(ended),
        };
        info!("ending");
        front.cancel();
        let end = async {
            if !control.is_finished() {
                flatten(control.await)?;
            }
            serving.await?;
            back.cancel();
            preparer.drain().await;
            show.await??;
            if !inventory.is_finished() {
                flatten(inventory.await)?;
            }
            if rest == Rest::Goes {
                dismiss(&preparer, exhibit).await?;
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

/// Refuses claims that hold devices of a node or a driver that is called otherwise: these would be given away again.
fn refuse_elsewhere(folder: &Folder, runs: &Runs, driver: &DriverName, node: &NodeName) -> Result<(), Error> {
    for stored in folder.all() {
        if !users::is_used(&stored, runs).map_err(Error::Runs)? {
            continue;
        }
        let allocation = stored.object.status.as_ref().and_then(|status| status.allocation.as_ref());
        let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
        for result in results.into_iter().flatten() {
            if result.driver != driver.as_str() || result.pool != node.as_str() {
                let (claim, driver, node) =
                    (stored.claim.clone(), result.driver.clone(), result.pool.clone());
                return Err(Error::Elsewhere { claim, driver, node });
            }
        }
    }
    Ok(())
}

/// What becomes of what is mounted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Stays,
    Goes,
}

async fn idle(desk: &Desk, stay: Stay) {
    match stay {
        Stay::Always => std::future::pending().await,
        Stay::UntilIdle(long) => desk.idle(long).await,
    }
}

/// Leaves nothing, unless somebody was served at the last moment.
async fn dismiss(preparer: &Preparer<Arc<Folder>>, exhibit: Option<Arc<Exhibit>>) -> Result<(), Error> {
    if !preparer.held().is_empty() {
        return Ok(());
    }
    match exhibit {
        Some(exhibit) => Ok(spawn_blocking(move || exhibit.end()).await??),
        None => Ok(()),
    }
}
