//! The search: depth first, in a fixed order, and the first solution is taken.
//!
//! Claims, requests and devices are tried in order. Within a request the next device comes after the one before,
//! because the order in a request does not matter; every request starts at the first device again. What cannot be
//! used is only found out when it is reached, and so are errors.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::{
    Attribute, CelError, Channel, Claim, Cluster, DeviceView, Error, MAX_RESULTS, Release,
    capacity::{self, Consumed},
    constraints::{Constraint, published},
    counters::{GroupsBefore, Ledger},
    error::RequestFlaw,
    pools::{Candidate, Pools, State},
    requests::{CheckedWant, Requests, Ways},
    taints,
};
use crate::device::Amount;

/// What every claim gets.
#[derive(Debug)]
pub(super) struct Solution<'a> {
    /// By claim.
    pub(super) taken: Vec<Vec<Taken<'a>>>,
    /// By claim and request, which want it was.
    pub(super) chosen: Vec<Vec<usize>>,
}

/// A device for a request.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    /// For which want.
    pub(super) want: usize,
    /// Which device.
    pub(super) candidate: usize,
    /// Of a shared device, how much.
    pub(super) share: Option<Consumed<'a>>,
    reserved: Reserved<'a>,
}

/// What was changed for a device, so that it can be changed back.
#[derive(Debug, Default)]
struct Reserved<'a> {
    groups: Option<GroupsBefore<'a>>,
    counters: bool,
    constraints: usize,
}

/// How a part of the search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Solved,
    Failed,
    /// The claim would get too many devices; only other subrequests can help.
    TooMany,
}

/// Where the search is.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    claim: usize,
    request: usize,
    /// The subrequest that is tried.
    subrequest: Option<usize>,
    /// How many devices the request has.
    devices: usize,
}

/// The state of a device during the search.
#[derive(Debug, Default)]
pub(super) struct Use<'a> {
    /// The claims that have it.
    pub(super) claims: Vec<usize>,
    /// How many shares of it there are.
    shares: usize,
    /// How much of it they take.
    consumed: BTreeMap<&'a str, Amount>,
}

/// What was found out about a want and a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Known<'a> {
    selectable: Option<bool>,
    demand: Demand<'a>,
}

/// What a want takes of a device.
#[derive(Debug, Clone, Default)]
enum Demand<'a> {
    #[default]
    Unknown,
    /// More than the device ever has.
    Impossible,
    Takes(Consumed<'a>),
}

