use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Mutex,
};

use k8s_openapi::api::resource::v1::ResourceClaimStatus;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::{
    claims::ClaimObject,
    config::Config,
    discover::{self, Roots},
};

/// Claims as a cluster would have them, by name; can be made to wait.
#[derive(Default, Clone)]
struct Cluster {
    claims: Arc<Mutex<BTreeMap<String, ClaimObject>>>,
    /// Names that pods use.
    named: Arc<Mutex<BTreeSet<String>>>,
    gate: Option<Arc<Notify>>,
}

impl Cluster {
    fn allocate(&self, claim: &ClaimRef, results: &serde_json::Value) {
        let status = json!({"allocation": {"devices": {"results": results}}});
        let status: ResourceClaimStatus = serde_json::from_value(status).unwrap();
        let mut object = ClaimObject { status, ..ClaimObject::default() };
        object.metadata.uid = claim.uid.to_string();
        self.claims.lock().unwrap().insert(claim.to_string(), object);
    }
}

impl Claims for Cluster {
    async fn get(&self, claim: &ClaimRef) -> Result<ClaimObject, claims::Error> {
        if let Some(gate) = &self.gate {
            gate.notified().await;
        }
        let found = self.claims.lock().unwrap().get(&claim.to_string()).cloned();
        found.ok_or_else(|| claims::Error::NotFound { claim: claim.clone() })
    }

    async fn is_named(&self, claim: &ClaimRef, _: &NodeName) -> Result<bool, claims::Error> {
        Ok(self.named.lock().unwrap().contains(claim.name.as_str()))
    }
}

/// A node whose folders outlive its processes.
struct Node {
    folder: TempDir,
    cluster: Cluster,
}

const CONFIG: &str = "
sources:
- {name: gpu, simulated: {count: 4}}
- {name: kvm, simulated: {count: 1}, shared: {max: 2}}
";

impl Node {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("boot"), "boot-1\n").unwrap();
        Self { folder, cluster: Cluster::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// A process that starts on this node.
    fn start(&self) -> Preparer<Cluster> {
        let config = Config::parse(Path::new("test"), CONFIG).unwrap();
        let found = discover::scan(&config, &Roots::default());
        let settings = Settings {
            driver: config.driver,
            node: "n1".parse().unwrap(),
            cdi_folder: self.path("cdi"),
            journal_folder: self.path("claims"),
            boot: BootId::read(&self.path("boot")).unwrap(),
            exhibit: None,
        };
        let (_, inventory) = watch::channel(Arc::new(found));
        Preparer::recover(settings, self.cluster.clone(), inventory).unwrap()
    }

    fn files(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A claim that has these devices, one a request.
    fn claim(&self, uid: &str, devices: &[&str]) -> ClaimRef {
        let claim = ClaimRef {
            namespace: "default".parse().unwrap(),
            name: format!("claim-{uid}").parse().unwrap(),
            uid: uid.parse().unwrap(),
        };
        let result = |(index, device): (usize, &&str)| {
            let mut result = json!({"request": format!("r{index}"), "driver": "claimfs.dev", "pool": "n1"});
            let (device, admin) = device.strip_suffix('!').map_or((*device, false), |device| (device, true));
            result["device"] = json!(device);
            result["adminAccess"] = json!(admin);
            result
        };
        self.cluster.allocate(&claim, &devices.iter().enumerate().map(result).collect());
        claim
    }
}

fn ids(devices: &[PreparedDevice]) -> Vec<&str> {
    devices.iter().map(|device| device.cdi_id.as_str()).collect()
}

#[tokio::test]
async fn a_claim_is_prepared_and_unprepared() {
    let node = Node::new();
    let preparer = node.start();
    let claim = node.claim("u1", &["gpu-1", "gpu-3"]);
    let devices = preparer.prepare(claim.clone()).await.unwrap();
    assert_eq!(ids(&devices), ["claimfs.dev/device=u1-gpu-1", "claimfs.dev/device=u1-gpu-3"]);
    assert_eq!((devices[1].request.as_str(), devices[1].pool.as_str()), ("r1", "n1"));
    let spec = fs::read_to_string(node.path("cdi/claimfs.dev-u1.json")).unwrap();
    assert!(
        spec.contains("CLAIMFS_DEVICE_R0_0=gpu-1") && spec.contains("CLAIMFS_DEVICE_R1_0=gpu-3"),
        "{spec}"
    );
    assert_eq!(preparer.owners().len(), 2);
    preparer.unprepare(claim.uid.clone()).await.unwrap();
    preparer.unprepare(claim.uid).await.unwrap();
    assert_eq!((node.files("cdi"), node.files("claims"), preparer.owners()), (vec![], vec![], Owners::new()));
}

#[tokio::test]
async fn the_same_call_has_the_same_answer_and_writes_nothing() {
    let node = Node::new();
    let claim = node.claim("u1", &["gpu-1"]);
    let first = node.start().prepare(claim.clone()).await.unwrap();
    let stamp = |path: &str| fs::metadata(node.path(path)).unwrap().modified().unwrap();
    let stamps =
        || (stamp("cdi/claimfs.dev-u1.json"), stamp("claims/u1.json"), stamp("cdi"), stamp("claims"));
    let before = stamps();
    let preparer = node.start();
    assert_eq!(preparer.prepare(claim.clone()).await.unwrap(), first);
    assert_eq!(preparer.prepare(claim).await.unwrap(), first);
    assert_eq!(stamps(), before);
}

#[tokio::test]
async fn a_device_has_one_owner_unless_it_is_shared_or_for_an_administrator() {
    let node = Node::new();
    let preparer = node.start();
    preparer.prepare(node.claim("u1", &["gpu-1", "kvm-0"])).await.unwrap();
    let refused = preparer.prepare(node.claim("u2", &["gpu-0", "gpu-1"])).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "claim default/claim-u2: device gpu-1 is in use by claim default/claim-u1 (u1)"
    );
    preparer.prepare(node.claim("u3", &["gpu-0", "kvm-0"])).await.unwrap();
    let full = preparer.prepare(node.claim("u4", &["kvm-0"])).await.unwrap_err();
    assert_eq!(
        full.to_string(),
        "claim default/claim-u4: device kvm-0 is shared by 2 already: default/claim-u1, default/claim-u3"
    );
    preparer.prepare(node.claim("u5", &["gpu-1!", "kvm-0!"])).await.unwrap();
    preparer.unprepare("u1".parse().unwrap()).await.unwrap();
    preparer.prepare(node.claim("u2", &["gpu-1"])).await.unwrap();
    assert_eq!(node.files("claims"), ["u2.json", "u3.json", "u5.json"]);
}

