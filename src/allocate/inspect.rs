//! Everything that keeps devices from requests, whatever else is chosen. The search stops at the first of these; whoever
//! wants to know why nothing fits wants to know them all.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Node, resource::v1::DeviceTaint};

use super::{
    Attribute, CelError, Claim, Cluster, Device, DeviceId, DeviceView, Error, capacity,
    constraints::published,
    counters::{Ledger, Shortage},
    node,
    pools::{Candidate, Pools, State},
    requests::{CheckedWant, Requests},
    taints,
};
use crate::device::Amount;

/// What there is for claims on a node.
#[derive(Debug)]
pub struct Inspection<'a> {
    /// The pools that the node can reach, in the order in which they are tried.
    pub pools: Vec<InspectedPool<'a>>,
    /// Every request and subrequest, in the order of the claims.
    pub wants: Vec<InspectedWant<'a>>,
}

/// A pool.
#[derive(Debug)]
pub struct InspectedPool<'a> {
    /// Whose it is.
    pub driver: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Whether devices can be taken from it.
    pub condition: PoolCondition,
}

/// Whether devices can be taken from a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolCondition {
    /// Yes.
    Usable,
    /// Slices are missing.
    Incomplete,
    /// It contradicts itself.
    Invalid,
}

/// A request or subrequest, and every device for it.
#[derive(Debug)]
pub struct InspectedWant<'a> {
    /// Which claim it is of.
    pub claim: usize,
    /// The request.
    pub request: &'a str,
    /// The subrequest, if it is one.
    pub subrequest: Option<&'a str>,
    /// Of which class.
    pub class: &'a str,
    /// How many devices, if not all.
    pub count: Option<usize>,
    /// In the order in which they are tried.
    pub devices: Vec<InspectedDevice<'a>>,
}

/// A device.
#[derive(Debug)]
pub struct InspectedDevice<'a> {
    /// Who it is.
    pub id: DeviceId<'a>,
    /// Itself.
    pub device: &'a Device<'a>,
    /// What keeps it from the request, in the order in which the search would notice it.
    pub obstacles: Vec<Obstacle<'a>>,
}

impl<'a> InspectedDevice<'a> {
    /// The value of an attribute, as constraints find it.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&'a Attribute<'a>> {
        published(self.id.driver, self.device, name)
    }
}

/// What keeps a device from a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Obstacle<'a> {
    /// Another claim has it for itself.
    InUse,
    /// It has binding conditions, which are switched off.
    BindingConditions,
    /// A selector does not choose it.
    Selector(Selector<'a>),
    /// It is for other nodes.
    Placement,
    /// It does not have the capacity that is asked for.
    NoCapacity {
        /// Which.
        name: &'a str,
    },
    /// It cannot give the amount that is asked for, however empty it is.
    Amount {
        /// Of which capacity.
        name: &'a str,
        /// How much is asked for.
        wanted: Amount,
        /// How much it has.
        total: Amount,
    },
    /// Others have too much of it.
    Full {
        /// Of which capacity.
        name: &'a str,
        /// How much it would take.
        needed: Amount,
        /// How much others leave.
        left: Amount,
    },
    /// Devices that share something with it leave too little.
    Counters(Shortage<'a>),
    /// It cannot stand beside devices that are allocated.
    Groups,
    /// A taint that the request does not tolerate.
    Taint(&'a DeviceTaint),
    /// It lacks an attribute that a constraint is about.
    NoAttribute {
        /// The attribute.
        name: &'a str,
    },
}

/// A selector that does not choose a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector<'a> {
    /// Whose it is.
    pub owner: Owner,
    /// Which one.
    pub index: usize,
    /// What it says.
    pub expression: &'a str,
    /// What came of it, if not simply that it is false.
    pub error: Option<CelError>,
}

/// Whose selector it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The class.
    Class,
    /// The request.
    Request,
}

/// Looks at every device for every request by itself.
pub fn inspect<'a>(
    cluster: &'a Cluster<'a>,
    node: &Node,
    claims: &'a [Claim<'a>],
) -> Result<Inspection<'a>, Error> {
    let pools = Pools::gather(cluster, node)?;
    let requests = Requests::check(cluster, node, claims, &pools)?;
    let ledgers = pools.pools.iter().map(|pool| match &pool.state {
        State::Usable(usable) => Some(Ledger::open(usable, cluster.allocated)),
        State::Incomplete | State::Invalid => None,
    });
    let mut inspector = Inspector { cluster, node, ledgers: ledgers.collect() };
    let wants = requests.wants.iter().map(|want| InspectedWant {
        claim: want.claim,
        request: want.request(),
        subrequest: want.subrequest(),
        class: want.want.class,
        count: want.all.is_none().then_some(want.count),
        devices: pools
            .candidates
            .iter()
            .map(|candidate| InspectedDevice {
                id: candidate.id,
                device: candidate.device,
                obstacles: inspector.obstacles(&claims[want.claim], want, candidate),
            })
            .collect(),
    });
    Ok(Inspection {
        wants: wants.collect(),
        pools: pools.pools.iter().map(super::pools::Pool::inspected).collect(),
    })
}

