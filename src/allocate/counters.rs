//! What devices take from the counters of their pool, and which of them can stand side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::{Allocated, Consumption, Device, DeviceId, pools::Usable};
use crate::device::Amount;

/// The groups that all devices on a counter set have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Groups<'a> {
    /// Of devices that name none, and so only stand with their like.
    Ungrouped,
    /// These.
    Common(BTreeSet<&'a str>),
}

impl<'a> Groups<'a> {
    fn of(groups: &'a [String]) -> Self {
        if groups.is_empty() {
            Self::Ungrouped
        } else {
            Self::Common(groups.iter().map(String::as_str).collect())
        }
    }

    fn admits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ungrouped, Self::Ungrouped) => true,
            (Self::Common(own), Self::Common(other)) => !own.is_disjoint(other),
            _ => false,
        }
    }

    fn with(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Common(own), Self::Common(other)) => Self::Common(own & other),
            _ => self.clone(),
        }
    }
}

/// What a device has changed: the groups of counter sets, as they were before.
#[derive(Debug, Default)]
pub(super) struct GroupsBefore<'a>(Vec<(&'a str, Option<Groups<'a>>)>);

/// The counters of one pool while devices are chosen.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    /// What allocated and chosen devices leave.
    left: Vec<Amount>,
    /// By counter set and counter, where it is.
    places: BTreeMap<(&'a str, &'a str), usize>,
    /// Whether allocated devices took more than there is of anything; then nobody gets anything.
    is_overdrawn: bool,
    groups: BTreeMap<&'a str, Groups<'a>>,
}

/// Which counters a device consumes, and how much of each.
pub(super) type CounterDemand<'a> = Vec<(usize, &'a Amount)>;

/// A counter of which there is not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage<'a> {
    /// The set of the counter.
    pub counter_set: &'a str,
    /// The counter.
    pub counter: &'a str,
    /// What the device needs of it.
    pub needed: Amount,
    /// What allocated devices leave of it.
    pub left: Amount,
}

impl<'a> Ledger<'a> {
    /// Counts what allocated devices of the pool take, on whichever node they are.
    pub(super) fn open(pool: &Usable<'a>, allocated: &Allocated<'_>) -> Self {
        let sets = pool.counter_sets.values();
        let all = sets.flat_map(|set| set.counters.iter().map(|(name, value)| ((set.name, *name), value)));
        let (mut left, mut places) = (Vec::new(), BTreeMap::new());
        for (key, value) in all {
            places.insert(key, left.len());
            left.push(value.clone());
        }
        let mut groups: BTreeMap<&str, Groups<'_>> = BTreeMap::new();
        for slice in &pool.slices {
            let is_allocated = |device: &&Device<'_>| {
                let id = DeviceId { driver: slice.driver, pool: slice.pool, device: device.name };
                allocated.has_any_of(&id)
            };
            for consumption in slice.devices.iter().filter(is_allocated).flat_map(|device| &device.consumes) {
                for (name, amount) in &consumption.counters {
                    if let Some(place) = places.get(&(consumption.counter_set, *name)) {
                        left[*place] = Amount::minus(&left[*place], amount);
                    }
                }
                let own = Groups::of(consumption.compatibility_groups);
                groups
                    .entry(consumption.counter_set)
                    .and_modify(|groups| *groups = groups.with(&own))
                    .or_insert(own);
            }
        }
        let is_overdrawn = left.iter().any(|left| left.sign().is_lt());
        Self { left, places, is_overdrawn, groups }
    }

    /// What a device consumes, as places among the counters.
    pub(super) fn demand(&self, consumes: &'a [Consumption<'a>]) -> CounterDemand<'a> {
        let all = consumes.iter().flat_map(|consumption| {
            consumption.counters.iter().map(|(name, amount)| ((consumption.counter_set, *name), amount))
        });
        all.filter_map(|(key, amount)| Some((*self.places.get(&key)?, amount))).collect()
    }

    /// Joins the groups of a device, if it can stand with those that are there.
    pub(super) fn join(&mut self, consumes: &'a [Consumption<'a>]) -> Option<GroupsBefore<'a>> {
        let mut before = GroupsBefore::default();
        for consumption in consumes {
            let own = Groups::of(consumption.compatibility_groups);
            let current = self.groups.get(consumption.counter_set);
            let joined = match current {
                Some(groups) if !groups.admits(&own) => {
                    self.leave(before);
                    return None;
                }
                Some(groups) => groups.with(&own),
                None => own,
            };
            before.0.push((consumption.counter_set, current.cloned()));
            self.groups.insert(consumption.counter_set, joined);
        }
        Some(before)
    }

    /// Undoes a join.
    pub(super) fn leave(&mut self, before: GroupsBefore<'a>) {
        for (counter_set, groups) in before.0.into_iter().rev() {
            match groups {
                Some(groups) => self.groups.insert(counter_set, groups),
                None => self.groups.remove(counter_set),
            };
        }
    }

    /// Takes what a device consumes, if there is enough.
    pub(super) fn take(&mut self, demand: &CounterDemand<'a>) -> bool {
        if self.is_overdrawn {
            return false;
        }
        for (place, amount) in demand {
            self.left[*place] = self.left[*place].minus(amount);
        }
        let is_enough = demand.iter().all(|(place, _)| self.left[*place].sign().is_ge());
        if !is_enough {
            self.give_back(demand);
        }
        is_enough
    }

    /// The first counter of which a device needs more than allocated devices leave.
    pub(super) fn shortage(&self, consumes: &[Consumption<'a>]) -> Option<Shortage<'a>> {
        consumes.iter().find_map(|consumption| {
            consumption.counters.iter().find_map(|(name, needed)| {
                let left = &self.left[*self.places.get(&(consumption.counter_set, *name))?];
                (self.is_overdrawn || left < needed).then(|| Shortage {
                    counter_set: consumption.counter_set,
                    counter: name,
                    needed: needed.clone(),
                    left: left.clone(),
                })
            })
        })
    }

    /// Undoes a take.
    pub(super) fn give_back(&mut self, demand: &CounterDemand<'a>) {
        for (place, amount) in demand {
            self.left[*place] = self.left[*place].plus(amount);
        }
    }
}
