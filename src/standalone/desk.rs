//! Where claims are asked for: allocated, prepared, followed until their runs are over, and released.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use super::{
    books::{self, Asked, Books, Patience, Waiting},
    manifest::Lifetime,
    presence::{RunId, Runs},
    refusal::Refusal,
    report::{ClaimReport, DeviceReport, GrantedDevice, Report, RunReport, UsedBy},
};
use crate::{
    claims::{ClaimRef, Folder, Stored},
    device::{ClaimUid, DriverName, NodeName},
    discover::Found,
    exhibit::{Exhibit, Mode},
    prepare::{PreparedDevice, Preparer},
};

/// How often it is looked whether a container still runs that a daemon of its runtime has started: nobody tells.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long whoever has ended its run waits for the release.
const RELEASE_WITHIN: Duration = Duration::from_secs(20);

/// What a new claim or one that is there is asked for.
pub enum Wanted {
    /// Make this one.
    New(Box<ResourceClaim>),
    /// This one.
    Named(String),
}

/// What was granted.
#[derive(Debug)]
pub struct Granted {
    /// The claim.
    pub claim: ClaimRef,
    /// Its devices.
    pub devices: Vec<PreparedDevice>,
}

/// Whether a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Somebody has it open.
    Present,
    /// Nobody has, but a container uses its claim.
    InUse,
    /// It is, and its claim is released.
    Over,
}

/// What the desk is made of.
pub struct Parts {
    /// Our driver.
    pub driver: DriverName,
    /// This node.
    pub node: NodeName,
    /// Who has what.
    pub books: Books,
    /// Prepares.
    pub preparer: Arc<Preparer<Arc<Folder>>>,
    /// Where containers read, if they do.
    pub exhibit: Option<Arc<Exhibit>>,
    /// The devices.
    pub inventory: watch::Receiver<Arc<Found>>,
    /// Who uses what.
    pub runs: Runs,
}

/// Serves all who ask.
pub struct Desk {
    parts: Parts,
    followed: Mutex<BTreeMap<RunId, watch::Receiver<Phase>>>,
    /// How many are being served.
    calls: AtomicUsize,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// Somebody who is being served.
pub struct Call(Arc<Desk>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.parts.books.touch();
    }
}

impl Desk {
    /// Opens it; the shutdown ends what it follows.
    #[must_use]
    pub fn new(parts: Parts, shutdown: CancellationToken) -> Arc<Self> {
        let (followed, calls, tasks) = (Mutex::default(), AtomicUsize::new(0), TaskTracker::new());
        Arc::new(Self { parts, followed, calls, tasks, shutdown })
    }

    /// Finishes or undoes what an earlier process or boot has left.
    pub async fn recover(self: &Arc<Self>) -> io::Result<()> {
        for claim in self.parts.preparer.collect().await {
            info!(%claim, "released what belongs to no claim");
        }
        for stored in self.parts.books.claims() {
            let runs = books::users(&stored);
            let mut is_used = Lifetime::of(&stored.object) == Lifetime::Kept;
            for run in &runs {
                is_used |= self.parts.runs.is_present(run)?;
                self.follow(run);
            }
            if is_used {
                if let Err(error) = self.parts.preparer.prepare(stored.claim.clone()).await {
                    warn!(claim = %stored.claim, %error, "a claim is not prepared");
                }
            } else if runs.is_empty() {
                self.release(&stored.claim.uid).await.unwrap_or_else(|error| {
                    warn!(claim = %stored.claim, %error, "a claim is not released");
                });
            }
        }
        self.parts.runs.sweep()
    }

