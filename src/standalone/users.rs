//! The runs that use a claim: those whom it is reserved for.

use std::io;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};

use super::{
    manifest::Lifetime,
    presence::{RunId, Runs},
};
use crate::claims::Stored;

/// What a run is called among those whom a claim is reserved for.
const RUNS: &str = "runs";
const GROUP: &str = "claimfs.dev";

/// The runs that use a claim.
pub(super) fn of(stored: &Stored) -> Vec<RunId> {
    let users = stored.object.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    users.filter(|user| user.resource == RUNS).filter_map(|user| RunId::parse(&user.name)).collect()
}

fn is_run(user: &ResourceClaimConsumerReference, run: &RunId) -> bool {
    user.resource == RUNS && user.name == run.as_str()
}

/// Whether a run is one of them.
pub(super) fn is_reserved(stored: &Stored, run: &RunId) -> bool {
    of(stored).contains(run)
}

/// Whether anything is left for which a claim has its devices: it is kept, or one of its runs is not over.
pub(crate) fn is_used(stored: &Stored, runs: &Runs) -> io::Result<bool> {
    let mut is_used = Lifetime::of(&stored.object) == Lifetime::Kept;
    for run in of(stored) {
        is_used |= runs.is_present(&run)?;
    }
    Ok(is_used)
}

/// Whether a claim is gone when this run is.
pub(super) fn goes_with(stored: &Stored, run: &RunId) -> bool {
    Lifetime::of(&stored.object) == Lifetime::Run && of(stored) == [run.clone()]
}

/// Lets a run use a claim.
pub(super) fn reserve(claim: &mut ResourceClaim, run: &RunId) {
    let user = ResourceClaimConsumerReference {
        api_group: Some(GROUP.to_owned()),
        resource: RUNS.to_owned(),
        name: run.to_string(),
        uid: run.to_string(),
    };
    claim.status.get_or_insert_default().reserved_for.get_or_insert_default().push(user);
}

/// Ends that.
pub(super) fn leave(claim: &mut ResourceClaim, run: &RunId) {
    if let Some(users) = claim.status.get_or_insert_default().reserved_for.as_mut() {
        users.retain(|user| !is_run(user, run));
    }
}
