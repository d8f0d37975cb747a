//! The golden CDI specs: what a configuration becomes, and that real runtimes take it.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use claimfs::{
    claims::{self, ClaimObject, ClaimRef, Claims},
    config::Config,
    device::NodeName,
    discover::{self, Found, Roots},
    prepare::{BootId, Preparer, Settings},
};
use support::{driver::names, link_to_node};
use tempfile::TempDir;
use tokio::sync::watch;

const UID: &str = "0f9e8d7c-1234-4abc-9def-001122334455";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cdi-specs")
}

/// The names of all cases.
fn cases() -> Vec<String> {
    names(&golden()).iter().filter_map(|file| Some(file.strip_suffix(".yaml")?.to_owned())).collect()
}

/// One claim that has every device, in a request named after its source.
struct Everything(Arc<Found>);

impl Claims for Everything {
    async fn get(&self, claim: &ClaimRef) -> Result<ClaimObject, claims::Error> {
        let results: Vec<serde_json::Value> = self
            .0
            .devices
            .values()
            .map(|device| {
                serde_json::json!({"request": device.source, "driver": "claimfs.dev", "pool": "n1", "device": device.name})
            })
            .collect();
        let status = serde_json::json!({"allocation": {"devices": {"results": results}}});
        let mut object =
            ClaimObject { status: serde_json::from_value(status).unwrap(), ..ClaimObject::default() };
        object.metadata.uid = claim.uid.to_string();
        Ok(object)
    }

    async fn is_named(&self, _: &ClaimRef, _: &NodeName) -> Result<bool, claims::Error> {
        Ok(true)
    }
}

/// The spec that the daemon writes for a configuration.
async fn spec(case: &str) -> String {
    let folder = TempDir::new().unwrap();
    let dev = folder.path().join("dev");
    for (path, node) in [("random", "random"), ("serial/by-id/usb-FTDI_SN42", "null")] {
        link_to_node(&dev, path, node);
    }
    let config = Config::load(&golden().join(format!("{case}.yaml"))).unwrap();
    let found = Arc::new(discover::scan(&config, &Roots { dev, sys: folder.path().join("sys") }));
    assert!(!found.devices.is_empty());
    fs::write(folder.path().join("boot"), "boot").unwrap();
    let settings = Settings {
        driver: config.driver,
        node: "n1".parse().unwrap(),
        cdi_folder: folder.path().join("cdi"),
        journal_folder: folder.path().join("claims"),
        boot: BootId::read(&folder.path().join("boot")).unwrap(),
        exhibit: None,
    };
    let (_sender, inventory) = watch::channel(Arc::clone(&found));
    let preparer = Preparer::recover(settings, Everything(found), inventory).unwrap();
    let claim = ClaimRef {
        namespace: "default".parse().unwrap(),
        name: "c".parse().unwrap(),
        uid: UID.parse().unwrap(),
    };
    preparer.prepare(claim).await.unwrap();
    fs::read_to_string(folder.path().join(format!("cdi/claimfs.dev-{UID}.json"))).unwrap()
}

#[tokio::test]
async fn specs_are_as_they_were() {
    assert!(cases().len() >= 4);
    for case in cases() {
        let file = golden().join(format!("{case}.json"));
        let written = spec(&case).await;
        if env::var_os("CLAIMFS_UPDATE_GOLDEN").is_some() {
            fs::write(&file, &written).unwrap();
        }
        assert_eq!(written, fs::read_to_string(&file).unwrap_or_default(), "{case}");
    }
}

/// podman reads specs from fixed folders, so it gets a `/run` of its own; the runtime is the one that it takes
/// by itself.
#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn podman_injects_them() {
    let version = Command::new("podman").arg("--version").output().expect("podman is installed").stdout;
    let version = String::from_utf8(version).unwrap();
    for case in cases() {
        let text = fs::read_to_string(golden().join(format!("{case}.json"))).unwrap();
        if text.contains("\"cdiVersion\": \"0.7.0\"") && version.contains(" 4.") {
            continue;
        }
        let spec: serde_json::Value = serde_json::from_str(&text).unwrap();
        let device =
            format!("{}={}", spec["kind"].as_str().unwrap(), spec["devices"][0]["name"].as_str().unwrap());
        let script = r#"
            set -e
            mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib/containers 2>/dev/null || mkdir -p /var/lib/containers
            mkdir -p /run/cdi /run/root/bin /run/root/dev /run/root/proc /run/root/sys /run/root/etc /run/root/run
            cp "$1" /run/cdi/ && cp "$2" /run/root/bin/busybox
            for applet in sh env ls grep stat cat; do ln -s busybox /run/root/bin/$applet; done
            export PODMAN_IGNORE_CGROUPSV1_WARNING=1
            # Without limits podman asks for more than a machine may give.
            exec podman --root /run/storage --runroot /run/storage-run --runtime runc --cgroup-manager=cgroupfs run --rm \
              --network=host --ulimit nofile=1000:1000 --ulimit nproc=1000:1000 --env PATH=/bin --device "$3" --rootfs /run/root \
              sh -c 'env; ls -l /dev/random /dev/serial/by-id 2>/dev/null; cat /opt/fpga/hostname 2>/dev/null || true'
        "#;
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "bash", "-c", script, "bash"])
            .arg(golden().join(format!("{case}.json")))
            .args([&busybox(), &device])
            .output()
            .unwrap();
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{case}: {errors}");
        for variable in spec["devices"][0]["containerEdits"]["env"].as_array().unwrap() {
            assert!(out.contains(variable.as_str().unwrap()), "{case}: no {variable} in\n{out}");
        }
        match case.as_str() {
            "node" => assert!(out.contains("crw-rw-rw-    1 1000     20"), "{out}"),
            "link" => assert!(out.contains("usb-FTDI_SN42"), "{out}"),
            _ => {}
        }
    }
}

/// A busybox without shared libraries.
fn busybox() -> String {
    let output = Command::new("bash")
        .args(["-c", ". hack/cluster.d/common && busybox_static"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