    /// Serves those who wait whenever there are other devices, until the shutdown.
    pub async fn run(self: Arc<Self>) {
        let mut inventory = self.parts.inventory.clone();
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                Ok(()) = inventory.changed() => self.parts.books.serve(),
            }
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits until there has been nothing to do for so long.
    pub async fn idle(&self, long: Duration) {
        let mut changes = self.parts.books.changes();
        loop {
            changes.mark_unchanged();
            let is_idle = self.calls.load(Ordering::Relaxed) == 0 && self.parts.books.is_empty();
            let wait = if is_idle { long } else { Duration::MAX };
            // The books live as long as we do.
            if time::timeout(wait, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Says that somebody is being served, for as long as it has the answer.
    #[must_use]
    pub fn call(self: &Arc<Self>) -> Call {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.parts.books.touch();
        Call(Arc::clone(self))
    }

    /// Gives a run, or whoever keeps it, a claim. `tell` hears how many are before it, and whether it is still
    /// wanted.
    pub async fn acquire(
        self: &Arc<Self>,
        wanted: Wanted,
        run: Option<&RunId>,
        patience: Patience,
        tell: &mpsc::Sender<usize>,
    ) -> Result<Granted, Refusal> {
        if let Some(run) = run {
            if !self.is_present(run)? {
                return Err(Refusal::NoRun { run: run.to_string() });
            }
            self.follow(run);
        }
        let is_new = matches!(wanted, Wanted::New(_));
        let claim = match wanted {
            Wanted::Named(name) => self.parts.books.join(&name, run)?,
            Wanted::New(claim) => match self.parts.books.ask(*claim, run, patience)? {
                Asked::Granted(claim) => claim,
                Asked::Waiting(waiting) => self.wait(waiting, tell).await?,
            },
        };
        match self.parts.preparer.prepare(claim.clone()).await {
            Ok(devices) => {
                info!(%claim, run = run.map(RunId::as_str), "granted");
                Ok(Granted { claim, devices })
            }
            Err(error) => {
                if is_new && let Err(undo) = self.release(&claim.uid).await {
                    warn!(%claim, %undo, "a claim that cannot be prepared stays");
                }
                Err(error.into())
            }
        }
    }

    async fn wait(&self, waiting: Waiting, tell: &mpsc::Sender<usize>) -> Result<ClaimRef, Refusal> {
        let Waiting { ticket, mut answer, mut before } = waiting;
        loop {
            let place = *before.borrow_and_update();
            // One message that is not read yet is enough: the place is told again when it changes.
            let _ = tell.try_send(place);
            tokio::select! {
                answered = &mut answer => return answered.unwrap_or(Err(Refusal::Ending)),
                Ok(()) = before.changed() => {}
                () = tell.closed() => {
                    self.parts.books.give_up(ticket);
                    return Err(Refusal::Ending);
                }
                () = self.shutdown.cancelled() => {
                    self.parts.books.give_up(ticket);
                    return Err(Refusal::Ending);
                }
            }
        }
    }

    /// Waits until a run that has ended is over, or something that it has started is seen to go on.
    pub async fn end(self: &Arc<Self>, run: &RunId) -> Result<Phase, Refusal> {
        let Some(mut phase) = self.followed().get(run).cloned() else { return Ok(Phase::Over) };
        if self.is_present(run)? {
            return Ok(Phase::Present);
        }
        let ended = phase.wait_for(|phase| *phase != Phase::Present);
        match time::timeout(RELEASE_WITHIN, ended).await {
            Ok(Ok(phase)) => Ok(*phase),
            Ok(Err(_)) => Err(Refusal::Ending),
            Err(_) => Ok(Phase::Present),
        }
    }

    /// Deletes a claim that nobody uses.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), Refusal> {
        let claim = self.parts.books.unused(name)?;
        if self.is_mounted(vec![claim.uid.clone()]).await? {
            return Err(Refusal::InUse { claim, by: String::from("a container") });
        }
        self.release(&claim.uid).await
    }

    /// What there is.
    #[must_use]
    pub fn report(&self) -> Report {
        let Parts { driver, node, books, preparer, exhibit, inventory, .. } = &self.parts;
        let owners = preparer.owners();
        let found = Arc::clone(&inventory.borrow());
        let devices = found.devices.values().map(|device| DeviceReport {
            name: device.name.to_string(),
            source: device.source.to_string(),
            path: device.node.as_ref().map(|node| node.stable_path().display().to_string()),
            health: device.condition.health.as_str().to_owned(),
            message: device.condition.health.message().to_owned(),
            most_claims: device.sharing.claims(),
            owners: owners.get(&device.name).into_iter().flatten().map(ToString::to_string).collect(),
        });
        let metadata = match exhibit.as_ref().map(|exhibit| exhibit.mode()) {
            None => "off",
            Some(Mode::Fuse) => "fuse",
            Some(Mode::Files) => "files",
        };
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            driver: driver.to_string(),
            node: node.to_string(),
            metadata: metadata.to_owned(),
            devices: devices.collect(),
            claims: books.claims().iter().map(|stored| self.claim_report(stored)).collect(),
            waiting: books.waiting(),
        }
    }

    /// Tells of every change of what is reported.
    #[must_use]
    pub fn changes(&self) -> (watch::Receiver<()>, watch::Receiver<Arc<Found>>) {
        (self.parts.books.changes(), self.parts.inventory.clone())
    }

    /// Ends when the desk does.
    #[must_use]
    pub fn closing(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    fn claim_report(&self, stored: &Stored) -> ClaimReport {
        let devices = self.parts.preparer.devices_of(&stored.claim.uid).unwrap_or_default();
        ClaimReport {
            name: stored.claim.to_string(),
            goes_with_its_runs: Lifetime::of(&stored.object) == Lifetime::Run,
            runs: books::users(stored).iter().map(|run| self.run_report(run)).collect(),
            devices: devices.into_iter().map(GrantedDevice::from).collect(),
            object: stored.object.clone(),
        }
    }

    fn run_report(&self, run: &RunId) -> RunReport {
        let phase = self.followed().get(run).map(|phase| *phase.borrow());
        let by = if phase == Some(Phase::InUse) { UsedBy::Container } else { UsedBy::Run };
        RunReport { name: run.to_string(), by }
    }

    fn is_present(&self, run: &RunId) -> Result<bool, Refusal> {
        let present = self.parts.runs.is_present(run);
        present.map_err(|source| Refusal::Presence { run: run.clone(), source })
    }

    /// Follows a run to its end, unless somebody does.
    fn follow(self: &Arc<Self>, run: &RunId) {
        let mut followed = self.followed();
        if followed.contains_key(run) {
            return;
        }
        let (phase, seen) = watch::channel(Phase::Present);
        followed.insert(run.clone(), seen);
        let (desk, run) = (Arc::clone(self), run.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = desk.shutdown.clone().cancelled_owned() => {}
                () = desk.follow_to_the_end(&run, &phase) => {
                    desk.followed().remove(&run);
                    phase.send_replace(Phase::Over);
                }
            }
        });
    }

