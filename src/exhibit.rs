//! What is prepared, shown: documents in the live file system, and anchors that containers mount.
//!
//! [`Exhibit::show`] makes the documents of a claim readable before anybody is told that it is prepared.
//! [`Exhibit::hide`] marks them for removal, which [`Exhibit::clear`] does: nobody waits for that.
//! [`Exhibit::refresh`] makes new versions of those that a change of the inventory concerns, and
//! [`Exhibit::serve`] puts the tree, which is complete by then, before the kernel.

mod link;
mod paths;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};
use tracing::{error, info, warn};

use self::link::{From, Link, Taken};
use crate::{
    claims::{Allocation, ClaimRef},
    device::{ClaimUid, Device, DeviceName, DriverName, NodeName, PodClaimName, RequestName},
    discover::Found,
    fs::{Live, Mirror, Step, Store, Tree},
    hold::{self, Client, Places},
    metadata::{self, About, Shown},
};

/// For people who look around on the node.
const README: &str = "\
claims/NAMESPACE/CLAIM/REQUEST/DRIVER-metadata.json   what a container reads about its devices
by-uid/UID/REQUEST/DRIVER-metadata.json               the same, by the UID of the claim
devices/POOL/DEVICE.json                              every device of this node, with its health and owners

What is opened is one whole version; what is opened next is the newest. poll(POLLPRI) on an open file tells when there
is a newer one, and the attribute user.claimfs.generation which one it is.
";

/// Why something cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system cannot be written or served.
    #[error(transparent)]
    Fs(#[from] crate::fs::Error),
    /// The holder cannot be reached, or refuses.
    #[error("device metadata: {0}")]
    Hold(#[from] hold::Error),
    /// There is no holder, and none can be started.
    #[error("cannot start a holder for the file system: {0}")]
    Start(#[source] io::Error),
}

/// How containers read about their devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// From the daemon, through the kernel.
    Fuse,
    /// From plain files, which are mounted anew for each version.
    Files,
}

/// Which claims have which device.
pub type Owners = BTreeMap<DeviceName, Vec<ClaimRef>>;

/// A claim that is shown.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The claim.
    pub claim: ClaimRef,
    /// What the claim is called in its pod, if it was made for one pod.
    pub pod_claim_name: Option<PodClaimName>,
    /// Its devices.
    pub allocations: Vec<Allocation>,
}

impl Prepared {
    /// Each request once, in order.
    fn requests(&self) -> Vec<&RequestName> {
        let mut requests: Vec<&RequestName> = Vec::new();
        for allocation in &self.allocations {
            if !requests.contains(&&allocation.request) {
                requests.push(&allocation.request);
            }
        }
        requests
    }
}

/// Everything that is shown.
pub struct Exhibit {
    driver: DriverName,
    pool: NodeName,
    places: Places,
    mode: Mode,
    live: Arc<Live>,
    /// Held while anything is shown, hidden or served: these do not mix.
    state: Mutex<State>,
    /// Claims that are to be removed. Apart from the rest: who adds one does not wait for others to be removed.
    leaving: Mutex<BTreeSet<ClaimUid>>,
    hidden: Notify,
}

/// What changes.
#[derive(Default)]
struct State {
    prepared: BTreeMap<ClaimUid, Arc<Prepared>>,
    /// There once the tree is served.
    link: Option<Link>,
    /// Claims about which nothing is known, but whose containers may still run.
    spared: BTreeSet<ClaimUid>,
}

impl Exhibit {
    /// With nothing in it yet.
    pub fn new(driver: DriverName, pool: NodeName, places: Places, mode: Mode) -> Result<Self, Error> {
        let store = Store::open(places.versions.clone())?;
        let live = match mode {
            Mode::Fuse => Live::new(store),
            Mode::Files => Live::mirrored(store, Mirror::open(places.tree.clone())?),
        };
        for folder in ["by-uid", "claims", "devices"] {
            live.make_folder(&[Step::new(folder)])?;
        }
        live.publish(&[Step::new("README")], |_| README.as_bytes().to_vec())?;
        let live = Arc::new(live);
        let (state, leaving, hidden) = (Mutex::default(), Mutex::default(), Notify::new());
        Ok(Self { driver, pool, places, mode, live, state, leaving, hidden })
    }

    /// How containers read.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What a runtime mounts where, for a request of a claim.
    #[must_use]
    pub fn mount(&self, prepared: &Prepared, request: &RequestName) -> (PathBuf, PathBuf) {
        let inside = paths::in_container(prepared, request, &self.driver);
        (self.places.anchor(&prepared.claim.uid, request), inside)
    }