/// The search.
pub(super) struct Search<'a> {
    pub(super) cluster: &'a Cluster<'a>,
    node: &'a Node,
    pub(super) pools: &'a Pools<'a>,
    pub(super) requests: &'a Requests<'a>,
    pub(super) constraints: Vec<Vec<Constraint<'a>>>,
    /// By want and candidate.
    known: Vec<Vec<Known<'a>>>,
    derived: BTreeMap<(usize, &'a str), Attribute<'static>>,
    /// By pool, from when they are needed.
    ledgers: BTreeMap<usize, Ledger<'a>>,
    /// By candidate.
    pub(super) uses: Vec<Use<'a>>,
    pub(super) taken: Vec<Vec<Taken<'a>>>,
    chosen: Vec<Vec<usize>>,
    pub(super) steps: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        cluster: &'a Cluster<'a>,
        node: &'a Node,
        claims: &'a [Claim<'a>],
        pools: &'a Pools<'a>,
        requests: &'a Requests<'a>,
    ) -> Self {
        let constraints = claims.iter().map(|claim| {
            claim.constraints.iter().filter_map(|constraint| Constraint::new(cluster, constraint)).collect()
        });
        Self {
            cluster,
            node,
            pools,
            requests,
            constraints: constraints.collect(),
            known: vec![Vec::new(); requests.wants.len()],
            derived: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            uses: pools.candidates.iter().map(|_| Use::default()).collect(),
            taken: claims.iter().map(|_| Vec::new()).collect(),
            chosen: requests.claims.iter().map(|ways| ways.iter().map(Ways::first).collect()).collect(),
            steps: 0,
        }
    }

    /// The first solution, if there is one.
    pub(super) fn run(&mut self) -> Result<Option<Solution<'a>>, Error> {
        match self.step(Position::default(), 0)? {
            Step::Solved => Ok(Some(Solution {
                taken: std::mem::take(&mut self.taken),
                chosen: std::mem::take(&mut self.chosen),
            })),
            Step::Failed => Ok(None),
            Step::TooMany => Err(Error::MaxSize),
        }
    }

    fn step(&mut self, at: Position, start: usize) -> Result<Step, Error> {
        self.steps += 1;
        if let Some(interruption) = (self.cluster.interruption)() {
            return Err(Error::Interrupted(interruption));
        }
        let requests = self.requests;
        let Some(claim) = requests.claims.get(at.claim) else { return Ok(Step::Solved) };
        let Some(ways) = claim.get(at.request) else {
            let next = self.step(Position { claim: at.claim + 1, ..Position::default() }, 0)?;
            // Too many for the next claim can be fewer if this one is allocated otherwise.
            return Ok(if next == Step::TooMany { Step::Failed } else { next });
        };
        let want = match (ways, at.subrequest) {
            (&Ways::One(want), _) | (Ways::First(_), Some(want)) => want,
            (Ways::First(wants), None) => return self.first_available(at, wants.clone()),
        };
        self.devices(at, want, start)
    }

    fn first_available(&mut self, at: Position, wants: std::ops::Range<usize>) -> Result<Step, Error> {
        let mut end = Step::TooMany;
        for want in wants {
            match self.step(Position { subrequest: Some(want), ..at }, 0)? {
                Step::Solved => {
                    self.chosen[at.claim][at.request] = want;
                    return Ok(Step::Solved);
                }
                Step::Failed => end = Step::Failed,
                Step::TooMany => {}
            }
        }
        Ok(end)
    }

    /// The devices that a want still needs.
    fn devices(&mut self, at: Position, index: usize, start: usize) -> Result<Step, Error> {
        let want = &self.requests.wants[index];
        if want.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Step::Failed);
        }
        if at.devices >= want.count {
            let next = Position { claim: at.claim, request: at.request + 1, ..Position::default() };
            return self.step(next, 0);
        }
        if want.count - at.devices > MAX_RESULTS - self.taken[at.claim].len() {
            return Ok(Step::TooMany);
        }
        let next = Position { devices: at.devices + 1, ..at };
        if let Some(all) = &want.all {
            let candidate = all[at.devices];
            if !self.take(index, candidate)? {
                return Ok(Step::Failed);
            }
            let step = self.step(next, 0)?;
            if step != Step::Solved {
                self.release(at.claim);
            }
            return Ok(step);
        }
        for candidate in start..self.pools.candidates.len() {
            if !self.is_candidate_for(index, candidate)? || !self.take(index, candidate)? {
                continue;
            }
            let step = self.step(next, candidate + 1)?;
            match step {
                Step::Solved => return Ok(step),
                Step::Failed => self.release(at.claim),
                Step::TooMany => {
                    self.release(at.claim);
                    return Ok(step);
                }
            }
        }
        Ok(Step::Failed)
    }

    /// Whether a device is free, selected and large enough.
    fn is_candidate_for(&mut self, want: usize, candidate: usize) -> Result<bool, Error> {
        Ok(!self.is_in_use(want, candidate)
            && self.is_selectable(want, candidate)?
            && self.has_capacity(want, candidate)?)
    }

    /// Whether somebody has the device who does not let the want have it too.
    pub(super) fn is_in_use(&self, want: usize, candidate: usize) -> bool {
        let want = &self.requests.wants[want];
        let claims = &self.uses[candidate].claims;
        if want.is_admin() {
            claims.contains(&want.claim)
        } else {
            !claims.is_empty()
                || self.cluster.allocated.devices.contains(&self.pools.candidates[candidate].id)
        }
    }

    fn known(&mut self, want: usize, candidate: usize) -> &mut Known<'a> {
        let known = &mut self.known[want];
        if known.is_empty() {
            known.resize(self.pools.candidates.len(), Known::default());
        }
        &mut known[candidate]
    }

    /// Whether selectors and node allow a device, asked once.
    pub(super) fn is_selectable(&mut self, want: usize, candidate: usize) -> Result<bool, Error> {
        if let Some(selectable) = self.known(want, candidate).selectable {
            return Ok(selectable);
        }
        let (checked, device) = (&self.requests.wants[want], &self.pools.candidates[candidate]);
        let selectable = checked.selects(self.cluster, self.node, device)?;
        self.known(want, candidate).selectable = Some(selectable);
        Ok(selectable)
    }

    /// What a want takes of a device, calculated once.
    pub(super) fn consumed(&mut self, want: usize, candidate: usize) -> Result<Option<&Consumed<'a>>, Error> {
        if let Demand::Unknown = self.known(want, candidate).demand {
            let (checked, device) = (&self.requests.wants[want], &self.pools.candidates[candidate]);
            let consumed = checked.consumed(self.cluster, device, &|| device.id.to_string())?;
            self.known(want, candidate).demand = consumed.map_or(Demand::Impossible, Demand::Takes);
        }
        Ok(match &self.known[want][candidate].demand {
            Demand::Takes(consumed) => Some(consumed),
            Demand::Unknown | Demand::Impossible => None,
        })
    }

    fn has_capacity(&mut self, want: usize, candidate: usize) -> Result<bool, Error> {
        if !self.cluster.features.consumable_capacity {
            return Ok(true);
        }
        self.consumed(want, candidate)?;
        let device = &self.pools.candidates[candidate];
        let Demand::Takes(consumed) = &self.known[want][candidate].demand else { return Ok(false) };
        let allocated = self.cluster.allocated.capacity.get(&device.id);
        Ok(capacity::fits(consumed, &device.device.capacity, allocated, &self.uses[candidate].consumed))
    }

    fn is_shareable(&self, candidate: &Candidate<'_>) -> bool {
        self.cluster.features.consumable_capacity && candidate.device.allow_multiple_allocations
    }

    /// Whether shares of a device exist already, so that its counters are taken.
    fn has_shares(&self, candidate: usize) -> bool {
        let id = &self.pools.candidates[candidate].id;
        let Cluster { release, allocated, .. } = self.cluster;
        allocated.capacity.contains_key(id)
            || (*release >= Release::V1_37 && allocated.shared.contains(id))
            || self.uses[candidate].shares > 0
    }

    /// Takes a device for a want, if everything allows it. The device is selectable.
    fn take(&mut self, index: usize, at: usize) -> Result<bool, Error> {
        let (want, candidate) = (&self.requests.wants[index], &self.pools.candidates[at]);
        let is_shareable = self.is_shareable(candidate);
        let is_in_use = self.is_in_use(index, at);
        if is_in_use && !(want.is_admin() && is_shareable) {
            return Ok(false);
        }
        if !self.operations_can_be_skipped(candidate) {
            return Ok(false);
        }
        let mut reserved = Reserved::default();
        let allowed = match self.reserve(want, at, is_shareable, &mut reserved) {
            Ok(true) => self.has_capacity(index, at),
            other => other,
        };
        if !matches!(allowed, Ok(true)) {
            self.give_back(want, at, reserved);
            return allowed;
        }
        let share = if is_shareable {
            let share = self.consumed(index, at)?.cloned().unwrap_or_default();
            let uses = &mut self.uses[at];
            for (name, amount) in &share {
                let total =
                    uses.consumed.get(name).map_or_else(|| amount.clone(), |total| total.plus(amount));
                uses.consumed.insert(name, total);
            }
            uses.shares += 1;
            Some(share)
        } else {
            self.uses[at].claims.push(want.claim);
            None
        };
        self.taken[want.claim].push(Taken { want: index, candidate: at, share, reserved });
        Ok(true)
    }

    fn operations_can_be_skipped(&self, candidate: &Candidate<'_>) -> bool {
        let Cluster { release, channel, features, .. } = self.cluster;
        if *release == Release::V1_36
            || *channel == Channel::Incubating
            || candidate.slice.skip_node_operations.is_empty()
        {
            return true;
        }
        let declared = self.node.status.as_ref().and_then(|status| status.declared_features.as_ref());
        features.optional_node_operations
            && declared
                .is_some_and(|declared| declared.iter().any(|name| name == "DRAOptionalNodeOperations"))
    }

    /// Groups, counters, taints and constraints, in this order.
    fn reserve(
        &mut self,
        want: &'a CheckedWant<'a>,
        at: usize,
        is_shareable: bool,
        reserved: &mut Reserved<'a>,
    ) -> Result<bool, Error> {
        let candidate = &self.pools.candidates[at];
        let features = &self.cluster.features;
        let consumes = candidate.device.consumes.as_slice();
        if !consumes.is_empty() {
            if !features.partitionable_devices {
                return Ok(false);
            }
            // Further shares of a device take no more counters.
            if !(is_shareable && self.has_shares(at)) {
                let Some(ledger) = self.ledger(candidate.pool) else { return Ok(false) };
                if features.compatibility_groups {
                    reserved.groups = ledger.join(consumes);
                    if reserved.groups.is_none() {
                        return Ok(false);
                    }
                }
                reserved.counters = ledger.take(consumes);
                if !reserved.counters {
                    return Ok(false);
                }
            }
        }
        if features.device_taints && taints::prevent(candidate.device.taints, want.want.tolerations) {
            return Ok(false);
        }
        for index in 0..self.constraints[want.claim].len() {
            if !self.constrain(want, at, index)? {
                return match want.all {
                    // A claim that wants all devices, and forbids itself to have them, makes no sense.
                    Some(_) => Err(want.error(RequestFlaw::Unsatisfied(candidate.id.to_string()))),
                    None => Ok(false),
                };
            }
            reserved.constraints += 1;
        }
        Ok(true)
    }

    fn ledger(&mut self, index: usize) -> Option<&mut Ledger<'a>> {
        let State::Usable(pool) = &self.pools.pools[index].state else { return None };
        let allocated = self.cluster.allocated;
        Some(self.ledgers.entry(index).or_insert_with(|| Ledger::open(pool, allocated)))
    }

    fn constrain(&mut self, want: &'a CheckedWant<'a>, at: usize, index: usize) -> Result<bool, Error> {
        let constraint = &self.constraints[want.claim][index];
        if !constraint.is_about(want.request(), want.subrequest()) {
            return Ok(true);
        }
        let name = constraint.attribute;
        let Some(attribute) = self.attribute(want, at, name)? else { return Ok(false) };
        Ok(self.constraints[want.claim][index].add(want.request(), attribute))
    }

    /// The value of an attribute: derived ones go before published ones.
    fn attribute(
        &mut self,
        want: &CheckedWant<'a>,
        at: usize,
        name: &str,
    ) -> Result<Option<Attribute<'a>>, Error> {
        let candidate = &self.pools.candidates[at];
        let Some(&expression) = want.want.derived.get(name).filter(|_| self.derives()) else {
            return Ok(published(candidate, name));
        };
        if let Some(known) = self.derived.get(&(at, expression)) {
            return Ok(Some(known.clone()));
        }
        let view = DeviceView::of(candidate.id.driver, candidate.device);
        let value = self.cluster.cel.attribute(expression, &view).map_err(|error| {
            let name = name.to_owned();
            match error {
                CelError::Compile(reason) => Error::DerivedCompile { name, reason },
                CelError::Runtime(reason) => {
                    Error::Derived { name, device: candidate.id.to_string(), reason }
                }
            }
        })?;
        self.derived.insert((at, expression), value.clone());
        Ok(Some(value))
    }

    fn derives(&self) -> bool {
        self.cluster.release >= Release::V1_37 && self.cluster.features.derived_attributes
    }

    /// Gives back the device that a claim got last.
    fn release(&mut self, claim: usize) {
        let Some(taken) = self.taken[claim].pop() else { return };
        let uses = &mut self.uses[taken.candidate];
        match &taken.share {
            Some(share) => {
                for (name, amount) in share {
                    if let Some(total) = uses.consumed.get_mut(name) {
                        *total = total.minus(amount);
                    }
                }
                uses.shares -= 1;
            }
            None => uses.claims.retain(|user| *user != claim),
        }
        self.give_back(&self.requests.wants[taken.want], taken.candidate, taken.reserved);
    }

    fn give_back(&mut self, want: &CheckedWant<'a>, at: usize, reserved: Reserved<'a>) {
        let candidate = &self.pools.candidates[at];
        for constraint in self.constraints[want.claim][..reserved.constraints].iter_mut().rev() {
            if constraint.is_about(want.request(), want.subrequest()) {
                constraint.remove(want.request());
            }
        }
        if let Some(ledger) = self.ledgers.get_mut(&candidate.pool) {
            if let Some(groups) = reserved.groups {
                ledger.leave(groups);
            }
            if reserved.counters {
                ledger.give_back(&candidate.device.consumes);
            }
        }
    }
}

impl Ways {
    fn first(&self) -> usize {
        match self {
            Self::One(want) => *want,
            Self::First(wants) => wants.start,
        }
    }
}