struct Inspector<'a, 'n> {
    cluster: &'a Cluster<'a>,
    node: &'n Node,
    /// By pool.
    ledgers: Vec<Option<Ledger<'a>>>,
}

impl<'a> Inspector<'a, '_> {
    fn obstacles(
        &mut self,
        claim: &Claim<'a>,
        want: &CheckedWant<'a>,
        candidate: &Candidate<'a>,
    ) -> Vec<Obstacle<'a>> {
        let (features, device) = (&self.cluster.features, candidate.device);
        let mut obstacles = Vec::new();
        if candidate.is_allocated && !want.is_admin() {
            obstacles.push(Obstacle::InUse);
        }
        let has_conditions = device.binding_conditions.is_some_and(|conditions| !conditions.is_empty());
        if has_conditions && !features.binding_conditions {
            obstacles.push(Obstacle::BindingConditions);
        }
        let selectors = [(Owner::Class, want.class_selectors()), (Owner::Request, &want.want.selectors)];
        for (owner, selectors) in selectors {
            obstacles.extend(self.first_selector(owner, selectors, candidate));
        }
        if candidate.slice.per_device_placement == Some(true)
            && !matches!(node::matches(self.node, &device.placement), Ok(true))
        {
            obstacles.push(Obstacle::Placement);
        }
        if features.consumable_capacity {
            obstacles.extend(self.capacity(want, candidate));
        }
        obstacles.extend(self.counters(candidate));
        if features.device_taints {
            obstacles.extend(taints::preventing(device.taints, want.want.tolerations).map(Obstacle::Taint));
        }
        for constraint in claim.constraints {
            let Some(constraint) = super::constraints::Constraint::new(self.cluster, constraint) else {
                continue;
            };
            let name = constraint.attribute;
            let is_derived = want.want.derived.contains_key(name);
            if constraint.is_about(want.request(), want.subrequest())
                && !is_derived
                && published(candidate.id.driver, device, name).is_none()
            {
                obstacles.push(Obstacle::NoAttribute { name });
            }
        }
        obstacles
    }

    fn first_selector(
        &self,
        owner: Owner,
        selectors: &[Option<&'a str>],
        candidate: &Candidate<'a>,
    ) -> Option<Obstacle<'a>> {
        let view = DeviceView::of(candidate.id.driver, candidate.device);
        selectors.iter().enumerate().find_map(|(index, expression)| {
            let expression = expression.unwrap_or_default();
            let error = match self.cluster.cel.matches(expression, &view) {
                Ok(true) => return None,
                Ok(false) => None,
                Err(error) => Some(error),
            };
            Some(Obstacle::Selector(Selector { owner, index, expression, error }))
        })
    }

    fn capacity(&self, want: &CheckedWant<'a>, candidate: &Candidate<'a>) -> Option<Obstacle<'a>> {
        let capacity = &candidate.device.capacity;
        let wanted = want.want.capacity.as_ref();
        if let Some(name) =
            wanted.into_iter().flatten().map(|(name, _)| *name).find(|name| !capacity.contains_key(name))
        {
            return Some(Obstacle::NoCapacity { name });
        }
        let consumed = want.consumed(self.cluster, candidate, &|| candidate.id.to_string()).ok().flatten();
        let is_enough =
            |consumed: &capacity::Consumed<'a>| capacity::fits(consumed, capacity, None, &BTreeMap::new());
        let Some(consumed) = consumed.filter(is_enough) else {
            let (name, wanted) = wanted?.iter().next()?;
            let total = capacity.get(name)?.value.clone();
            return Some(Obstacle::Amount { name, wanted: wanted.clone(), total });
        };
        let allocated = self.cluster.allocated.capacity.get(&candidate.id)?;
        consumed.into_iter().find_map(|(name, needed)| {
            let left = capacity.get(name)?.value.minus(allocated.get(name)?);
            (left < *needed).then(|| Obstacle::Full { name, needed: needed.into_owned(), left })
        })
    }

    fn counters(&mut self, candidate: &Candidate<'a>) -> Option<Obstacle<'a>> {
        let consumes = candidate.device.consumes.as_slice();
        let is_shared = candidate.device.allow_multiple_allocations
            && self.cluster.features.consumable_capacity
            && self.cluster.allocated.has_any_of(&candidate.id);
        // Who has it has its counters, too.
        if consumes.is_empty() || is_shared || candidate.is_allocated {
            return None;
        }
        let ledger = self.ledgers.get_mut(candidate.pool)?.as_mut()?;
        if let Some(shortage) = ledger.shortage(consumes) {
            return Some(Obstacle::Counters(shortage));
        }
        if !self.cluster.features.compatibility_groups {
            return None;
        }
        match ledger.join(consumes) {
            Some(before) => {
                ledger.leave(before);
                None
            }
            None => Some(Obstacle::Groups),
        }
    }
}
