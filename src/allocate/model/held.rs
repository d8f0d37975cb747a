//! What claims hold already, and who.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{
    Allocated, DeviceId, ModelError,
    read::{Reader, id},
};
use crate::allocate::Features;

/// What allocated claims hold.
#[derive(Debug, Clone, Default)]
pub struct Held<'a> {
    /// As the allocator looks at it.
    pub allocated: Allocated<'a>,
    /// The claims, as namespace and name, that have something of a device.
    pub owners: BTreeMap<DeviceId<'a>, BTreeSet<String>>,
}

impl<'a> Held<'a> {
    /// What these claims hold. Admin access holds nothing, and shares are whole devices where they are not known.
    pub fn by(
        claims: impl IntoIterator<Item = &'a ResourceClaim>,
        features: &Features,
    ) -> Result<Self, ModelError> {
        let mut held = Self::default();
        for claim in claims {
            let reader = Reader { kind: "claim", name: claim.metadata.name.as_deref().unwrap_or_default() };
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
            for result in devices.and_then(|devices| devices.results.as_ref()).into_iter().flatten() {
                if result.admin_access == Some(true) {
                    continue;
                }
                let device = DeviceId { driver: &result.driver, pool: &result.pool, device: &result.device };
                held.owners.entry(device).or_default().insert(id(claim));
                let allocated = &mut held.allocated;
                if result.share_id.is_none() || !features.consumable_capacity {
                    allocated.devices.insert(device);
                    continue;
                }
                allocated.shared.insert(device);
                let Some(shares) = &result.consumed_capacity else { continue };
                let consumed = allocated.capacity.entry(device).or_default();
                for (name, quantity) in shares {
                    let amount = reader.amount(quantity)?;
                    let total =
                        consumed.get(name.as_str()).map_or_else(|| amount.clone(), |all| all.plus(&amount));
                    consumed.insert(name, total);
                }
            }
        }
        Ok(held)
    }
}
