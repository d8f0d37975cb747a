//! Where claims are asked for: allocated, prepared, followed until their runs are over, and released.

mod acquire;
mod engines;
mod follow;
mod gather;
mod tell;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    time,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use self::follow::Seen;
use super::{
    books::Books,
    manifest::Lifetime,
    presence::{RunId, Runs},
    refusal::Refusal,
    setup::{Setup, Stamp, Terms, Work},
    users,
};
use crate::{
    claims::{ClaimRef, Folder, Stored},
    device::{DriverName, NodeName},
    discover::Found,
    exhibit::Exhibit,
    prepare::{PreparedDevice, Preparer},
};

/// How long whoever has ended its run waits for the release.
const RELEASE_WITHIN: Duration = Duration::from_secs(20);

/// How long nobody is served for the sake of runs that were over before.
const RECOVER_WITHIN: Duration = Duration::from_secs(1);

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

/// Settings that are not those that somebody wants.
#[derive(Debug)]
pub struct Kept {
    /// Who keeps them.
    pub process: u32,
    /// The configuration.
    pub config: PathBuf,
    /// All of them.
    pub stamp: Stamp,
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
    /// What the daemon was started with.
    pub setup: Setup,
}

/// Serves all who ask.
pub struct Desk {
    parts: Parts,
    followed: Mutex<BTreeMap<RunId, watch::Receiver<Phase>>>,
    /// What containers have mounted.
    seen: AsyncMutex<Seen>,
    opened: Instant,
    /// Who may have waited when an earlier daemon ended; all of them have come back or had their time.
    awaited: Mutex<BTreeSet<RunId>>,
    gathered: CancellationToken,
    /// How many are being served, and how many only look.
    served: AtomicUsize,
    watching: AtomicUsize,
    /// Nobody else is served: it has been idle, or somebody wants another daemon.
    leave: CancellationToken,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// What somebody wants who is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Something is to be done.
    Service,
    /// To look.
    View,
}

/// Somebody who is there.
pub struct Call {
    desk: Arc<Desk>,
    wish: Wish,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.desk.count(self.wish).fetch_sub(1, Ordering::Relaxed);
        self.desk.parts.books.touch();
    }
}

impl Desk {
    /// Opens it; the shutdown ends what it follows.
    #[must_use]
    pub fn new(parts: Parts, shutdown: CancellationToken) -> Arc<Self> {
        let (followed, seen) = (Mutex::default(), AsyncMutex::default());
        let (awaited, gathered) = (Mutex::default(), CancellationToken::new());
        let (served, watching) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (opened, leave, tasks) = (Instant::now(), CancellationToken::new(), TaskTracker::new());
        Arc::new(Self {
            parts,
            followed,
            seen,
            opened,
            awaited,
            gathered,
            served,
            watching,
            leave,
            tasks,
            shutdown,
        })
    }

    /// Finishes or undoes what an earlier process or boot has left.
    pub async fn recover(self: &Arc<Self>) -> io::Result<()> {
        for claim in self.parts.preparer.collect().await {
            info!(%claim, "released what belongs to no claim");
        }
        let mut over = Vec::new();
        for stored in self.parts.books.claims() {
            let runs = users::of(&stored);
            for run in &runs {
                self.follow(run);
            }
            if users::is_used(&stored, &self.parts.runs)? {
                if let Err(error) = self.parts.preparer.prepare(stored.claim.clone()).await {
                    warn!(claim = %stored.claim, %error, "a claim is not prepared");
                }
            } else if runs.is_empty() {
                let is_over = |stored: &Stored| users::of(stored).is_empty();
                self.release(&stored.claim.uid, is_over).await.unwrap_or_else(|error| {
                    warn!(claim = %stored.claim, %error, "a claim is not released");
                });
            } else {
                over.extend(runs);
            }
        }
        // Before anybody asks for the same devices, unless it takes longer; whoever follows them says what is wrong.
        let released = join_all(over.iter().map(|run| self.end(run)));
        let _ = time::timeout(RECOVER_WITHIN, released).await;
        self.sweep()?;
        self.gather()
    }

    fn sweep(&self) -> io::Result<()> {
        let followed = self.followed();
        self.parts.runs.sweep(|run| followed.keys().any(|followed| followed.as_str() == run))
    }

