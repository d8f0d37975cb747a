//! Taking one device for a request, and giving it back.

use super::{Reserved, Search, Taken};
use crate::allocate::{
    Attribute, CelError, Channel, Cluster, DeviceView, Error, Release,
    constraints::published,
    counters::{CounterDemand, Ledger},
    error::RequestFlaw,
    pools::{Candidate, State},
    requests::CheckedWant,
    taints,
};

impl<'a> Search<'a> {
    /// Takes a device for a want, if everything allows it. The device is selectable.
    pub(super) fn take(&mut self, index: usize, at: usize) -> Result<bool, Error> {
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
                let total = uses
                    .consumed
                    .get(name)
                    .map_or_else(|| amount.clone().into_owned(), |total| total.plus(amount));
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

    /// Whether several requests can have it at the same time.
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
                let Some((ledger, demand)) = self.ledger(candidate, at) else { return Ok(false) };
                if features.compatibility_groups {
                    reserved.groups = ledger.join(consumes);
                    if reserved.groups.is_none() {
                        return Ok(false);
                    }
                }
                reserved.counters = ledger.take(demand);
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

    /// The counters of the pool of a device, and what the device takes from them.
    fn ledger(
        &mut self,
        candidate: &Candidate<'a>,
        at: usize,
    ) -> Option<(&mut Ledger<'a>, &CounterDemand<'a>)> {
        let State::Usable(pool) = &self.pools.pools[candidate.pool].state else { return None };
        let allocated = self.cluster.allocated;
        let ledger = self.ledgers.entry(candidate.pool).or_insert_with(|| Ledger::open(pool, allocated));
        let demand = self.uses[at].counters.get_or_insert_with(|| ledger.demand(&candidate.device.consumes));
        Some((ledger, demand))
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
            return Ok(published(candidate.id.driver, candidate.device, name).cloned());
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
    pub(super) fn release(&mut self, claim: usize) {
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
            if reserved.counters
                && let Some(demand) = &self.uses[at].counters
            {
                ledger.give_back(demand);
            }
        }
    }
}
