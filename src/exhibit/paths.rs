//! Where what is in the tree.

use std::path::{Path, PathBuf};

use super::Prepared;
use crate::{
    claims::ClaimRef,
    device::{ClaimUid, DeviceName, DriverName, NodeName, RequestName},
    fs::Step,
    metadata::file_name,
    reader::PLACE,
};

/// The folder of a claim, by its UID.
pub(super) fn by_uid(claim: &ClaimUid) -> Vec<Step> {
    vec![Step::new("by-uid"), Step::new(claim.as_str())]
}

/// The link to it, by its name, which can be that of another claim tomorrow.
pub(super) fn by_name(claim: &ClaimRef) -> Vec<Step> {
    vec![
        Step::new("claims"),
        Step::new(claim.namespace.as_str()),
        Step::of(claim.name.as_str(), claim.uid.as_str()),
    ]
}

/// From where the link is to where the claim is.
pub(super) fn from_name_to_uid(claim: &ClaimUid) -> PathBuf {
    Path::new("../../by-uid").join(claim.as_str())
}

/// The document of a request.
pub(super) fn of_request(claim: &ClaimUid, request: &RequestName, driver: &DriverName) -> Vec<Step> {
    let mut path = by_uid(claim);
    path.extend([Step::new(request.as_str()), Step::new(file_name(driver))]);
    path
}

/// The folder of all devices.
pub(super) fn devices(pool: &NodeName) -> [Step; 2] {
    [Step::new("devices"), Step::new(pool.as_str())]
}

/// The document of a device.
pub(super) fn of_device(pool: &NodeName, device: &DeviceName) -> Vec<Step> {
    [devices(pool).as_slice(), &[Step::new(format!("{device}.json"))]].concat()
}

/// Where a container finds the document of a request; upstream's readers know no other place.
pub(super) fn in_container(prepared: &Prepared, request: &RequestName, driver: &DriverName) -> PathBuf {
    let of = match &prepared.pod_claim_name {
        Some(name) => Path::new("resourceclaimtemplates").join(name.as_str()),
        None => Path::new("resourceclaims").join(prepared.claim.name.as_str()),
    };
    Path::new(PLACE).join(of).join(request.as_str()).join(file_name(driver))
}