    /// Makes the documents of a claim readable; in containers, too, once the tree is served.
    pub fn show(&self, prepared: Prepared, found: &Found) -> Result<(), Error> {
        let mut state = self.state();
        if self.leaving().contains(&prepared.claim.uid) {
            self.clear_all(&mut state)?;
        }
        let prepared = Arc::new(prepared);
        self.publish(&prepared, found)?;
        state.prepared.insert(prepared.claim.uid.clone(), Arc::clone(&prepared));
        match &mut state.link {
            Some(link) => {
                self.live.settle();
                self.anchor(link, &prepared)
            }
            None => Ok(()),
        }
    }

    /// Lets the documents of a claim go; there need not be any. A start without it clears them, too.
    pub fn hide(&self, claim: &ClaimUid) {
        self.leaving().insert(claim.clone());
        self.hidden.notify_one();
    }

    /// Waits until there is something to clear.
    pub async fn hidden(&self) {
        self.hidden.notified().await;
    }

    /// Removes what is hidden. What cannot be removed now stays for the next time.
    pub fn clear(&self) -> Result<(), Error> {
        self.clear_all(&mut self.state())
    }

    fn clear_all(&self, state: &mut State) -> Result<(), Error> {
        let claims: Vec<ClaimUid> = self.leaving().iter().cloned().collect();
        if claims.is_empty() {
            return Ok(());
        }
        if let Some(link) = &mut state.link {
            link.drop_anchors(&self.places, &claims)?;
        }
        for claim in &claims {
            if let Some(prepared) = state.prepared.remove(claim) {
                self.live.remove(&paths::by_name(&prepared.claim), 1)?;
            }
            self.live.remove(&paths::by_uid(claim), 1)?;
            self.leaving().remove(claim);
        }
        Ok(())
    }

    /// Makes new versions of what a change of the inventory concerns.
    pub fn refresh(&self, found: &Found, owners: &Owners) -> Result<(), Error> {
        let mut state = self.state();
        let all: Vec<Arc<Prepared>> = state.prepared.values().cloned().collect();
        // One that fails does not keep the others from being right.
        let mut outcome = Ok(());
        for prepared in &all {
            outcome = outcome.and(self.publish(prepared, found));
            if let Some(link) = state.link.as_mut().filter(|link| link.has_to_follow()) {
                outcome = outcome.and(self.anchor(link, prepared));
            }
        }
        drop(state);
        outcome?;
        let folder = paths::devices(&self.pool);
        self.live.make_folder(&folder)?;
        self.refresh_devices(found, found.devices.keys(), owners)?;
        for entry in self.live.entries(Tree::inode(&folder)).unwrap_or_default().iter().skip(2) {
            let name = entry.name.strip_suffix(".json").and_then(|name| name.parse().ok());
            if let Some(gone) = name.filter(|name| !found.devices.contains_key(name)) {
                self.live.remove(&paths::of_device(&self.pool, &gone), 2)?;
            }
        }
        Ok(())
    }

