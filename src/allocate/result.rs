//! A solution as it is written into claims.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{
        core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
        resource::v1::{AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult},
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Channel, Claim, Cluster, Error, Release, config,
    pools::{Candidate, Pools},
    requests::Requests,
    search::{Solution, Taken},
};

/// What every claim gets, in the order of the claims.
pub(super) fn results(
    cluster: &Cluster<'_>,
    node: &Node,
    claims: &[Claim<'_>],
    pools: &Pools<'_>,
    requests: &Requests<'_>,
    solution: &Solution<'_>,
) -> Result<Vec<AllocationResult>, Error> {
    let parts = claims.iter().zip(&solution.taken).zip(&solution.chosen);
    parts
        .map(|((claim, taken), chosen)| {
            let results = taken.iter().map(|taken| result(cluster, pools, requests, taken)).collect();
            let chosen: Vec<_> = chosen.iter().map(|want| &requests.wants[*want]).collect();
            let config = config::resolve(cluster.release, claim, &chosen);
            let devices = taken.iter().map(|taken| &pools.candidates[taken.candidate]);
            let node_selector = node_selector(devices, node)
                .map_err(|terms| Error::NodeSelector { claim: claim.name.to_owned(), terms })?;
            Ok(AllocationResult {
                allocation_timestamp: None,
                devices: Some(DeviceAllocationResult { config: some(config), results: some(results) }),
                node_selector,
            })
        })
        .collect()
}

/// An empty list is not written.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn result(
    cluster: &Cluster<'_>,
    pools: &Pools<'_>,
    requests: &Requests<'_>,
    taken: &Taken<'_>,
) -> DeviceRequestAllocationResult {
    let want = &requests.wants[taken.want];
    let Candidate { id, slice, device, .. } = &pools.candidates[taken.candidate];
    let conditions = |conditions: Option<&[String]>| {
        conditions.filter(|_| cluster.features.binding_conditions).map(<[String]>::to_vec).and_then(some)
    };
    let share = taken.share.as_ref();
    let amounts = share.filter(|share| !share.is_empty()).map(|share| {
        share.iter().map(|(name, amount)| ((*name).to_owned(), Quantity(amount.to_string()))).collect()
    });
    let skips = cluster.release >= Release::V1_37 && cluster.channel == Channel::Experimental;
    DeviceRequestAllocationResult {
        admin_access: want.is_admin().then_some(true),
        binding_conditions: conditions(device.binding_conditions),
        binding_failure_conditions: conditions(device.binding_failure_conditions),
        consumed_capacity: amounts,
        device: id.device.to_owned(),
        driver: id.driver.to_owned(),
        pool: id.pool.to_owned(),
        request: want.full_name(),
        share_id: share.map(|_| (cluster.new_share_id)()),
        skip_node_operations: some(slice.skip_node_operations.to_vec()).filter(|_| skips),
        tolerations: some(want.want.tolerations.to_vec()),
    }
}

/// The nodes that can reach all devices; an error says how many terms a selector has that cannot be merged.
fn node_selector<'a>(
    devices: impl Iterator<Item = &'a Candidate<'a>>,
    node: &Node,
) -> Result<Option<NodeSelector>, usize> {
    let mut merged = NodeSelectorTerm::default();
    for Candidate { slice, device, .. } in devices {
        let per_device = slice.per_device_placement == Some(true);
        let placement = if per_device { &device.placement } else { &slice.placement };
        if placement.node_name.is_some() || device.binds_to_node {
            return Ok(Some(only(node)));
        }
        match placement.selector.map(|selector| selector.node_selector_terms.as_slice()) {
            None | Some([]) => {}
            Some([term]) => {
                merge(&mut merged.match_fields, term.match_fields.as_deref());
                merge(&mut merged.match_expressions, term.match_expressions.as_deref());
            }
            Some(terms) => return Err(terms.len()),
        }
    }
    let is_empty = merged == NodeSelectorTerm::default();
    Ok((!is_empty).then(|| NodeSelector { node_selector_terms: vec![merged] }))
}

fn only(node: &Node) -> NodeSelector {
    let requirement = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.metadata.name.clone().unwrap_or_default()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), match_expressions: None };
    NodeSelector { node_selector_terms: vec![term] }
}

/// Adds what is not there yet, whatever the order of values.
fn merge(into: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&[NodeSelectorRequirement]>) {
    let values = |requirement: &NodeSelectorRequirement| -> BTreeSet<String> {
        requirement.values.iter().flatten().cloned().collect()
    };
    for requirement in from.unwrap_or_default() {
        let list = into.get_or_insert_default();
        let is_there = list.iter().any(|other| {
            other.key == requirement.key
                && other.operator == requirement.operator
                && values(other) == values(requirement)
        });
        if !is_there {
            list.push(requirement.clone());
        }
    }
}
