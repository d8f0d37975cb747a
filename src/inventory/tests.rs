use std::{fs, os::unix::fs::symlink, path::Path};

use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::device::DeviceName;

/// Far beyond the second that is promised: a slow machine makes a test slow, not red.
const DEADLINE: Duration = Duration::from_secs(20);

struct Running {
    dev: TempDir,
    snapshots: watch::Receiver<Arc<Found>>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(paths: &str, prepare: impl FnOnce(&Path)) -> Self {
        let dev = TempDir::new().unwrap();
        prepare(dev.path());
        let config = format!("sources: [{{name: a, dev: {{paths: [{paths}]}}}}]");
        let config = Config::parse(Path::new("test"), &config).unwrap();
        let roots = Roots { dev: dev.path().to_owned(), sys: dev.path().join("no-sys") };
        let inventory = Inventory::build(config, roots).unwrap();
        let (snapshots, shutdown) = (inventory.subscribe(), CancellationToken::new());
        let task = tokio::spawn(inventory.run(shutdown.clone()));
        Self { dev, snapshots, shutdown, task }
    }

    fn link(&self, path: &str, target: &str) {
        link(self.dev.path(), path, target);
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.dev.path().join(path)).unwrap();
    }

    /// Waits until exactly these devices are there.
    async fn shows(&mut self, names: &[&str]) {
        let as_expected =
            |found: &Arc<Found>| found.devices.keys().map(DeviceName::as_str).eq(names.iter().copied());
        let shown = time::timeout(DEADLINE, self.snapshots.wait_for(as_expected)).await.map(|_| ());
        assert!(shown.is_ok(), "{names:?} expected, {:?} are there", self.snapshots.borrow().devices.keys());
    }

    async fn stop(self) {
        self.shutdown.cancel();
        time::timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap();
    }
}

/// A link to a node of the real machine, or to something in this one.
fn link(dev: &Path, path: &str, target: &str) {
    let path = dev.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let up = path.parent().unwrap().canonicalize().unwrap().components().count() - 1;
    symlink(target.replacen('/', &"../".repeat(up), 1), path).unwrap();
}

#[tokio::test]
async fn a_target_that_vanishes_elsewhere_is_seen() {
    let mut running = Running::start("'/dev/by/*'", |dev| {
        link(dev, "bus/node", "/dev/null");
        symlink("../bus/node", dev.join("by-x")).unwrap();
        fs::create_dir(dev.join("by")).unwrap();
        fs::rename(dev.join("by-x"), dev.join("by/x")).unwrap();
    });
    running.shows(&["by-x-bbc691"]).await;
    running.remove("bus/node");
    running.shows(&[]).await;
    running.link("bus/node", "/dev/zero");
    running.shows(&["by-x-bbc691"]).await;
    running.stop().await;
}

#[tokio::test]
async fn devices_appear_and_vanish() {
    let mut running = Running::start("/dev/x*", |dev| link(dev, "x0", "/dev/null"));
    running.shows(&["x0"]).await;
    running.link("x1", "/dev/zero");
    running.shows(&["x0", "x1"]).await;
    running.remove("x0");
    running.shows(&["x1"]).await;
    running.stop().await;
}

#[tokio::test]
async fn folders_appear_vanish_and_appear_again() {
    let mut running = Running::start("'/dev/serial/by-id/*'", |_| {});
    for _ in 0..3 {
        running.link("serial/by-id/a", "/dev/null");
        running.shows(&["a-90b0c4"]).await;
        fs::remove_dir_all(running.dev.path().join("serial")).unwrap();
        running.shows(&[]).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_link_becomes_a_device_when_its_node_comes() {
    let mut running = Running::start("/dev/x", |dev| symlink("late", dev.join("x")).unwrap());
    running.shows(&[]).await;
    running.link("late", "/dev/full");
    running.shows(&["x"]).await;
    running.stop().await;
}

#[tokio::test]
async fn simulated_devices_need_no_dev() {
    let config = Config::parse(Path::new("test"), "sources: [{name: a, simulated: {count: 2}}]").unwrap();
    let roots = Roots { dev: "/nonexistent".into(), sys: "/nonexistent".into() };
    let inventory = Inventory::build(config, roots).unwrap();
    assert_eq!(inventory.subscribe().borrow().devices.len(), 2);
}
