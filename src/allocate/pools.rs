//! The pools that a node can reach, and the order in which their devices are tried.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use k8s_openapi::api::core::v1::Node;

use super::{
    Cluster, CounterSet, Device, DeviceId, Error, Release, Slice,
    inspect::{InspectedPool, PoolCondition},
    node,
};

/// All pools of a node.
#[derive(Debug)]
pub(super) struct Pools<'a> {
    /// In the order in which they are tried.
    pub(super) pools: Vec<Pool<'a>>,
    /// The devices of usable pools in the order in which they are tried. No two are the same device.
    pub(super) candidates: Vec<Candidate<'a>>,
}

/// A pool.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    driver: &'a str,
    name: &'a str,
    pub(super) state: State<'a>,
}

/// What is known about a pool.
#[derive(Debug)]
pub(super) enum State<'a> {
    /// Not everything.
    Incomplete,
    /// It contradicts itself.
    Invalid,
    /// Everything.
    Usable(Usable<'a>),
}

/// A pool that devices can be taken from.
#[derive(Debug)]
pub(super) struct Usable<'a> {
    /// Where its devices are among the candidates.
    pub(super) candidates: Range<usize>,
    /// Its slices with devices: first those for this node, by name, then those for others.
    pub(super) slices: Vec<&'a Slice<'a>>,
    /// How many of them are for this node.
    targeting: usize,
    /// What its devices consume from.
    pub(super) counter_sets: BTreeMap<&'a str, &'a CounterSet<'a>>,
}

/// A device that could be taken.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    /// Who it is.
    pub(super) id: DeviceId<'a>,
    /// Its slice.
    pub(super) slice: &'a Slice<'a>,
    /// Itself.
    pub(super) device: &'a Device<'a>,
    /// Its pool.
    pub(super) pool: usize,
    /// Whether a claim has it for itself.
    pub(super) is_allocated: bool,
}

impl<'a> Pool<'a> {
    /// As it is shown.
    pub(super) fn inspected(&self) -> InspectedPool<'a> {
        let condition = match self.state {
            State::Usable(_) => PoolCondition::Usable,
            State::Incomplete => PoolCondition::Incomplete,
            State::Invalid => PoolCondition::Invalid,
        };
        InspectedPool { driver: self.driver, name: self.name, condition }
    }

    /// Driver and name.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }

    /// Pools that may have to be waited for come last.
    fn has_binding_conditions(&self) -> bool {
        match &self.state {
            State::Usable(usable) => {
                let devices = usable.targeting().iter().flat_map(|slice| &slice.devices);
                devices.into_iter().any(|device| device.binding_conditions.is_some())
            }
            State::Incomplete | State::Invalid => false,
        }
    }
}

impl<'a> Usable<'a> {
    fn targeting(&self) -> &[&'a Slice<'a>] {
        &self.slices[..self.targeting]
    }
}

impl<'a> Pools<'a> {
    /// Looks through all slices.
    pub(super) fn gather(cluster: &'a Cluster<'a>, node: &Node) -> Result<Self, Error> {
        let mut found: BTreeMap<(&str, &str), Vec<&Slice<'_>>> = BTreeMap::new();
        for slice in cluster.slices.for_node(node.metadata.name.as_deref(), cluster.release) {
            if is_relevant(cluster, node, slice)? {
                add(found.entry((slice.driver, slice.pool)).or_default(), slice);
            }
        }
        let mut pools: Vec<_> = found
            .into_iter()
            .filter_map(|((driver, name), slices)| {
                state(cluster, slices).map(|state| Pool { driver, name, state })
            })
            .collect();
        pools.sort_by_key(Pool::has_binding_conditions);
        let mut candidates = Vec::new();
        for (index, pool) in pools.iter_mut().enumerate() {
            let State::Usable(usable) = &mut pool.state else { continue };
            let start = candidates.len();
            for &slice in usable.targeting() {
                candidates.extend(slice.devices.iter().map(|device| {
                    let id = DeviceId { driver: slice.driver, pool: slice.pool, device: device.name };
                    let is_allocated = cluster.allocated.devices.contains(&id);
                    Candidate { id, slice, device, pool: index, is_allocated }
                }));
            }
            usable.candidates = start..candidates.len();
        }
        Ok(Self { pools, candidates })
    }

    /// Whether any pool contradicts itself.
    pub(super) fn any_is_invalid(&self) -> bool {
        self.pools.iter().any(|pool| matches!(pool.state, State::Invalid))
    }
}

