//! Which claim holds which device.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::journal::Record;
use crate::{
    claims::ClaimRef,
    device::{ClaimUid, DeviceName, Sharing},
    exhibit::Owners,
};

/// Why a claim cannot have a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Another claim has it, and it is not shared.
    #[error("device {device} is in use by claim {owner} ({})", .owner.uid)]
    Owned {
        /// The device.
        device: DeviceName,
        /// The claim that has it.
        owner: ClaimRef,
    },
    /// As many claims as may share it have it.
    #[error("device {device} is shared by {} already: {}", .owners.len(), Names(.owners))]
    Full {
        /// The device.
        device: DeviceName,
        /// The claims that have it.
        owners: Vec<ClaimRef>,
    },
}

struct Names<'a>(&'a [ClaimRef]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().take(5).map(ToString::to_string).collect();
        let more = if self.0.len() > 5 { " …" } else { "" };
        write!(formatter, "{}{more}", names.join(", "))
    }
}

/// The claims that are prepared or about to be, in memory.
#[derive(Default)]
pub(super) struct Held {
    table: Mutex<Table>,
}

/// Invariant: `owners` has exactly the owned devices of `records`, each as often as it is allocated.
#[derive(Default)]
struct Table {
    records: BTreeMap<ClaimUid, Arc<Record>>,
    owners: BTreeMap<DeviceName, Vec<ClaimUid>>,
}

impl Held {
    pub(super) fn get(&self, claim: &ClaimUid) -> Option<Arc<Record>> {
        self.table().records.get(claim).cloned()
    }

    /// Takes the devices of a record for its claim, all of them or none.
    pub(super) fn insert(&self, record: Arc<Record>) -> Result<(), Conflict> {
        let mut table = self.table();
        for (device, sharing) in record.owned() {
            table.check(device, sharing, &record)?;
        }
        table.remove(&record.claim.uid);
        for (device, _) in record.owned() {
            table.owners.entry(device.clone()).or_default().push(record.claim.uid.clone());
        }
        table.records.insert(record.claim.uid.clone(), record);
        Ok(())
    }

    /// What there was.
    pub(super) fn remove(&self, claim: &ClaimUid) -> Option<Arc<Record>> {
        self.table().remove(claim)
    }

    pub(super) fn claims(&self) -> Vec<ClaimRef> {
        self.table().records.values().map(|record| record.claim.clone()).collect()
    }

    pub(super) fn owners(&self) -> Owners {
        let table = self.table();
        let owners = table.owners.iter();
        owners.map(|(device, claims)| (device.clone(), table.named(claims))).collect()
    }

    pub(super) fn owners_of(&self, devices: &BTreeSet<DeviceName>) -> Owners {
        let table = self.table();
        let owners = devices.iter().filter_map(|device| table.owners.get_key_value(device));
        owners.map(|(device, claims)| (device.clone(), table.named(claims))).collect()
    }

    /// The devices that have owners.
    pub(super) fn devices(&self) -> Vec<DeviceName> {
        self.table().owners.keys().cloned().collect()
    }

    /// The table is whole at every moment, so a panic elsewhere does not spoil it.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn named(&self, claims: &[ClaimUid]) -> Vec<ClaimRef> {
        let claim = |uid: &ClaimUid| self.records.get(uid).map(|record| record.claim.clone());
        claims.iter().filter_map(claim).collect()
    }

    /// Whether a claim can have a device besides those who have it.
    fn check(&self, device: &DeviceName, sharing: Sharing, record: &Record) -> Result<(), Conflict> {
        let owners = self.owners.get(device).map(Vec::as_slice).unwrap_or_default();
        let others = owners.iter().filter(|owner| **owner != record.claim.uid);
        let others: Vec<&ClaimRef> =
            others.filter_map(|owner| self.records.get(owner)).map(|record| &record.claim).collect();
        match (sharing, others.first()) {
            (_, None) => Ok(()),
            (Sharing::Exclusive, Some(&owner)) => {
                Err(Conflict::Owned { device: device.clone(), owner: owner.clone() })
            }
            (Sharing::Shared { max }, Some(_)) => {
                let wanted = record.owned().filter(|(name, _)| *name == device).count();
                if others.len() + wanted <= max.get() as usize {
                    return Ok(());
                }
                Err(Conflict::Full { device: device.clone(), owners: others.into_iter().cloned().collect() })
            }
        }
    }

    fn remove(&mut self, claim: &ClaimUid) -> Option<Arc<Record>> {
        let record = self.records.remove(claim)?;
        for (device, _) in record.owned() {
            if let Some(owners) = self.owners.get_mut(device) {
                owners.retain(|owner| owner != claim);
                if owners.is_empty() {
                    self.owners.remove(device);
                }
            }
        }
        Some(record)
    }
}
