//! Files that people, other programs and an earlier process wrote, and claims of a cluster.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::{Arc, LazyLock},
};

use claimfs::{
    claims::{self, Allocated, ClaimObject, ClaimRef, Claims},
    config::Config,
    device::NodeName,
    discover::{Found, Roots, scan},
    prepare::{BootId, Preparer, Settings},
    reader::Metadata,
};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

const UID: &str = "8f4c8b2e-0000-4000-8000-000000000001";

/// A configuration; one that is good can be looked for.
pub fn config(text: &str) {
    match Config::parse(Path::new("config.yaml"), text) {
        Ok(config) => drop(claimfs::discover::folders(&config, &Roots::default())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Files of this process alone; `hack/fuzz` puts them into memory, and removes them.
fn folder(name: &str) -> PathBuf {
    static FOLDER: LazyLock<PathBuf> =
        LazyLock::new(|| env::temp_dir().join(format!("claimfs-{}", process::id())));
    FOLDER.join(name)
}

/// A report about a device.
pub fn report(text: &str) {
    static CONFIG: LazyLock<Config> = LazyLock::new(|| {
        let reports = folder("reports");
        fs::create_dir_all(&reports).expect("a folder");
        let text =
            format!("reports: {}\nsources: [{{name: gpu, simulated: {{count: 1}}}}]", reports.display());
        Config::parse(Path::new("config.yaml"), &text).expect("a configuration")
    });
    let config = &*CONFIG;
    fs::write(folder("reports/gpu-0.yaml"), text).expect("a report");
    let found = scan(config, &Roots::default());
    assert_eq!(found.devices.len(), 1);
}

/// There is no cluster.
struct Nobody;

impl Claims for Nobody {
    async fn get(&self, claim: &ClaimRef) -> Result<ClaimObject, claims::Error> {
        Err(claims::Error::NotFound { claim: claim.clone() })
    }

    async fn is_named(&self, _: &ClaimRef, _: &NodeName) -> Result<bool, claims::Error> {
        Ok(false)
    }
}

/// A record of an earlier process, with the right checksum: no fuzzer would find that one.
pub fn journal(text: &str) {
    let claims = folder("claims");
    fs::create_dir_all(&claims).expect("a folder");
    let boot = folder("boot");
    fs::write(&boot, "boot-1\n").expect("a boot");
    let sealed = RawValue::from_string(text.trim().to_owned()).map_or_else(
        |_| text.to_owned(),
        |entry| {
            let digest: String =
                Sha256::digest(entry.get()).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{{\"sha256\":\"{digest}\",\"entry\":{}}}\n", entry.get())
        },
    );
    fs::write(claims.join(format!("{UID}.json")), sealed).expect("a record");
    let settings = Settings {
        driver: "claimfs.dev".parse().expect("a driver"),
        node: "n1".parse().expect("a node"),
        cdi_folder: folder("cdi"),
        journal_folder: claims,
        boot: BootId::read(&boot).expect("a boot"),
        exhibit: None,
    };
    let (_sender, inventory) = tokio::sync::watch::channel(Arc::new(Found::default()));
    let preparer = Preparer::recover(settings, Nobody, inventory);
    drop(preparer.expect("a record never keeps a process from starting").owners());
}

/// A claim's object with its opaque parameters.
pub fn claim(text: &str) {
    let Ok(mut object) = serde_json::from_str::<ClaimObject>(text) else { return };
    UID.clone_into(&mut object.metadata.uid);
    let claim = ClaimRef {
        namespace: "default".parse().expect("a namespace"),
        name: "claim".parse().expect("a name"),
        uid: UID.parse().expect("a UID"),
    };
    let driver = "claimfs.dev".parse().expect("a driver");
    let pool = "n1".parse().expect("a pool");
    match Allocated::check(&object, &claim, &driver, &pool) {
        Ok(allocated) => assert_eq!(allocated.claim, claim),
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}

/// Metadata of a device, whoever wrote them.
pub fn metadata(text: &str) {
    if let Err(error) = Metadata::parse(Path::new("metadata.json"), text) {
        assert!(!error.to_string().is_empty());
    }
}
