//! What is prepared, shown: documents in the live file system, and anchors that containers mount.
//!
//! [`Exhibit::show`] makes the documents of a claim readable before anybody is told that it is prepared,
//! [`Exhibit::hide`] takes them away, and [`Exhibit::refresh`] makes new versions of those that a change of
//! the inventory concerns. [`Exhibit::serve`] puts the tree, which is complete by then, before the kernel.

mod link;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;
use tracing::{error, info, warn};

use self::link::Link;
use crate::{
    claims::{Allocation, ClaimRef},
    device::{ClaimUid, Device, DeviceName, DriverName, NodeName, PodClaimName, RequestName},
    discover::Found,
    fs::{Connection, Live, Server, Step, Store, Tree},
    hold::{self, Client, Opener, Places},
    metadata::{self, About, Shown},
};

/// Where containers find what concerns them; upstream's readers know no other place.
const IN_CONTAINERS: &str = "/var/run/kubernetes.io/dra-device-attributes";

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

/// How many holders may die on us while we ask.
const ATTEMPTS: usize = 5;

/// Where a connection is to come from.
#[derive(Clone, Copy)]
enum How {
    TakeOver,
    Afresh,
}

/// Where it came from.
#[derive(Debug, Clone, Copy)]
enum Taken {
    Over,
    New,
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
    live: Arc<Live>,
    prepared: Mutex<BTreeMap<ClaimUid, Arc<Prepared>>>,
    /// There once the tree is served.
    link: Mutex<Option<Link>>,
    /// Claims about which nothing is known, but whose containers may still run.
    spared: Mutex<BTreeSet<ClaimUid>>,
    /// Held while anything is shown, hidden or served: these do not mix.
    work: Mutex<()>,
}

impl Exhibit {
    /// With nothing in it yet.
    pub fn new(driver: DriverName, pool: NodeName, places: Places) -> Result<Self, Error> {
        let live = Arc::new(Live::new(Store::open(places.versions.clone())?));
        for folder in ["by-uid", "claims", "devices"] {
            live.make_folder(&[Step::new(folder)]);
        }
        live.publish(&[Step::new("README")], |_| README.as_bytes().to_vec())?;
        Ok(Self {
            driver,
            pool,
            places,
            live,
            prepared: Mutex::default(),
            link: Mutex::default(),
            spared: Mutex::default(),
            work: Mutex::default(),
        })
    }

    /// What a runtime mounts where, for a request of a claim.
    #[must_use]
    pub fn mount(&self, prepared: &Prepared, request: &RequestName) -> (PathBuf, PathBuf) {
        let of = match &prepared.pod_claim_name {
            Some(name) => Path::new("resourceclaimtemplates").join(name.as_str()),
            None => Path::new("resourceclaims").join(prepared.claim.name.as_str()),
        };
        let inside = Path::new(IN_CONTAINERS).join(of).join(request.as_str()).join(self.file_name());
        (self.places.anchor(&prepared.claim.uid, request), inside)
    }

    /// Makes the documents of a claim readable; in containers, too, once the tree is served.
    pub fn show(&self, prepared: Prepared, found: &Found) -> Result<(), Error> {
        let _work = lock(&self.work);
        let prepared = Arc::new(prepared);
        self.publish(&prepared, found)?;
        lock(&self.prepared).insert(prepared.claim.uid.clone(), Arc::clone(&prepared));
        match &mut *lock(&self.link) {
            Some(link) => {
                self.live.settle();
                self.anchor(link, &prepared)
            }
            None => Ok(()),
        }
    }

    /// Takes the documents of a claim away; there need not be any.
    pub fn hide(&self, claim: &ClaimUid) -> Result<(), Error> {
        let _work = lock(&self.work);
        if let Some(link) = &mut *lock(&self.link) {
            link.ask(&self.places, |holder| holder.drop_anchors(claim.clone()))?;
        }
        let prepared = lock(&self.prepared).remove(claim);
        self.live.remove(&by_uid(claim), 1)?;
        if let Some(prepared) = prepared {
            self.live.remove(&by_name(&prepared.claim), 1)?;
        }
        Ok(())
    }