    async fn follow_to_the_end(self: &Arc<Self>, run: &RunId, phase: &watch::Sender<Phase>) {
        while let Err(error) = self.parts.runs.gone(run).await {
            warn!(%run, %error, "cannot follow a run");
            time::sleep(LOOK_EVERY).await;
        }
        while let Err(error) = self.leave(run, phase).await {
            warn!(%run, %error, "a run that is over is not released yet");
            time::sleep(LOOK_EVERY).await;
        }
        self.parts.runs.remove(run);
        // Others may have been killed before they could ask for anything.
        if let Err(error) = self.parts.runs.sweep() {
            warn!(%error, "what runs have left stays until the next one ends");
        }
    }

    /// Releases what a run has used. A container that its runtime's daemon has started may still use it.
    async fn leave(self: &Arc<Self>, run: &RunId, phase: &watch::Sender<Phase>) -> Result<(), Refusal> {
        loop {
            let claims = self.parts.books.last_used_by(run);
            if claims.is_empty() || !self.is_mounted(claims).await? {
                break;
            }
            phase.send_replace(Phase::InUse);
            self.parts.books.touch();
            time::sleep(LOOK_EVERY).await;
        }
        for claim in self.parts.books.last_used_by(run) {
            self.release(&claim).await?;
        }
        self.parts.books.leave(run)
    }

    /// First what containers could find, then the claim itself: whoever comes after a crash sees it, and goes on.
    async fn release(self: &Arc<Self>, claim: &ClaimUid) -> Result<(), Refusal> {
        if !self.parts.books.begin_release(claim) {
            return Ok(());
        }
        let (desk, claim) = (Arc::clone(self), claim.clone());
        // In a task of its own: who has begun has to end, whoever still wants to know.
        let work = self.tasks.spawn(async move {
            let released = desk.parts.preparer.unprepare(claim.clone()).await;
            desk.parts.books.end_release(&claim, released.map_err(Refusal::from))
        });
        work.await.map_err(|error| Refusal::Prepare(error.into()))?
    }

    /// Whether a container anywhere on this machine has mounted what it reads about one of these claims.
    async fn is_mounted(&self, claims: Vec<ClaimUid>) -> Result<bool, Refusal> {
        let Some(exhibit) = self.parts.exhibit.clone() else { return Ok(false) };
        let used = spawn_blocking(move || exhibit.used(&claims)).await;
        let used = used.map_err(|error| Refusal::Prepare(error.into()))?;
        Ok(!used.map_err(|error| Refusal::Prepare(error.into()))?.is_empty())
    }

    /// The map is whole at every moment, so a panic elsewhere does not spoil it.
    fn followed(&self) -> MutexGuard<'_, BTreeMap<RunId, watch::Receiver<Phase>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<PreparedDevice> for GrantedDevice {
    fn from(device: PreparedDevice) -> Self {
        Self {
            request: device.request.to_string(),
            device: device.device.to_string(),
            cdi_device_id: device.cdi_id.to_string(),
        }
    }
}
