//! Which claim holds which device.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::journal::Record;
use crate::{
    claims::ClaimRef,
    device::{ClaimUid, DeviceName, Sharing},
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
    records: Mutex<BTreeMap<ClaimUid, Record>>,
}

impl Held {
    pub(super) fn get(&self, claim: &ClaimUid) -> Option<Record> {
        self.records().get(claim).cloned()
    }

    /// Takes the devices of a record for its claim, all of them or none.
    pub(super) fn insert(&self, record: Record) -> Result<(), Conflict> {
        let mut records = self.records();
        for (device, sharing) in record.owned() {
            let owners: Vec<&Record> = records
                .values()
                .filter(|other| {
                    other.claim.uid != record.claim.uid && other.owned().any(|(name, _)| name == device)
                })
                .collect();
            match (sharing, owners.first()) {
                (_, None) => {}
                (Sharing::Exclusive, Some(owner)) => {
                    return Err(Conflict::Owned { device: device.clone(), owner: owner.claim.clone() });
                }
                (Sharing::Shared { max }, Some(_)) => {
                    let shares: usize = owners
                        .iter()
                        .map(|other| other.owned().filter(|(name, _)| *name == device).count())
                        .sum();
                    let wanted = record.owned().filter(|(name, _)| *name == device).count();
                    if shares + wanted > max.get() as usize {
                        let owners = owners.iter().map(|owner| owner.claim.clone()).collect();
                        return Err(Conflict::Full { device: device.clone(), owners });
                    }
                }
            }
        }
        records.insert(record.claim.uid.clone(), record);
        Ok(())
    }

    /// Whether there was one.
    pub(super) fn remove(&self, claim: &ClaimUid) -> bool {
        self.records().remove(claim).is_some()
    }

    pub(super) fn claims(&self) -> Vec<ClaimRef> {
        self.records().values().map(|record| record.claim.clone()).collect()
    }

    pub(super) fn devices(&self) -> Vec<(DeviceName, ClaimRef)> {
        let records = self.records();
        let devices =
            records.values().flat_map(|record| record.owned().map(|(device, _)| (device, &record.claim)));
        devices.map(|(device, claim)| (device.clone(), claim.clone())).collect()
    }

    /// The map is whole at every moment, so a panic elsewhere does not spoil it.
    fn records(&self) -> MutexGuard<'_, BTreeMap<ClaimUid, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
