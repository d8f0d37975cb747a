//! The search: depth first, in a fixed order, and the first solution is taken.
//!
//! Claims, requests and devices are tried in order. Within a request the next device comes after the one before,
//! because the order in a request does not matter; every request starts at the first device again. What cannot be
//! used is only found out when it is reached, and so are errors.

mod take;

use std::{collections::BTreeMap, mem, ops::Range};

use k8s_openapi::api::core::v1::Node;

use super::{
    Attribute, Claim, Cluster, Error, MAX_RESULTS,
    capacity::{self, Consumed},
    constraints::Constraint,
    counters::{CounterDemand, GroupsBefore, Ledger},
    pools::Pools,
    prune::{Place, Pruning},
    requests::{Requests, Ways},
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
    /// What it takes from the counters of its pool, once that was asked.
    counters: Option<CounterDemand<'a>>,
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
    /// By want and candidate; for wants that select alike only with the first of them.
    known: Vec<Vec<Known<'a>>>,
    derived: BTreeMap<(usize, &'a str), Attribute<'static>>,
    /// By pool, from when they are needed.
    ledgers: BTreeMap<usize, Ledger<'a>>,
    /// By candidate.
    pub(super) uses: Vec<Use<'a>>,
    pub(super) taken: Vec<Vec<Taken<'a>>>,
    chosen: Vec<Vec<usize>>,
    pub(super) steps: u64,
    pruning: Pruning,
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
            pruning: Pruning::default(),
        }
    }

    /// The first solution, if there is one.
    pub(super) fn run(&mut self) -> Result<Option<Solution<'a>>, Error> {
        match self.step(Position::default(), 0)? {
            Step::Solved => {
                Ok(Some(Solution { taken: mem::take(&mut self.taken), chosen: mem::take(&mut self.chosen) }))
            }
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

    fn first_available(&mut self, at: Position, wants: Range<usize>) -> Result<Step, Error> {
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
        let place = Place { claim: at.claim, request: at.request, devices: at.devices, start };
        let mut pruning = mem::take(&mut self.pruning);
        let is_hopeless = pruning.is_hopeless(self, place);
        self.pruning = pruning;
        if is_hopeless {
            return Ok(Step::Failed);
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
            !claims.is_empty() || self.pools.candidates[candidate].is_allocated
        }
    }

    fn known(&mut self, want: usize, candidate: usize) -> &mut Known<'a> {
        let known = &mut self.known[self.requests.wants[want].alike];
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
        Ok(match &self.known[self.requests.wants[want].alike][candidate].demand {
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
        let known = &self.known[self.requests.wants[want].alike][candidate];
        let Demand::Takes(consumed) = &known.demand else { return Ok(false) };
        let allocated = self.cluster.allocated.capacity.get(&device.id);
        Ok(capacity::fits(consumed, &device.device.capacity, allocated, &self.uses[candidate].consumed))
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
