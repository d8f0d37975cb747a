//! All slices of a cluster, found by node and by pool.
//!
//! A scheduler asks for one node after the other, and every node sees a few slices of very many.

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::OnceLock,
};

use super::{Release, Slice};

/// All slices of a cluster.
#[derive(Debug, Default)]
pub struct Slices<'a> {
    all: Vec<Slice<'a>>,
    /// By the name of the node that they are for.
    of_nodes: HashMap<&'a str, Vec<usize>>,
    /// Those for no node in particular.
    shared: Vec<usize>,
    /// Those and every one with counters, which 1.36 shows to all nodes.
    shared_or_counting: Vec<usize>,
    /// By driver and pool.
    of_pools: HashMap<(&'a str, &'a str), PoolSlices>,
}

/// The slices of one pool, of all generations.
#[derive(Debug, Default)]
struct PoolSlices {
    places: Vec<usize>,
    /// Whether no device has the name of another, once that was asked.
    has_distinct_devices: OnceLock<bool>,
}

impl<'a> FromIterator<Slice<'a>> for Slices<'a> {
    fn from_iter<I: IntoIterator<Item = Slice<'a>>>(slices: I) -> Self {
        let mut found = Self { all: slices.into_iter().collect(), ..Self::default() };
        for (place, slice) in found.all.iter().enumerate() {
            match slice.placement.node_name {
                Some(name) => found.of_nodes.entry(name).or_default().push(place),
                None => found.shared.push(place),
            }
            if slice.placement.node_name.is_none() || !slice.counter_sets.is_empty() {
                found.shared_or_counting.push(place);
            }
            found.of_pools.entry((slice.driver, slice.pool)).or_default().places.push(place);
        }
        found
    }
}

impl<'a> Deref for Slices<'a> {
    type Target = [Slice<'a>];

    fn deref(&self) -> &[Slice<'a>] {
        &self.all
    }
}

impl<'a> Slices<'a> {
    /// The slices of this node, then those of no node in particular.
    pub(super) fn for_node(&self, name: Option<&str>, release: Release) -> impl Iterator<Item = &Slice<'a>> {
        let is_own = move |slice: &&Slice<'_>| release >= Release::V1_37 || slice.counter_sets.is_empty();
        let own = name.and_then(|name| self.of_nodes.get(name)).into_iter().flatten();
        let shared = match release {
            Release::V1_36 => &self.shared_or_counting,
            Release::V1_37 => &self.shared,
        };
        own.map(|place| &self.all[*place]).filter(is_own).chain(shared.iter().map(|place| &self.all[*place]))
    }

    /// The slices of a pool, of all generations and for all nodes.
    pub(super) fn of_pool(&self, driver: &'a str, pool: &'a str) -> impl Iterator<Item = &Slice<'a>> {
        let places = self.of_pools.get(&(driver, pool)).map(|pool| pool.places.as_slice());
        places.unwrap_or_default().iter().map(|place| &self.all[*place])
    }

    /// Whether all devices of a pool, in whichever slice, have different names.
    pub(super) fn have_distinct_devices(&self, driver: &'a str, pool: &'a str) -> bool {
        self.of_pools.get(&(driver, pool)).is_none_or(|pool| {
            *pool.has_distinct_devices.get_or_init(|| {
                let mut names = HashSet::new();
                let slices = pool.places.iter().map(|place| &self.all[*place]);
                slices.flat_map(|slice| &slice.devices).all(|device| names.insert(device.name))
            })
        })
    }
}