    /// Makes new versions of what a change of the inventory concerns.
    pub fn refresh(&self, found: &Found, owners: &Owners) -> Result<(), Error> {
        let _work = lock(&self.work);
        let all: Vec<Arc<Prepared>> = lock(&self.prepared).values().cloned().collect();
        // One that fails does not keep the others from being right.
        let published: Vec<_> = all.iter().map(|prepared| self.publish(prepared, found)).collect();
        published.into_iter().collect::<Result<(), _>>()?;
        let folder = [Step::new("devices"), Step::new(self.pool.as_str())];
        self.live.make_folder(&folder);
        self.refresh_devices(found, found.devices.keys(), owners)?;
        let pool = Tree::inode(&folder);
        for entry in self.live.entries(pool).unwrap_or_default().iter().skip(2) {
            let name = entry.name.strip_suffix(".json").and_then(|name| name.parse().ok());
            if let Some(gone) = name.filter(|name| !found.devices.contains_key(name)) {
                self.live.remove(&self.device_path(&gone), 2)?;
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
            self.live.publish(&self.device_path(&device.name), |generation| {
                metadata::device_document(&self.driver, &self.pool, device, owners, generation)
            })?;
        }
        Ok(())
    }

    /// Puts the tree before the kernel: goes on with the connection of the one before us, or mounts afresh.
    /// Answers with what tells that the mount has gone away.
    pub fn serve(&self) -> Result<oneshot::Receiver<io::Result<()>>, Error> {
        let _work = lock(&self.work);
        let mut place = lock(&self.link);
        // Where ours has just ended, there is nothing to take.
        let how = if place.is_some() { How::Afresh } else { How::TakeOver };
        let (mut link, mut ended, taken) = self.start(how)?;
        let mut anchored = self.anchor_all(&mut link);
        if let (Err(error), Taken::Over) = (&anchored, taken) {
            warn!(%error, "what was taken over is of no use; mounting afresh");
            (link, ended, _) = self.start(How::Afresh)?;
            anchored = self.anchor_all(&mut link);
        }
        if let Err(error) = anchored {
            // The others are right; to give up would help nobody.
            error!(%error, "not every container can read about its devices");
        }
        if lock(&self.spared).is_empty() {
            self.live.sweep()?;
        }
        *place = Some(link);
        Ok(ended)
    }

    /// Serves a connection.
    fn start(&self, how: How) -> Result<(Link, oneshot::Receiver<io::Result<()>>, Taken), Error> {
        let (client, device, greeting) = self.obtain(how)?;
        let taken = if greeting.is_some() { Taken::Over } else { Taken::New };
        let copy = device.try_clone().map_err(Error::Start)?;
        let Server { ended, greeting } = Server::start(&self.live, Connection { device, greeting })?;
        client.keep(greeting.clone(), None)?;
        info!(mount_point = %self.places.mount_point.display(), ?taken, "the metadata are served");
        let opener = Opener::start().map_err(Error::Start)?;
        Ok((Link { client, opener, device: copy, greeting }, ended, taken))
    }

    /// Leaves what is mounted for these claims as it is.
    pub fn spare(&self, claims: impl IntoIterator<Item = ClaimUid>) {
        lock(&self.spared).extend(claims);
    }

    /// A holder, and the connection that it has for us. One that is just dying is not the last one.
    fn obtain(&self, how: How) -> Result<(Client, OwnedFd, Option<Vec<u8>>), Error> {
        let mut attempt = 1;
        loop {
            let client = link::connect(&self.places)?;
            let taken = match how {
                How::TakeOver => client.take(),
                How::Afresh => Ok(None),
            };
            let obtained = match taken {
                Ok(Some((device, greeting))) => Ok((device, Some(greeting))),
                Ok(None) => client.mount().map(|device| (device, None)),
                Err(error) => Err(error),
            };
            match obtained {
                Ok((device, greeting)) => return Ok((client, device, greeting)),
                Err(error) if error.is_the_line() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Finds or starts a holder in the place of one that has died, and gives it what that one kept.
    pub fn restore(&self) -> Result<(), Error> {
        let _work = lock(&self.work);
        let mut place = lock(&self.link);
        let Some(link) = &mut *place else { return Ok(()) };
        link.client = link::connect(&self.places)?;
        link.client.keep(link.greeting.clone(), Some(link.device.as_fd()))?;
        self.anchor_all(link)?;
        info!("there is a holder again");
        Ok(())
    }

    /// Where its holder listens.
    #[must_use]
    pub fn holder_socket(&self) -> &Path {
        &self.places.socket
    }

    /// Anchors for all that is shown, and for nothing else. One that fails does not keep the others from it.
    fn anchor_all(&self, link: &mut Link) -> Result<(), Error> {
        let all: Vec<Arc<Prepared>> = lock(&self.prepared).values().cloned().collect();
        let mut outcome = Ok(());
        self.live.settle();
        for prepared in &all {
            outcome = outcome.and(self.anchor(link, prepared));
        }
        for claim in link.ask(&self.places, Client::claims)? {
            let is_known = all.iter().any(|prepared| prepared.claim.uid == claim);
            if !is_known && !lock(&self.spared).contains(&claim) {
                warn!(%claim, "taking away what is mounted for a claim that is not prepared");
                link.ask(&self.places, |holder| holder.drop_anchors(claim.clone()))?;
            }
        }
        outcome
    }

    fn anchor(&self, link: &mut Link, prepared: &Prepared) -> Result<(), Error> {
        for request in prepared.requests() {
            let path = self.path(&by_uid(&prepared.claim.uid), request);
            let names: PathBuf = path.iter().map(Step::name).collect();
            let file = link.open(&self.places.mount_point.join(names))?;
            let inode = Tree::inode(&path).0;
            link.ask(&self.places, |holder| {
                holder.anchor(prepared.claim.uid.clone(), request.clone(), inode, file.as_fd())
            })?;
        }
        Ok(())
    }

    fn publish(&self, prepared: &Prepared, found: &Found) -> Result<(), Error> {
        let about = About {
            claim: &prepared.claim,
            pod_claim_name: prepared.pod_claim_name.as_ref(),
            driver: &self.driver,
            pool: &self.pool,
        };
        for request in prepared.requests() {
            let devices: Vec<Shown<'_>> = prepared
                .allocations
                .iter()
                .filter(|allocation| allocation.request == *request)
                .map(|allocation| (allocation, found.devices.get(&allocation.device)))
                .collect::<Vec<(&Allocation, Option<&Device>)>>();
            for folder in [by_uid(&prepared.claim.uid), by_name(&prepared.claim)] {
                self.live.publish(&self.path(&folder, request), |generation| {
                    metadata::request_document(about, &devices, generation)
                })?;
            }
        }
        Ok(())
    }

    fn path(&self, folder: &[Step], request: &RequestName) -> Vec<Step> {
        [folder, &[Step::new(request.as_str()), Step::new(self.file_name())]].concat()
    }

    fn device_path(&self, device: &DeviceName) -> [Step; 3] {
        [Step::new("devices"), Step::new(self.pool.as_str()), Step::new(format!("{device}.json"))]
    }

    fn file_name(&self) -> String {
        format!("{}-metadata.json", self.driver)
    }
}

fn by_uid(claim: &ClaimUid) -> Vec<Step> {
    vec![Step::new("by-uid"), Step::new(claim.as_str())]
}

/// A name can be that of another claim tomorrow.
fn by_name(claim: &ClaimRef) -> Vec<Step> {
    vec![
        Step::new("claims"),
        Step::new(claim.namespace.as_str()),
        Step::of(claim.name.as_str(), claim.uid.as_str()),
    ]
}

/// What is in it is whole at every moment, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