    /// Makes new versions for devices that have other owners.
    pub fn refresh_devices<'a>(
        &self,
        found: &Found,
        names: impl IntoIterator<Item = &'a DeviceName>,
        owners: &Owners,
    ) -> Result<(), Error> {
        for device in names.into_iter().filter_map(|name| found.devices.get(name)) {
            let owners = owners.get(&device.name).map(Vec::as_slice).unwrap_or_default();
            self.live.publish(&paths::of_device(&self.pool, &device.name), |generation| {
                metadata::device_document(&self.driver, &self.pool, device, owners, generation)
            })?;
        }
        Ok(())
    }

    /// Puts the tree before the kernel: goes on with the connection of the one before us, or mounts afresh.
    /// Answers with what tells that the mount has gone away.
    pub fn serve(&self) -> Result<oneshot::Receiver<io::Result<()>>, Error> {
        let mut state = self.state();
        let (link, ended) = match self.mode {
            Mode::Fuse => self.serve_live(&mut state)?,
            Mode::Files => {
                let (mut link, ended) = Link::swap(&self.places)?;
                report(self.anchor_all(&mut link, &state));
                (link, ended)
            }
        };
        if state.spared.is_empty() {
            self.live.sweep()?;
        }
        state.link = Some(link);
        Ok(ended)
    }

    fn serve_live(&self, state: &mut State) -> Result<(Link, link::Ended), Error> {
        // Where ours has just ended, there is nothing to take.
        let from = if state.link.is_some() { From::Mount } else { From::Predecessor };
        let (mut link, mut ended, mut taken) = Link::serve(&self.live, &self.places, from)?;
        let mut anchored = self.anchor_all(&mut link, state);
        if let (Err(error), Taken::Over) = (&anchored, taken) {
            warn!(%error, "what was taken over is of no use; mounting afresh");
            (link, ended, taken) = Link::serve(&self.live, &self.places, From::Mount)?;
            anchored = self.anchor_all(&mut link, state);
        }
        report(anchored);
        if taken == Taken::New {
            for unhealed in link.ask(&self.places, Client::unhealed)? {
                warn!(%unhealed, "a container reads from a connection that is dead; restart it");
            }
        }
        Ok((link, ended))
    }

    /// Leaves what is mounted for these claims as it is.
    pub fn spare(&self, claims: impl IntoIterator<Item = ClaimUid>) {
        self.state().spared.extend(claims);
    }

    /// Finds or starts a holder in the place of one that has died, and gives it what that one kept.
    pub fn restore(&self) -> Result<(), Error> {
        let mut state = self.state();
        let Some(mut link) = state.link.take() else { return Ok(()) };
        let restored = link.reconnect(&self.places).and_then(|()| self.anchor_all(&mut link, &state));
        state.link = Some(link);
        restored?;
        info!("there is a holder again");
        self.clear_all(&mut state)
    }

    /// Those of some claims whose documents a container has mounted.
    pub fn used(&self, claims: &[ClaimUid]) -> Result<Vec<ClaimUid>, Error> {
        let mut used = Vec::new();
        if let Some(link) = &mut self.state().link {
            for claims in claims.chunks(link::AT_ONCE) {
                used.extend(link.ask(&self.places, |holder| holder.used(claims.to_vec()))?);
            }
        }
        Ok(used)
    }

    /// Ends containers of some claims that were made and that nobody will start; answers with the claims that had one.
    pub fn end_unstarted(&self, claims: &[ClaimUid]) -> Result<Vec<ClaimUid>, Error> {
        match &mut self.state().link {
            Some(link) => link.ask(&self.places, |holder| holder.end_unstarted(claims.to_vec())),
            None => Ok(Vec::new()),
        }
    }

    /// What those are called that keep a run open.
    pub fn keepers(&self, run: &ClaimUid) -> Result<Vec<String>, Error> {
        match &mut self.state().link {
            Some(link) => link.ask(&self.places, |holder| holder.keepers(run.clone())),
            None => Ok(Vec::new()),
        }
    }

    /// Takes everything away, and ends the holder: nothing is shown any more.
    pub fn end(&self) -> Result<(), Error> {
        match self.state().link.take() {
            Some(link) => link.end(),
            None => Ok(()),
        }
    }

    /// Where its holder listens.
    #[must_use]
    pub fn holder_socket(&self) -> &Path {
        &self.places.socket
    }

    /// Anchors for all that is shown, and for nothing else. One that fails does not keep the others from it.
    fn anchor_all(&self, link: &mut Link, state: &State) -> Result<(), Error> {
        let mut outcome = Ok(());
        self.live.settle();
        for prepared in state.prepared.values() {
            outcome = outcome.and(self.anchor(link, prepared));
        }
        let is_known = |claim: &ClaimUid| state.prepared.contains_key(claim) || state.spared.contains(claim);
        let mut unknown = link.ask(&self.places, Client::claims)?;
        unknown.retain(|claim| !is_known(claim));
        for claim in &unknown {
            warn!(%claim, "taking away what is mounted for a claim that is not prepared");
        }
        link.drop_anchors(&self.places, &unknown)?;
        outcome
    }

    fn anchor(&self, link: &mut Link, prepared: &Prepared) -> Result<(), Error> {
        let claim = &prepared.claim.uid;
        for request in prepared.requests() {
            let path = paths::of_request(claim, request, &self.driver);
            link.anchor(&self.places, &self.live, (claim, request, &self.driver), &path)?;
        }
        Ok(())
    }

    fn publish(&self, prepared: &Prepared, found: &Found) -> Result<(), Error> {
        let Prepared { claim, pod_claim_name, allocations } = prepared;
        let about =
            About { claim, pod_claim_name: pod_claim_name.as_ref(), driver: &self.driver, pool: &self.pool };
        for request in prepared.requests() {
            let devices: Vec<Shown<'_>> = allocations
                .iter()
                .filter(|allocation| allocation.request == *request)
                .map(|allocation| (allocation, found.devices.get(&allocation.device)))
                .collect::<Vec<(&Allocation, Option<&Device>)>>();
            self.live.publish(&paths::of_request(&claim.uid, request, &self.driver), |generation| {
                metadata::request_document(about, &devices, generation)
            })?;
        }
        Ok(self.live.link(&paths::by_name(claim), paths::from_name_to_uid(&claim.uid))?)
    }

    /// As for the state.
    fn leaving(&self) -> MutexGuard<'_, BTreeSet<ClaimUid>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in it is whole at every moment, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The others are right; to give up would help nobody.
fn report(anchored: Result<(), Error>) {
    if let Err(error) = anchored {
        error!(%error, "not every container can read about its devices");
    }
}