#[tokio::test]
async fn what_cannot_be_prepared_changes_nothing() {
    let node = Node::new();
    let preparer = node.start();
    let absent = node.claim("u1", &["gpu-0", "gpu-9"]);
    let error = preparer.prepare(absent.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), "claim default/claim-u1: device gpu-9 is not on this node (any more)");
    let unknown = ClaimRef { name: "nobody".parse().unwrap(), ..absent.clone() };
    assert!(matches!(preparer.prepare(unknown).await, Err(Error::Claim(claims::Error::NotFound { .. }))));
    let replaced = ClaimRef { uid: "u2".parse().unwrap(), ..absent };
    assert!(matches!(preparer.prepare(replaced).await, Err(Error::Refused(Refusal::Replaced { .. }))));
    // A folder in the way of the spec fails the last step but one.
    fs::create_dir(node.path("cdi/.claimfs.dev-u3.tmp")).unwrap();
    assert!(matches!(preparer.prepare(node.claim("u3", &["gpu-0"])).await, Err(Error::Cdi(_))));
    assert_eq!((node.files("claims"), preparer.owners()), (vec![], Owners::new()));
    fs::remove_dir(node.path("cdi/.claimfs.dev-u3.tmp")).unwrap();
    preparer.prepare(node.claim("u3", &["gpu-0"])).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_was_allocated_anew_gets_its_new_devices() {
    let node = Node::new();
    let preparer = node.start();
    preparer.prepare(node.claim("u1", &["gpu-0"])).await.unwrap();
    let devices = preparer.prepare(node.claim("u1", &["gpu-1"])).await.unwrap();
    assert_eq!(ids(&devices), ["claimfs.dev/device=u1-gpu-1"]);
    preparer.prepare(node.claim("u2", &["gpu-0"])).await.unwrap();
}

#[tokio::test]
async fn a_claim_without_devices_of_ours_is_nothing_to_do() {
    let node = Node::new();
    assert_eq!(node.start().prepare(node.claim("u1", &[])).await.unwrap(), []);
    assert_eq!((node.files("claims"), node.files("cdi")), (vec![], vec![]));
}

#[tokio::test]
async fn a_start_finishes_what_was_prepared_and_removes_what_was_not() {
    let node = Node::new();
    let preparer = node.start();
    let claim = node.claim("u1", &["gpu-0"]);
    let devices = preparer.prepare(claim.clone()).await.unwrap();
    let spec = fs::read(node.path("cdi/claimfs.dev-u1.json")).unwrap();
    fs::remove_file(node.path("cdi/claimfs.dev-u1.json")).unwrap();
    // Killed in the middle: between the phases, while writing, and before the journal was removed.
    let journal = Journal::open(node.path("claims"), BootId::read(&node.path("boot")).unwrap()).unwrap();
    let mut record = Record::clone(&preparer.shared.held.get(&claim.uid).unwrap());
    record.claim.uid = "u2".parse().unwrap();
    journal.begin(&record).unwrap();
    fs::write(node.path("cdi/claimfs.dev-u2.json"), "{}").unwrap();
    fs::write(node.path("claims/u3.preparing"), "{").unwrap();
    fs::write(node.path("cdi/claimfs.dev-u9.json"), "{}").unwrap();
    let preparer = node.start();
    assert_eq!(node.files("claims"), ["u1.json"]);
    assert_eq!(node.files("cdi"), ["claimfs.dev-u1.json"]);
    assert_eq!(fs::read(node.path("cdi/claimfs.dev-u1.json")).unwrap(), spec);
    assert_eq!(preparer.prepare(claim).await.unwrap(), devices);
}

