//! Which devices claims get on a node: the allocator of kube-scheduler for Dynamic Resource Allocation.
//!
//! The entry point is [`allocate`]. It is pure: everything that it looks at is in [`Cluster`], a [`Node`] and
//! the [`Claim`]s, and what it gives back is what the scheduler would write into the claims. The answers, their
//! order and the texts of errors are those of Kubernetes 1.36 or 1.37, whichever [`Release`] is asked for.
//!
//! [`Node`]: k8s_openapi::api::core::v1::Node

mod capacity;
mod config;
mod constraints;
mod counters;
mod error;
mod expressions;
mod features;
mod inspect;
mod model;
mod node;
mod pools;
mod prune;
mod requests;
mod result;
mod search;
mod selectors;
mod slices;
mod taints;

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{AllocationResult, DeviceClass},
};

pub use self::{
    counters::Shortage,
    error::{CapacityFlaw, Error, Interruption, RequestFlaw},
    expressions::Expressions,
    features::{Channel, Features, Release},
    inspect::{
        InspectedDevice, InspectedPool, InspectedWant, Inspection, Obstacle, Owner, PoolCondition, Selector,
        inspect,
    },
    model::{
        Allocated, Attribute, Capacity, Claim, Consumption, CounterSet, Device, DeviceId, Held, Mode,
        ModelError, Placement, Policy, Range, Request, Slice, Want, Wanted,
    },
    selectors::{Cel, CelError, DeviceView, Seen},
    slices::Slices,
    taints::tainted,
};
use self::{pools::Pools, requests::Requests, search::Search};

/// The most devices that one claim can get.
pub const MAX_RESULTS: usize = 32;

/// What an allocation depends on, besides the node and the claims.
pub struct Cluster<'a> {
    /// Whose behaviour is wanted.
    pub release: Release,
    /// Which of the allocators of that release.
    pub channel: Channel,
    /// What is switched on.
    pub features: Features,
    /// What is taken already.
    pub allocated: &'a Allocated<'a>,
    /// All classes.
    pub classes: &'a [DeviceClass],
    /// All slices, with the taints of rules in them.
    pub slices: &'a Slices<'a>,
    /// Evaluates expressions.
    pub cel: &'a dyn Cel,
    /// Asked before every step whether to go on.
    pub interruption: &'a dyn Fn() -> Option<Interruption>,
    /// Names a new share of a device.
    pub new_share_id: &'a dyn Fn() -> String,
}

/// What each claim gets on a node, in the order of the claims; nothing where they do not all fit.
pub fn allocate(
    cluster: &Cluster<'_>,
    node: &Node,
    claims: &[Claim<'_>],
) -> Result<Option<Vec<AllocationResult>>, Error> {
    let pools = Pools::gather(cluster, node)?;
    let requests = Requests::check(cluster, node, claims, &pools)?;
    let mut search = Search::new(cluster, node, claims, &pools, &requests);
    if let Some(solution) = search.run()? {
        return result::results(cluster, node, claims, &pools, &requests, &solution).map(Some);
    }
    if pools.any_is_invalid() { Err(Error::InvalidPools) } else { Ok(None) }
}

#[cfg(test)]
mod tests;
