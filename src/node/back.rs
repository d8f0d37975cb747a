//! What only one daemon of a node may have at a time: everything behind the lock.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::watch;
use tracing::info;

use super::{Error, lock::Lock, show::Show};
use crate::{
    claims::Claims,
    device::{DriverName, NodeName},
    discover::Found,
    exhibit::{self, Exhibit, Mode},
    hold::Places,
    kubelet::{Instance, Listener},
    prepare::{self, BootId, Preparer},
};

/// What is needed to open it.
pub(super) struct Closed<C> {
    pub(super) driver: DriverName,
    pub(super) node: NodeName,
    pub(super) claims: C,
    pub(super) inventory: watch::Receiver<Arc<Found>>,
    pub(super) instance: Instance,
    pub(super) cdi_dir: PathBuf,
    pub(super) run_dir: PathBuf,
    pub(super) boot_id: PathBuf,
    pub(super) metadata: Option<(Places, Mode)>,
}

/// The claims of this node, and what containers read.
pub(super) struct Back<C> {
    pub(super) lock: Lock,
    pub(super) preparer: Arc<Preparer<C>>,
    pub(super) show: Option<Show<C>>,
    pub(super) door: Door,
}

/// Where a successor knocks.
pub(super) enum Door {
    /// Nobody may take our place while we run.
    None,
    /// Another process of this driver.
    Open(Listener),
}

/// Where a successor knocks.
pub(super) fn door(run_dir: &std::path::Path) -> PathBuf {
    run_dir.join("next.sock")
}

impl<C: Claims> Closed<C> {
    /// Recovers what is prepared and puts the file system before the kernel.
    pub(super) fn open(self, lock: Lock) -> Result<Back<C>, Error> {
        let Self { driver, node, claims, inventory, instance, cdi_dir, run_dir, boot_id, metadata } = self;
        if let Some((places, _)) = &metadata {
            places.refuse_others().map_err(exhibit::Error::from)?;
        }
        let boot = BootId::read(&boot_id).map_err(prepare::Error::from)?;
        let exhibit = metadata
            .map(|(places, mode)| Exhibit::new(driver.clone(), node.clone(), places, mode).map(Arc::new))
            .transpose()?;
        let preparing = prepare::Settings {
            driver,
            node,
            cdi_folder: cdi_dir,
            journal_folder: run_dir.join("claims"),
            boot,
            exhibit: exhibit.clone(),
        };
        let preparer = Arc::new(Preparer::recover(preparing, claims, inventory.clone())?);
        // The tree is complete from the first moment that the kernel can ask.
        let show =
            exhibit.map(|exhibit| Show::start(exhibit, inventory, Arc::clone(&preparer))).transpose()?;
        let door = match instance {
            Instance::Only => Door::None,
            Instance::Pod(_) => Door::Open(Listener::bind(door(&run_dir))?),
        };
        Ok(Back { lock, preparer, show, door })
    }
}

impl Door {
    /// Waits until a successor has knocked.
    pub(super) async fn knocked(&self) -> std::io::Result<()> {
        match self {
            Self::None => std::future::pending().await,
            Self::Open(listener) => listener.knocked().await.inspect(|()| {
                info!("another daemon is ready to take over: stepping back");
            }),
        }
    }
}
