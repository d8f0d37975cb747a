//! The real daemon and a real API server, with a stand-in for the kubelet.

use std::{process::Command, time::Duration};

use claimfs::kubelet::api::dra::v1::Claim;

use super::{
    DEADLINE,
    claims::{self, Allocation},
    cluster::Cluster,
    driver::{Daemon, Machine},
    kubelet::{Behaviour, Kubelet, Plugin},
};

/// Devices of every kind that needs no hardware.
pub const CONFIG: &str = "
sources:
- {name: gpu, simulated: {count: 40}}
- {name: kvm, simulated: {count: 1}, shared: {max: 2}}
- {name: plug, dev: {paths: ['/dev/plug*']}}
";

/// Most tests share one, some need another.
enum Plane {
    Shared,
    Own(Cluster),
}

/// A machine, a daemon on it, and the kubelet that has registered it.
pub struct Setup {
    plane: Plane,
    /// Before the machine, which ends what outlives a daemon.
    pub daemon: Option<Daemon>,
    pub machine: Machine,
    pub kubelet: Kubelet,
    pub plugin: Plugin,
}

impl Setup {
    pub async fn new(node: &str) -> Self {
        Self::with(node, CONFIG, Behaviour::default()).await
    }

    pub async fn with(node: &str, config: &str, behaviour: Behaviour) -> Self {
        Self::on(Machine::new(Cluster::shared_control_plane(), node, config), behaviour).await
    }

    pub async fn on(machine: Machine, behaviour: Behaviour) -> Self {
        Self::start(Plane::Shared, machine, behaviour).await
    }

    /// On a control plane of its own.
    pub async fn on_own(plane: Cluster, node: &str) -> Self {
        let machine = Machine::new(&plane, node, CONFIG);
        Self::start(Plane::Own(plane), machine, Behaviour::default()).await
    }

    async fn start(plane: Plane, machine: Machine, behaviour: Behaviour) -> Self {
        let daemon = machine.start();
        let mut kubelet = Kubelet::start(&machine.kubelet(), behaviour);
        // A daemon that does not start says why.
        daemon.wait_for("\"message\":\"ready\"");
        let plugin = kubelet.registered().await;
        Self { plane, machine, daemon: Some(daemon), kubelet, plugin }
    }

    pub fn plane(&self) -> &Cluster {
        match &self.plane {
            Plane::Shared => Cluster::shared_control_plane(),
            Plane::Own(plane) => plane,
        }
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// Runs a command in the daemon's mount namespace, in the machine's folder.
    pub fn inside(&self, script: &str) {
        let status = Command::new("nsenter")
            .args(["--mount", &format!("--wdns={}", self.machine.path("").display())])
            .args(["--target", &self.daemon().id().to_string(), "sh", "-c", script])
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    }

    /// Another daemon in the place of the one that runs; `end` says how that one ends.
    pub async fn restart(&mut self, end: impl FnOnce(Daemon)) {
        self.end_and(end, || {}).await;
    }

    /// The same, with something in between.
    pub async fn end_and(&mut self, end: impl FnOnce(Daemon), between: impl FnOnce()) {
        end(self.daemon.take().unwrap());
        between();
        let daemon = self.machine.start();
        daemon.wait_for("\"message\":\"ready\"");
        self.plugin = self.kubelet.registered().await;
        self.daemon = Some(daemon);
    }

    pub fn claim(&self, name: &str, devices: &[(&str, &str)]) -> Claim {
        let node = self.machine.node();
        let allocations: Vec<Allocation<'_>> =
            devices.iter().map(|(request, device)| Allocation::of(request, node, device)).collect();
        claims::create(self.plane(), &format!("{node}-{name}"), &allocations)
    }

    /// Prepares one claim: the CDI names, or the error.
    pub async fn prepare(&self, claim: &Claim) -> Result<Vec<String>, String> {
        let mut answer = self.plugin.prepare(std::slice::from_ref(claim)).await.unwrap();
        assert_eq!(answer.len(), 1, "exactly the claims that were asked for");
        let devices = answer.remove(&claim.uid).expect("by its UID")?;
        Ok(devices.into_iter().flat_map(|device| device.cdi_device_ids).collect())
    }

    pub async fn unprepare(&self, claim: &Claim) -> Result<(), String> {
        let mut answer = self.plugin.unprepare(std::slice::from_ref(claim)).await.unwrap();
        answer.remove(&claim.uid).expect("by its UID")
    }

    pub fn slices(&self) -> Vec<serde_json::Value> {
        let selector = format!("--field-selector=spec.nodeName={}", self.machine.node());
        let list = self.plane().kubectl(&["get", "resourceslices", "-o", "json", &selector]);
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Waits until the slices of this node are as wanted.
    pub async fn slices_become(
        &self,
        wanted: impl Fn(&[serde_json::Value]) -> bool,
    ) -> Vec<serde_json::Value> {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            let slices = self.slices();
            if wanted(&slices) {
                return slices;
            }
            assert!(std::time::Instant::now() < deadline, "{slices:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