fn is_relevant(cluster: &Cluster<'_>, node: &Node, slice: &Slice<'_>) -> Result<bool, Error> {
    let features = &cluster.features;
    let is_partitioned = slice.per_device_placement.is_some() || !slice.counter_sets.is_empty();
    if (!features.partitionable_devices && is_partitioned) || is_beyond_features(cluster, slice) {
        return Ok(false);
    }
    if cluster.release == Release::V1_36 && !slice.counter_sets.is_empty() {
        return Ok(true);
    }
    let placement = &slice.placement;
    if placement.node_name.is_some() || placement.all_nodes || placement.selector.is_some() {
        return node::matches(node, placement)
            .map_err(|reason| Error::PoolPlacement { of: format!("slice {}", slice.name), reason });
    }
    if slice.per_device_placement == Some(true) {
        for device in &slice.devices {
            let matches = node::matches(node, &device.placement).map_err(|reason| Error::PoolPlacement {
                of: format!("device {} in slice {}", device.name, slice.name),
                reason,
            })?;
            if matches {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a slice says something that cannot be obeyed; its pool is then incomplete.
fn is_beyond_features(cluster: &Cluster<'_>, slice: &Slice<'_>) -> bool {
    cluster.release >= Release::V1_37
        && !cluster.features.compatibility_groups
        && slice
            .devices
            .iter()
            .flat_map(|device| &device.consumes)
            .any(|consumption| !consumption.compatibility_groups.is_empty())
}

/// Only the newest generation counts.
fn add<'a>(slices: &mut Vec<&'a Slice<'a>>, slice: &'a Slice<'a>) {
    match slices.first() {
        Some(first) if slice.generation < first.generation => return,
        Some(first) if slice.generation > first.generation => slices.clear(),
        _ => {}
    }
    slices.push(slice);
}

/// What can be said about a pool; nothing if it is about to be replaced.
fn state<'a>(cluster: &'a Cluster<'a>, relevant: Vec<&'a Slice<'a>>) -> Option<State<'a>> {
    let first = *relevant.first()?;
    let is_complete = |count: usize| i64::try_from(count) == Ok(first.slice_count);
    if is_complete(relevant.len()) {
        return Some(build(cluster, relevant, &[]));
    }
    // Slices for other nodes have been left out so far.
    let all = || cluster.slices.of_pool(first.driver, first.pool);
    if all().any(|slice| slice.generation > first.generation) {
        return None;
    }
    let all: Vec<_> = all()
        .filter(|slice| slice.generation == first.generation && !is_beyond_features(cluster, slice))
        .collect();
    Some(if is_complete(all.len()) { build(cluster, relevant, &all) } else { State::Incomplete })
}

fn build<'a>(cluster: &Cluster<'_>, mut relevant: Vec<&'a Slice<'a>>, all: &[&'a Slice<'a>]) -> State<'a> {
    relevant.sort_by_key(|slice| slice.name);
    let partitionable = cluster.features.partitionable_devices;
    let has_counters = |slice: &&Slice<'_>| partitionable && !slice.counter_sets.is_empty();
    let others = if relevant.len() < all.len() {
        let names: BTreeSet<_> = relevant.iter().map(|slice| slice.name).collect();
        all.iter().copied().filter(|slice| !names.contains(slice.name)).collect()
    } else {
        Vec::new()
    };

    let (counting, targeting): (Vec<_>, Vec<_>) = relevant.into_iter().partition(has_counters);
    let (other_counting, others): (Vec<_>, Vec<_>) = others.into_iter().partition(has_counters);
    if !have_distinct_devices(cluster, &targeting) {
        return State::Invalid;
    }

    let mut counter_sets = BTreeMap::new();
    let mut sets = counting.iter().chain(&other_counting).flat_map(|slice| &slice.counter_sets);
    if partitionable && !sets.all(|set| counter_sets.insert(set.name, set).is_none()) {
        return State::Invalid;
    }
    let count = targeting.len();
    let slices: Vec<_> = targeting.into_iter().chain(others).collect();
    if partitionable && !slices.iter().all(|slice| consumes_what_exists(slice, &counter_sets)) {
        return State::Invalid;
    }
    State::Usable(Usable { candidates: 0..0, slices, targeting: count, counter_sets })
}

fn have_distinct_devices(cluster: &Cluster<'_>, slices: &[&Slice<'_>]) -> bool {
    // Nearly always this is known from the time before.
    slices.first().is_none_or(|first| cluster.slices.have_distinct_devices(first.driver, first.pool)) || {
        let mut names = BTreeSet::new();
        slices.iter().flat_map(|slice| &slice.devices).all(|device| names.insert(device.name))
    }
}

fn consumes_what_exists(slice: &Slice<'_>, counter_sets: &BTreeMap<&str, &CounterSet<'_>>) -> bool {
    slice.devices.iter().flat_map(|device| &device.consumes).all(|consumption| {
        counter_sets
            .get(consumption.counter_set)
            .is_some_and(|set| consumption.counters.keys().all(|name| set.counters.contains_key(name)))
    })
}