#[tokio::test]
async fn another_boot_makes_records_void() {
    let node = Node::new();
    node.start().prepare(node.claim("u1", &["gpu-0"])).await.unwrap();
    fs::write(node.path("boot"), "boot-2\n").unwrap();
    let preparer = node.start();
    assert_eq!((node.files("claims"), node.files("cdi")), (vec![], vec![]));
    preparer.prepare(node.claim("u2", &["gpu-0"])).await.unwrap();
}

#[tokio::test]
async fn a_record_that_is_not_whole_is_kept_aside() {
    let whole = {
        let node = Node::new();
        node.start().prepare(node.claim("u1", &["gpu-0"])).await.unwrap();
        fs::read(node.path("claims/u1.json")).unwrap()
    };
    let mut flipped = whole.clone();
    let middle = whole.len() / 2;
    flipped[middle] ^= 1;
    let newer =
        String::from_utf8(whole.clone()).unwrap().replace("\"version\":1", "\"version\":9").into_bytes();
    for broken in [&whole[..whole.len() / 2], &[], &flipped, &newer] {
        let node = Node::new();
        let first = node.start();
        first.prepare(node.claim("u1", &["gpu-0"])).await.unwrap();
        first.prepare(node.claim("u2", &["gpu-1"])).await.unwrap();
        fs::write(node.path("claims/u1.json"), broken).unwrap();
        for _ in 0..2 {
            let preparer = node.start();
            // The rest goes on, and a container of the claim can still be started again.
            assert_eq!(preparer.owners().len(), 1);
            assert_eq!(node.files("claims"), ["u1.corrupt", "u2.json"]);
            assert_eq!(node.files("cdi").len(), 2);
        }
        node.start().unprepare("u1".parse().unwrap()).await.unwrap();
        assert_eq!((node.files("claims"), node.files("cdi").len()), (vec![String::from("u2.json")], 1));
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_changes_nothing() {
    let mut node = Node::new();
    let gate = Arc::new(Notify::new());
    node.cluster.gate = Some(Arc::clone(&gate));
    let preparer = node.start();
    let claim = node.claim("u1", &["gpu-0"]);
    {
        let call = preparer.prepare(claim.clone());
        tokio::pin!(call);
        assert!(futures::poll!(&mut call).is_pending());
    }
    // The unprepare that follows waits for the prepare that nobody waits for, and comes last.
    let unprepare = preparer.unprepare(claim.uid.clone());
    tokio::pin!(unprepare);
    tokio::task::yield_now().await;
    assert!(futures::poll!(&mut unprepare).is_pending());
    gate.notify_one();
    unprepare.await.unwrap();
    preparer.drain().await;
    assert_eq!((node.files("claims"), node.files("cdi")), (vec![], vec![]));
}

#[tokio::test]
async fn many_claims_at_once_are_all_prepared() {
    let node = Node::new();
    let preparer = Arc::new(node.start());
    let claims: Vec<ClaimRef> = (0..100).map(|index| node.claim(&format!("u{index}"), &["gpu-0!"])).collect();
    let calls = claims.iter().flat_map(|claim| {
        let again = Arc::clone(&preparer);
        let preparer = Arc::clone(&preparer);
        let (one, two) = (claim.clone(), claim.clone());
        [
            tokio::spawn(async move { preparer.prepare(one).await.unwrap() }),
            tokio::spawn(async move { again.prepare(two).await.unwrap() }),
        ]
    });
    let answers = futures::future::join_all(calls).await;
    assert!(answers.chunks(2).all(|pair| pair[0].as_ref().unwrap() == pair[1].as_ref().unwrap()));
    assert_eq!(node.files("cdi").len(), 100);
}

#[tokio::test]
async fn only_claims_that_are_gone_and_named_by_nothing_are_collected() {
    let node = Node::new();
    let preparer = node.start();
    let [kept, named, gone] = ["u1", "u2", "u3"].map(|uid| node.claim(uid, &[]));
    for (claim, device) in [(&kept, "gpu-0"), (&named, "gpu-1"), (&gone, "gpu-2")] {
        node.claim(claim.uid.as_str(), &[device]);
        preparer.prepare(claim.clone()).await.unwrap();
    }
    assert_eq!(preparer.collect().await, []);
    for claim in [&named, &gone] {
        node.cluster.claims.lock().unwrap().remove(&claim.to_string());
    }
    node.cluster.named.lock().unwrap().insert(named.name.to_string());
    assert_eq!(preparer.collect().await, [gone]);
    assert_eq!(node.files("claims"), ["u1.json", "u2.json"]);
    assert_eq!(node.files("cdi").len(), 2);
}
