//! The life of a claim on this node: prepared completely, or not at all.
//!
//! [`Preparer::prepare`] and [`Preparer::unprepare`] are what the kubelet asks for. A claim passes through
//! two phases, each of which the [`Journal`] knows: begun before anything is set up, prepared before it is
//! answered. Work on one claim is done one at a time, work on different claims at the same time, and
//! always in a task of its own: a caller that goes away changes nothing about it. [`Preparer::recover`]
//! finishes or undoes at the start what a crash has left.

mod edits;
mod held;
mod journal;
mod locks;

use std::{
    collections::BTreeSet,
    mem,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{Notify, watch},
    task::JoinError,
};
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error_span, info, warn};

pub use self::{
    held::Conflict,
    journal::{BootId, Journal},
};
use self::{
    held::Held,
    journal::{Loaded, Record},
    locks::Locks,
};
use crate::{
    cdi::{self, DeviceId},
    claims::{self, Allocated, Allocation, ClaimRef, Claims, Refusal, ShareId},
    device::{ClaimUid, DeviceName, DriverName, NodeName, PodClaimName, RequestName},
    discover::Found,
    exhibit::{self, Exhibit, Owners, Prepared},
};

/// Why a claim is not (un)prepared. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The claim could not be fetched.
    #[error(transparent)]
    Claim(#[from] claims::Error),
    /// The claim cannot be prepared here.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A device that was allocated is not here.
    #[error("claim {claim}: device {device} is not on this node (any more)")]
    NoDevice {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
    },
    /// A device belongs to another claim.
    #[error("claim {claim}: {conflict}")]
    Conflict {
        /// The claim.
        claim: ClaimRef,
        /// Who has the device.
        conflict: Conflict,
    },
    /// The journal could not be written.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The CDI spec could not be written or removed.
    #[error(transparent)]
    Cdi(#[from] cdi::Error),
    /// Containers could not read about their devices.
    #[error(transparent)]
    Exhibit(#[from] exhibit::Error),
    /// The work ended without an answer.
    #[error("the work on the claim was ended: {0}")]
    Ended(#[from] JoinError),
}

/// One device as the kubelet gets to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The request, without a subrequest.
    pub request: RequestName,
    /// The pool.
    pub pool: NodeName,
    /// The device.
    pub device: DeviceName,
    /// What the runtime gets.
    pub cdi_id: DeviceId,
    /// Which share of a shared device.
    pub share: Option<ShareId>,
}

/// Everything that preparing needs to know.
pub struct Settings {
    /// Our driver.
    pub driver: DriverName,
    /// This node, which is also the name of its pool.
    pub node: NodeName,
    /// Where runtimes look for specs.
    pub cdi_folder: PathBuf,
    /// Where the journal is.
    pub journal_folder: PathBuf,
    /// The present boot.
    pub boot: BootId,
    /// Where containers read about their devices, if they can.
    pub exhibit: Option<Arc<Exhibit>>,
}

/// Prepares and unprepares claims.
pub struct Preparer<C> {
    shared: Arc<Shared<C>>,
    tasks: TaskTracker,
}

struct Shared<C> {
    driver: DriverName,
    node: NodeName,
    claims: C,
    inventory: watch::Receiver<Arc<Found>>,
    journal: Journal,
    cdi: cdi::Folder,
    exhibit: Option<Arc<Exhibit>>,
    held: Held,
    locks: Locks,
    /// Devices that have other owners since somebody asked.
    changed_devices: Mutex<BTreeSet<DeviceName>>,
    changed: Notify,
}

impl<C: Claims> Preparer<C> {
    /// Opens the folders and recovers what an earlier process has left in them.
    pub fn recover(
        settings: Settings,
        claims: C,
        inventory: watch::Receiver<Arc<Found>>,
    ) -> Result<Self, Error> {
        let Settings { driver, node, cdi_folder, journal_folder, boot, exhibit } = settings;
        let shared = Shared {
            journal: Journal::open(journal_folder, boot)?,
            cdi: cdi::Folder::open(&cdi_folder, driver.clone())?,
            exhibit,
            held: Held::default(),
            locks: Locks::default(),
            changed_devices: Mutex::default(),
            changed: Notify::new(),
            driver,
            node,
            claims,
            inventory,
        };
        shared.recover()?;
        Ok(Self { shared: Arc::new(shared), tasks: TaskTracker::new() })
    }

    /// Prepares a claim; again, if it is prepared already, with the same answer.
    pub async fn prepare(&self, claim: ClaimRef) -> Result<Vec<PreparedDevice>, Error> {
        let shared = Arc::clone(&self.shared);
        let span = error_span!("prepare", %claim, uid = %claim.uid);
        self.tasks.spawn(async move { shared.prepare(claim).await }.instrument(span)).await?
    }

    /// Undoes all that was prepared for a claim. One that is not known is fine: somebody else may have
    /// undone it, or nothing was ever done.
    pub async fn unprepare(&self, claim: ClaimUid) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let span = error_span!("unprepare", uid = %claim);
        self.tasks.spawn(async move { shared.unprepare(claim).await }.instrument(span)).await?
    }

    /// The devices that claims hold now, and which claims.
    #[must_use]
    pub fn owners(&self) -> Owners {
        self.shared.held.owners()
    }

    /// Which claims hold these devices now.
    #[must_use]
    pub fn owners_of(&self, devices: &BTreeSet<DeviceName>) -> Owners {
        self.shared.held.owners_of(devices)
    }

    /// What was answered for a claim that is prepared.
    #[must_use]
    pub fn devices_of(&self, claim: &ClaimUid) -> Option<Vec<PreparedDevice>> {
        self.shared.held.get(claim).map(|record| self.shared.answer(&record))
    }

    /// The devices that claims hold now.
    #[must_use]
    pub fn held(&self) -> Vec<DeviceName> {
        self.shared.held.devices()
    }

    /// Waits until devices may have other owners than when that was last asked.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// The devices that have other owners than when this was last asked.
    #[must_use]
    pub fn changed_devices(&self) -> BTreeSet<DeviceName> {
        mem::take(&mut self.shared.changed_devices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Releases claims that the kubelet has forgotten: their objects are gone, and nothing on this node names
    /// them. Answers with those that it released. What cannot be asked about stays.
    pub async fn collect(&self) -> Vec<ClaimRef> {
        let mut released = Vec::new();
        for claim in self.shared.held.claims() {
            let shared = Arc::clone(&self.shared);
            let span = error_span!("collect", %claim, uid = %claim.uid);
            let work = async move { shared.collect(claim).await }.instrument(span);
            match self.tasks.spawn(work).await.map_err(Error::from).flatten() {
                Ok(claim) => released.extend(claim),
                Err(error) => info!(%error, "cannot tell whether a claim is still in use"),
            }
        }
        released
    }

    /// Waits for the work that is under way; nothing new is to be asked for.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl<C: Claims> Shared<C> {
    async fn prepare(self: Arc<Self>, claim: ClaimRef) -> Result<Vec<PreparedDevice>, Error> {
        let _guard = self.locks.lock(&claim.uid).await;
        let object = self.claims.get(&claim).await?;
        let allocated = Allocated::check(&object, &claim, &self.driver, &self.node)?;
        // On this thread: the files are in memory, and to go to another one takes longer than to write them.
        self.set_up(allocated)
    }

    async fn unprepare(self: Arc<Self>, claim: ClaimUid) -> Result<(), Error> {
        let _guard = self.locks.lock(&claim).await;
        self.take_down(&claim)
    }

    async fn collect(self: Arc<Self>, claim: ClaimRef) -> Result<Option<ClaimRef>, Error> {
        let _guard = self.locks.lock(&claim.uid).await;
        let is_gone = match self.claims.get(&claim).await {
            Ok(object) => object.metadata.uid != claim.uid.as_str(),
            Err(claims::Error::NotFound { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        if !is_gone || self.claims.is_named(&claim, &self.node).await? {
            return Ok(None);
        }
        warn!("releasing a claim that is gone and that nothing on this node names");
        self.take_down(&claim.uid)?;
        Ok(Some(claim))
    }

    /// From an allocation to devices that a container can get.
    fn set_up(&self, allocated: Allocated) -> Result<Vec<PreparedDevice>, Error> {
        let Allocated { claim, allocations, pod_claim_name, consumers } = allocated;
        if allocations.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(record) = self.held.get(&claim.uid) {
            if record.is_for(&claim, &allocations) {
                // Somebody may have removed it; where it is as it was, nothing is written.
                self.show(&record)?;
                self.cdi.write(&claim.uid, &record.spec)?;
                self.journal.commit_if_begun(&claim.uid)?;
                return Ok(self.answer(&record));
            }
            // It was deallocated and allocated anew without our being told.
            warn!("the allocation is another one now: releasing the former one");
            self.take_down(&claim.uid)?;
        }
        let record = Arc::new(self.plan(claim, allocations, pod_claim_name)?);
        let uid = record.claim.uid.clone();
        self.held
            .insert(Arc::clone(&record))
            .map_err(|conflict| Error::Conflict { claim: record.claim.clone(), conflict })?;
        match self.commit(&record) {
            Ok(()) => {
                self.tell(&record);
                for consumer in &consumers {
                    info!(devices = %record.device_names(), %consumer, "prepared");
                }
                Ok(self.answer(&record))
            }
            Err(error) => {
                // What cannot be undone now is undone at the next call or start: the journal knows it.
                if let Err(undo) = self.take_down(&uid) {
                    warn!(%undo, "cannot undo what was set up");
                }
                Err(error)
            }
        }
    }

    /// The two phases. The spec is the last thing that becomes visible.
    fn commit(&self, record: &Record) -> Result<(), Error> {
        self.journal.begin(record)?;
        self.show(record)?;
        self.cdi.write(&record.claim.uid, &record.spec)?;
        self.journal.commit(&record.claim.uid)?;
        Ok(())
    }

    /// First what a container could still find, last what makes the devices free.
    fn take_down(&self, claim: &ClaimUid) -> Result<(), Error> {
        self.cdi.remove(claim)?;
        if let Some(exhibit) = &self.exhibit {
            exhibit.hide(claim);
        }
        self.journal.remove(claim)?;
        if let Some(record) = self.held.remove(claim) {
            self.tell(&record);
            info!("unprepared");
        }
        Ok(())
    }

    /// What will be set up, with everything that the inventory knows.
    fn plan(
        &self,
        claim: ClaimRef,
        allocations: Vec<Allocation>,
        pod_claim_name: Option<PodClaimName>,
    ) -> Result<Record, Error> {
        let inventory = Arc::clone(&self.inventory.borrow());
        let devices = allocations.iter().map(|allocation| {
            let missing = || Error::NoDevice { claim: claim.clone(), device: allocation.device.clone() };
            inventory.devices.get(&allocation.device).ok_or_else(missing)
        });
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        let sharing = devices.iter().map(|device| device.sharing).collect();
        let prepared = Prepared { claim, pod_claim_name, allocations };
        let spec = edits::spec(&self.driver, &prepared, &devices, self.exhibit.as_deref());
        let Prepared { claim, pod_claim_name, allocations } = prepared;
        Ok(Record::new(claim, allocations, pod_claim_name, sharing, spec))
    }

    /// Others may want to know who has a device.
    fn tell(&self, record: &Record) {
        let devices = record.allocations.iter().map(|allocation| allocation.device.clone());
        self.changed_devices.lock().unwrap_or_else(PoisonError::into_inner).extend(devices);
        self.changed.notify_one();
    }

    fn show(&self, record: &Record) -> Result<(), Error> {
        if let Some(exhibit) = &self.exhibit {
            exhibit.show(record.shown(), &Arc::clone(&self.inventory.borrow()))?;
        }
        Ok(())
    }

    fn answer(&self, record: &Record) -> Vec<PreparedDevice> {
        let devices = record.allocations.iter().zip(record.spec.ids());
        let device = |(allocation, cdi_id): (&Allocation, DeviceId)| PreparedDevice {
            request: allocation.request.clone(),
            pool: self.node.clone(),
            device: allocation.device.clone(),
            cdi_id,
            share: allocation.share.clone(),
        };
        devices.map(device).collect()
    }

    /// Finishes what was prepared, undoes what was not, and forgets what another boot has left.
    fn recover(&self) -> Result<(), Error> {
        let Loaded { prepared, begun, unreadable } = self.journal.load()?;
        if let Some(exhibit) = &self.exhibit {
            exhibit.spare(unreadable.iter().cloned());
        }
        for uid in begun {
            info!(%uid, "undoing a claim that was being prepared");
            self.take_down(&uid)?;
        }
        for record in prepared {
            let record = Arc::new(record);
            self.show(&record)?;
            self.cdi.write(&record.claim.uid, &record.spec)?;
            if let Err(conflict) = self.held.insert(Arc::clone(&record)) {
                warn!(claim = %record.claim, %conflict, "two prepared claims have one device");
            }
        }
        // The spec of a claim whose record cannot be read stays: its containers may still need it.
        let removed =
            self.cdi.retain(|claim| self.held.get(claim).is_some() || unreadable.contains(claim))?;
        for path in removed {
            info!(path = %path.display(), "removed a CDI spec that belongs to no claim");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