    /// Serves those who wait whenever there are other devices, until the shutdown.
    pub async fn run(self: Arc<Self>) {
        let mut inventory = self.parts.inventory.clone();
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                Ok(()) = inventory.changed() => {
                    self.parts.books.serve();
                    self.prepare_kept().await;
                }
            }
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Prepares what is kept and could not be prepared yet: its device may just have come.
    async fn prepare_kept(&self) {
        let Parts { books, preparer, .. } = &self.parts;
        for stored in books.claims() {
            let is_kept = Lifetime::of(&stored.object) == Lifetime::Kept;
            if is_kept && preparer.devices_of(&stored.claim.uid).is_none() {
                match preparer.prepare(stored.claim.clone()).await {
                    Ok(_) => info!(claim = %stored.claim, "prepared"),
                    Err(error) => warn!(claim = %stored.claim, %error, "a claim is not prepared"),
                }
                books.touch();
            }
        }
    }

    /// Waits until there has been nothing to do for so long.
    pub async fn idle(&self, long: Duration) {
        let mut changes = self.parts.books.changes();
        loop {
            changes.mark_unchanged();
            let is_idle = self.work() == Work::None && self.watching.load(Ordering::Relaxed) == 0;
            let wait = if is_idle { long } else { Duration::MAX };
            tokio::select! {
                () = self.leave.cancelled() => return,
                // The books live as long as we do.
                changed = time::timeout(wait, changes.changed()) => if changed.is_err() {
                    // Whoever comes now waits for the next one.
                    self.leave.cancel();
                    return;
                },
            }
        }
    }

    /// Whether there is something to do for others than those who only look.
    fn work(&self) -> Work {
        let is_idle = self.served.load(Ordering::Relaxed) == 0 && self.parts.books.is_empty();
        if is_idle { Work::None } else { Work::Some }
    }

    /// Whether somebody can be served who wants a daemon with these settings. Asked before it is counted.
    pub fn meet(&self, wanted: Option<&Stamp>) -> Result<Option<Kept>, Refusal> {
        if self.leave.is_cancelled() {
            return Err(Refusal::Ending);
        }
        let Setup { stamp, config, .. } = &self.parts.setup;
        match self.parts.setup.meet(wanted, self.work()) {
            Terms::Same => Ok(None),
            Terms::Kept => {
                let (process, config, stamp) = (std::process::id(), config.clone(), stamp.clone());
                Ok(Some(Kept { process, config, stamp }))
            }
            Terms::Others => {
                info!("making way for a daemon with other settings");
                self.leave.cancel();
                Err(Refusal::Ending)
            }
        }
    }

    /// Says that somebody is there, for as long as it has the answer.
    #[must_use]
    pub fn call(self: &Arc<Self>, wish: Wish) -> Call {
        self.count(wish).fetch_add(1, Ordering::Relaxed);
        self.parts.books.touch();
        Call { desk: Arc::clone(self), wish }
    }

    fn count(&self, wish: Wish) -> &AtomicUsize {
        match wish {
            Wish::Service => &self.served,
            Wish::View => &self.watching,
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

    /// Deletes a claim that nobody uses. Nobody can join it while that is looked at.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), Refusal> {
        let claim = self.parts.books.begin_delete(name)?;
        let desk = Arc::clone(self);
        // In a task of its own: who has begun has to end, whoever still wants to know.
        let work = self.tasks.spawn(async move {
            let uid = claim.uid.clone();
            match desk.is_mounted(std::slice::from_ref(&uid)).await {
                Ok(false) => desk.take_back(&uid).await,
                Ok(true) => desk.parts.books.end_release(&uid, Err(Refusal::Mounted { claim })),
                Err(error) => desk.parts.books.end_release(&uid, Err(error)),
            }
        });
        work.await.map_err(|error| Refusal::Prepare(error.into()))?
    }

    /// Ends when the desk does.
    #[must_use]
    pub fn closing(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    fn is_present(&self, run: &RunId) -> Result<bool, Refusal> {
        let present = self.parts.runs.is_present(run);
        present.map_err(|source| Refusal::Presence { run: run.clone(), source })
    }

    /// The map is whole at every moment, so a panic elsewhere does not spoil it.
    fn followed(&self) -> MutexGuard<'_, BTreeMap<RunId, watch::Receiver<Phase>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
