//! Knows that the rest of a search fails without doing it.
//!
//! The search of the reference tries all combinations: one device too few for a request takes it twice as long for
//! every device, and one too few for several requests even longer. Here the rest is skipped as soon as it is certain
//! that there are not enough devices, by a matching of what is still wanted with what is still free. The answer is the
//! same, because nothing is skipped in which the reference could have found an error: before anything is skipped,
//! every expression that the rest could reach is evaluated, and if one of them fails nothing is skipped at all.

use std::mem;

use super::{
    constraints::Constraint,
    requests::{CheckedWant, Ways},
    search::Search,
    taints,
};

/// So many steps are taken before it is worth the effort.
pub(super) const PATIENCE: u64 = 256;
/// The most steps between two attempts that lead to nothing.
const LONGEST_PAUSE: u64 = 64;

/// What is known about leaving out parts of a search.
#[derive(Debug, Default)]
pub(super) enum Pruning {
    /// Nothing yet.
    #[default]
    Untried,
    /// Something could be missed.
    Forbidden,
    /// What cannot lead anywhere can be left out.
    Allowed(Possible),
}

/// Which devices each want could ever get.
#[derive(Debug)]
pub(super) struct Possible {
    /// By want and candidate.
    pairs: Vec<Vec<Pair>>,
    /// The step of the next attempt, and how long to wait after that if it fails.
    next: u64,
    pause: u64,
}

/// Whether a want could get a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pair {
    Impossible,
    /// For itself.
    Exclusive,
    /// Together with others.
    Shared,
}

/// Where a search is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The claim and the request of it that devices are looked for.
    pub(super) claim: usize,
    pub(super) request: usize,
    /// How many it has.
    pub(super) devices: usize,
    /// The first candidate for the next one.
    pub(super) start: usize,
}

impl Pruning {
    /// Whether no way leads from here to a solution, as far as that is easily known.
    pub(super) fn is_hopeless(&mut self, search: &mut Search<'_>, place: Place) -> bool {
        if search.steps < PATIENCE {
            return false;
        }
        if matches!(self, Self::Untried) {
            *self = Possible::of(search).map_or(Self::Forbidden, Self::Allowed);
        }
        match self {
            Self::Allowed(possible) => possible.excludes(search, place),
            Self::Untried | Self::Forbidden => false,
        }
    }
}

impl Possible {
    /// Evaluates everything that the search could reach; nothing if skipping could be noticed.
    fn of(search: &mut Search<'_>) -> Option<Self> {
        let requests = search.requests;
        let constraints = &search.constraints;
        // A choice between subrequests can end in too many devices, which is told from failing otherwise.
        let has_choices = requests.claims.iter().flatten().any(|ways| matches!(ways, Ways::First(_)));
        // A derived attribute can fail in a constraint, and so can a request for all devices.
        let may_fail = |want: &CheckedWant<'_>| {
            !want.want.derived.is_empty() || (want.all.is_some() && !constraints[want.claim].is_empty())
        };
        let remembers = constraints.iter().flatten().any(Constraint::remembers_what_was_removed);
        if has_choices || remembers || requests.wants.iter().any(may_fail) {
            return None;
        }
        let pairs = (0..requests.wants.len()).map(|want| pairs(search, want)).collect::<Option<_>>()?;
        Some(Self { pairs, next: 0, pause: 1 })
    }

    fn excludes(&mut self, search: &Search<'_>, place: Place) -> bool {
        if search.steps < self.next {
            return false;
        }
        let excludes = !self.can_be_matched(search, place);
        self.pause = if excludes { 1 } else { (self.pause * 2).min(LONGEST_PAUSE) };
        self.next = search.steps + self.pause;
        excludes
    }

    /// Whether everything that is still wanted could get devices, if nothing but their number mattered.
    fn can_be_matched(&self, search: &Search<'_>, place: Place) -> bool {
        let claims = search.requests.claims.iter().enumerate().skip(place.claim);
        let rest = claims.flat_map(|(claim, ways)| {
            let first = if claim == place.claim { place.request } else { 0 };
            ways.iter().skip(first).filter_map(|ways| match ways {
                Ways::One(want) => Some(*want),
                Ways::First(_) => None,
            })
        });
        let mut demands: Vec<(Vec<usize>, usize)> = Vec::new();
        for (index, want) in rest.enumerate() {
            let checked = &search.requests.wants[want];
            if checked.all.is_some() {
                continue;
            }
            let (devices, start) = if index == 0 { (place.devices, place.start) } else { (0, 0) };
            let free = |candidate: &usize| !search.is_in_use(want, *candidate);
            let of = |kind| {
                let candidates = start..self.pairs[want].len();
                candidates.filter(move |candidate| self.pairs[want][*candidate] == kind)
            };
            let shared = of(Pair::Shared).filter(free).count();
            let missing = (checked.count - devices).saturating_sub(shared);
            let exclusive: Vec<_> = of(Pair::Exclusive).filter(free).collect();
            if exclusive.len() < missing {
                return false;
            }
            // Others do not matter to one with admin access.
            if !checked.is_admin() {
                demands.push((exclusive, missing));
            }
        }
        is_enough(&demands, search.pools.candidates.len())
    }
}

