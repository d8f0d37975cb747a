//! What there is, told to whoever asks.

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    super::{
        manifest::Lifetime,
        presence::RunId,
        report::{ClaimReport, DeviceReport, GrantedDevice, Report, RunReport, UsedBy, WaitingReport},
        users,
    },
    Desk, Parts, Phase,
};
use crate::{claims::Stored, discover::Found, exhibit::Mode, prepare::PreparedDevice};

impl Desk {
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
            taints: device.condition.taints.iter().map(ToString::to_string).collect(),
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
            waiting: books.waiting(|stored| WaitingReport {
                name: stored.claim.to_string(),
                run: users::of(stored).first().map(|run| self.run_report(run)),
            }),
        }
    }

    /// Tells of every change of what is reported.
    #[must_use]
    pub fn changes(&self) -> (watch::Receiver<()>, watch::Receiver<Arc<Found>>) {
        (self.parts.books.changes(), self.parts.inventory.clone())
    }

    fn claim_report(&self, stored: &Stored) -> ClaimReport {
        let devices = self.parts.preparer.devices_of(&stored.claim.uid).unwrap_or_default();
        ClaimReport {
            name: stored.claim.to_string(),
            goes_with_its_runs: Lifetime::of(&stored.object) == Lifetime::Run,
            runs: users::of(stored).iter().map(|run| self.run_report(run)).collect(),
            devices: devices.into_iter().map(GrantedDevice::from).collect(),
            object: stored.object.clone(),
        }
    }

    fn run_report(&self, run: &RunId) -> RunReport {
        let phase = self.followed().get(run).map(|phase| *phase.borrow());
        let by = if phase == Some(Phase::InUse) { UsedBy::Container } else { UsedBy::Run };
        RunReport { name: run.to_string(), by, command: self.parts.runs.command(run) }
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