/// Whether all demands can be met together, each by so many of its own candidates.
fn is_enough(demands: &[(Vec<usize>, usize)], candidates: usize) -> bool {
    // Too few for all is seen at once, and nearly always what it is.
    let mut is_wanted = vec![false; candidates];
    let wanted = demands.iter().flat_map(|(choices, _)| choices);
    let different = wanted.filter(|candidate| !mem::replace(&mut is_wanted[**candidate], true)).count();
    let missing: usize = demands.iter().map(|(_, missing)| missing).sum();
    let mut matching = Matching::new(candidates);
    missing <= different && demands.iter().all(|(choices, missing)| matching.add(choices, *missing))
}

/// What a want could get; nothing if an expression fails.
fn pairs(search: &mut Search<'_>, want: usize) -> Option<Vec<Pair>> {
    let checked = &search.requests.wants[want];
    let features = &search.cluster.features;
    let mut pairs = Vec::with_capacity(search.pools.candidates.len());
    for candidate in 0..search.pools.candidates.len() {
        let device = search.pools.candidates[candidate].device;
        let is_selectable = checked.all.is_none() && search.is_selectable(want, candidate).ok()?;
        let has_capacity = !is_selectable
            || !features.consumable_capacity
            || search.consumed(want, candidate).ok()?.is_some();
        let is_tainted = features.device_taints && taints::prevent(device.taints, checked.want.tolerations);
        pairs.push(if !is_selectable || !has_capacity || is_tainted {
            Pair::Impossible
        } else if features.consumable_capacity && device.allow_multiple_allocations {
            Pair::Shared
        } else {
            Pair::Exclusive
        });
    }
    Some(pairs)
}

/// Who gets which device, changed as others need them.
struct Matching<'c> {
    /// By candidate, whose it is.
    owners: Vec<Option<usize>>,
    /// By owner, what it could have; one owner for each device that is wanted.
    choices: Vec<&'c [usize]>,
    seen: Vec<bool>,
}

impl<'c> Matching<'c> {
    fn new(candidates: usize) -> Self {
        Self { owners: vec![None; candidates], choices: Vec::new(), seen: vec![false; candidates] }
    }

    /// Adds so many owners with the same choices, if all can have something.
    fn add(&mut self, choices: &'c [usize], count: usize) -> bool {
        (0..count).all(|_| {
            self.choices.push(choices);
            self.seen.fill(false);
            self.place(self.choices.len() - 1)
        })
    }

    fn place(&mut self, owner: usize) -> bool {
        for &candidate in self.choices[owner] {
            if mem::replace(&mut self.seen[candidate], true) {
                continue;
            }
            let is_free = match self.owners[candidate] {
                None => true,
                Some(other) => self.place(other),
            };
            if is_free {
                self.owners[candidate] = Some(owner);
                return true;
            }
        }
        false
    }
}
