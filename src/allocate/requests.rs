//! What the claims want, checked before anything is chosen.

use std::{collections::BTreeMap, ops::Range};

use k8s_openapi::api::{core::v1::Node, resource::v1::DeviceClass};

use super::{
    Channel, Claim, Cluster, DeviceView, Error, MAX_RESULTS, Mode, Release, Want, Wanted, capacity,
    constraints::Constraint,
    error::RequestFlaw,
    model::expressions,
    node,
    pools::{Candidate, Pools, State},
};

/// Everything that is wanted.
#[derive(Debug)]
pub(super) struct Requests<'a> {
    /// Every request and subrequest of every claim.
    pub(super) wants: Vec<CheckedWant<'a>>,
    /// By claim and request, the ways to satisfy it.
    pub(super) claims: Vec<Vec<Ways>>,
}

/// The ways to satisfy a request, as places among all wants.
#[derive(Debug, Clone)]
pub(super) enum Ways {
    /// This one.
    One(usize),
    /// The first of these that can be had.
    First(Range<usize>),
}

/// A request or subrequest that can be tried.
#[derive(Debug)]
pub(super) struct CheckedWant<'a> {
    /// Which claim it is of.
    pub(super) claim: usize,
    /// The claim's namespace and name.
    pub(super) claim_id: &'a str,
    /// The request, if this is a subrequest.
    pub(super) parent: Option<&'a str>,
    /// Itself.
    pub(super) want: &'a Want<'a>,
    /// Its class.
    pub(super) class: &'a DeviceClass,
    class_selectors: Vec<Option<&'a str>>,
    /// The first want that selects the same devices for the same reasons, perhaps itself.
    pub(super) alike: usize,
    /// How many devices it takes.
    pub(super) count: usize,
    /// All devices, if it wants all.
    pub(super) all: Option<Vec<usize>>,
}

impl<'a> CheckedWant<'a> {
    /// The name of its request.
    pub(super) fn request(&self) -> &'a str {
        self.parent.unwrap_or(self.want.name)
    }

    /// Its name, if it is a subrequest.
    pub(super) fn subrequest(&self) -> Option<&'a str> {
        self.parent.map(|_| self.want.name)
    }

    /// What its class demands.
    pub(super) fn class_selectors(&self) -> &[Option<&'a str>] {
        &self.class_selectors
    }

    /// What results and configurations call it.
    pub(super) fn full_name(&self) -> String {
        match self.parent {
            Some(parent) => format!("{parent}/{}", self.want.name),
            None => self.want.name.to_owned(),
        }
    }

    fn selects_as(&self, other: &CheckedWant<'_>) -> bool {
        std::ptr::eq(self.class, other.class)
            && self.want.selectors == other.want.selectors
            && self.want.capacity.is_none()
            && other.want.capacity.is_none()
    }

    /// Whether devices are wanted that others have.
    pub(super) fn is_admin(&self) -> bool {
        self.want.admin_access == Some(true)
    }

    /// An error about it.
    pub(super) fn error(&self, flaw: RequestFlaw) -> Error {
        Error::Request { claim: self.claim_id.to_owned(), request: self.want.name.to_owned(), flaw }
    }

    /// Whether class, selectors and node allow a device. Depends on nothing that is chosen.
    pub(super) fn selects(
        &self,
        cluster: &Cluster<'_>,
        node: &Node,
        candidate: &Candidate<'_>,
    ) -> Result<bool, Error> {
        let device = candidate.device;
        let has_conditions = device.binding_conditions.is_some_and(|conditions| !conditions.is_empty());
        if !cluster.features.binding_conditions && has_conditions {
            return Ok(false);
        }
        let class = || format!("class {}", self.class.metadata.name.as_deref().unwrap_or_default());
        let claim = || format!("claim {}", self.claim_id);
        if !match_all(cluster, candidate, &self.class_selectors, class)?
            || !match_all(cluster, candidate, &self.want.selectors, claim)?
        {
            return Ok(false);
        }
        if candidate.slice.per_device_placement == Some(true) {
            return node::matches(node, &device.placement).map_err(Error::DevicePlacement);
        }
        Ok(true)
    }

    /// What it would take of a device's capacity; see [`capacity::consumed`].
    pub(super) fn consumed(
        &self,
        cluster: &Cluster<'_>,
        candidate: &Candidate<'a>,
        shown_as: &dyn Fn() -> String,
    ) -> Result<Option<capacity::Consumed<'a>>, Error> {
        let consumed = capacity::consumed(cluster, self.want.capacity.as_ref(), &candidate.device.capacity);
        consumed.map_err(|(name, flaw)| {
            self.error(RequestFlaw::DeviceCapacity { device: shown_as(), name, flaw })
        })
    }
}

fn match_all(
    cluster: &Cluster<'_>,
    candidate: &Candidate<'_>,
    selectors: &[Option<&str>],
    owner: impl Fn() -> String,
) -> Result<bool, Error> {
    let view = DeviceView::of(candidate.id.driver, candidate.device);
    // A selector of another kind is refused before in a claim; in a class it is an expression that says nothing.
    for (index, expression) in selectors.iter().enumerate() {
        let matches = cluster.cel.matches(expression.unwrap_or_default(), &view);
        if !matches.map_err(|error| Error::cel(cluster.release, owner(), index, candidate.id, error))? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl<'a> Requests<'a> {
    /// Looks at all requests in order; the first flaw ends it.
    pub(super) fn check(
        cluster: &'a Cluster<'a>,
        node: &Node,
        claims: &'a [Claim<'a>],
        pools: &Pools<'a>,
    ) -> Result<Self, Error> {
        let mut requests = Self { wants: Vec::new(), claims: Vec::with_capacity(claims.len()) };
        for (index, claim) in claims.iter().enumerate() {
            let checker = Checker { cluster, node, pools, claim, index };
            let ways = checker.requests(&mut requests.wants)?;
            requests.claims.push(ways);
            for (index, constraint) in claim.constraints.iter().enumerate() {
                if Constraint::new(cluster, constraint).is_none() {
                    return Err(Error::Constraint { claim: claim.id.clone(), index });
                }
            }
        }
        for index in 0..requests.wants.len() {
            let want = &requests.wants[index];
            let first = requests.wants[..index].iter().position(|other| want.selects_as(other));
            requests.wants[index].alike = first.unwrap_or(index);
        }
        Ok(requests)
    }
}

/// Checks the requests of one claim.
struct Checker<'a, 'c> {
    cluster: &'a Cluster<'a>,
    node: &'c Node,
    pools: &'c Pools<'a>,
    claim: &'a Claim<'a>,
    index: usize,
}

impl<'a> Checker<'a, '_> {
    fn requests(&self, wants: &mut Vec<CheckedWant<'a>>) -> Result<Vec<Ways>, Error> {
        let mut counted = 0;
        let mut all_ways = Vec::with_capacity(self.claim.requests.len());
        for request in &self.claim.requests {
            let flaw = |flaw| self.error(request.name, flaw);
            self.check_gates(&request.wanted).map_err(|error| match error {
                Gate::Request(gate) => flaw(gate),
                Gate::Subrequest(name) => {
                    Error::SubrequestCapacity { claim: self.claim.id.clone(), request: name.to_owned() }
                }
            })?;
            let start = wants.len();
            let ways = match &request.wanted {
                Wanted::Exactly(want) => {
                    wants.push(self.want(None, want)?);
                    Ways::One(start)
                }
                Wanted::FirstAvailable(subrequests) => {
                    for want in subrequests {
                        wants.push(self.want(Some(request.name), want)?);
                    }
                    Ways::First(start..wants.len())
                }
                Wanted::Unknown => return Err(flaw(RequestFlaw::NoClass)),
            };
            all_ways.push(ways);
            let adding = wants[start..].iter().map(|want| want.count).min().unwrap_or_default() as u64;
            if self.cluster.release >= Release::V1_37 && adding > MAX_RESULTS as u64 - counted {
                return Err(flaw(RequestFlaw::TooMany { adding, counted }));
            }
            counted = counted.saturating_add(adding);
        }
        if counted > MAX_RESULTS as u64 {
            return Err(Error::TooManyInClaim { claim: self.claim.id.clone(), count: counted });
        }
        Ok(all_ways)
    }

    fn error(&self, request: &str, flaw: RequestFlaw) -> Error {
        Error::Request { claim: self.claim.id.clone(), request: request.to_owned(), flaw }
    }

    fn check_gates<'w>(&self, wanted: &'w Wanted<'_>) -> Result<(), Gate<'w>> {
        let features = &self.cluster.features;
        match wanted {
            Wanted::FirstAvailable(_) if !features.prioritized_list => {
                Err(Gate::Request(RequestFlaw::PrioritizedList))
            }
            Wanted::Exactly(want) if !features.consumable_capacity && want.capacity.is_some() => {
                Err(Gate::Request(RequestFlaw::Capacity))
            }
            Wanted::FirstAvailable(wants) if !features.consumable_capacity => {
                match wants.iter().find(|want| want.capacity.is_some()) {
                    Some(want) => Err(Gate::Subrequest(want.name)),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn want(&self, parent: Option<&'a str>, want: &'a Want<'a>) -> Result<CheckedWant<'a>, Error> {
        let Cluster { release, channel, features, .. } = self.cluster;
        let derives = features.derived_attributes && *channel == Channel::Experimental;
        if *release >= Release::V1_37 && !want.derived.is_empty() && !derives {
            return Err(self.error(want.name, RequestFlaw::DerivedAttributes));
        }
        if let Some(index) = want.selectors.iter().position(Option::is_none) {
            let (claim, request) = (self.claim.id.clone(), want.name.to_owned());
            return Err(Error::Selector { claim, request, index });
        }
        if !features.admin_access && want.admin_access.is_some() {
            return Err(self.error(want.name, RequestFlaw::AdminAccess));
        }
        if want.class.is_empty() {
            return Err(self.error(want.name, RequestFlaw::NoClass));
        }
        let has_name = |class: &&DeviceClass| class.metadata.name.as_deref() == Some(want.class);
        let class = self
            .cluster
            .classes
            .iter()
            .find(has_name)
            .ok_or_else(|| self.error(want.name, RequestFlaw::UnknownClass(want.class.to_owned())))?;
        let mut checked = CheckedWant {
            claim: self.index,
            claim_id: &self.claim.id,
            parent,
            want,
            class,
            class_selectors: expressions(class.spec.as_ref().and_then(|spec| spec.selectors.as_deref())),
            alike: 0,
            count: 0,
            all: None,
        };
        match want.mode {
            Mode::Count(count) => checked.count = usize::try_from(count).unwrap_or_default(),
            Mode::All => {
                let all = self.all(&checked)?;
                checked.count = all.len();
                checked.all = Some(all);
            }
            Mode::Unknown(mode) => return Err(checked.error(RequestFlaw::Mode(mode.to_owned()))),
        }
        Ok(checked)
    }

    /// How much "all" is.
    fn all(&self, want: &CheckedWant<'a>) -> Result<Vec<usize>, Error> {
        let mut all = Vec::new();
        for pool in &self.pools.pools {
            let usable = match &pool.state {
                State::Usable(usable) => usable,
                State::Incomplete => return Err(want.error(RequestFlaw::IncompletePool(pool.id()))),
                State::Invalid => return Err(want.error(RequestFlaw::InvalidPool(pool.id()))),
            };
            for index in usable.candidates.clone() {
                let candidate = &self.pools.candidates[index];
                if want.selects(self.cluster, self.node, candidate)? && self.has_capacity(want, candidate)? {
                    all.push(index);
                }
            }
        }
        Ok(all)
    }

    fn has_capacity(&self, want: &CheckedWant<'a>, candidate: &Candidate<'a>) -> Result<bool, Error> {
        if !self.cluster.features.consumable_capacity {
            return Ok(true);
        }
        let name = || candidate.device.name.to_owned();
        let Some(consumed) = want.consumed(self.cluster, candidate, &name)? else { return Ok(false) };
        // Since 1.37 a device that others use up makes the request fail, and is not left out.
        let allocated = match self.cluster.release {
            Release::V1_36 => self.cluster.allocated.capacity.get(&candidate.id),
            Release::V1_37 => None,
        };
        Ok(capacity::fits(&consumed, &candidate.device.capacity, allocated, &BTreeMap::new()))
    }
}

/// Something that is switched off.
enum Gate<'a> {
    Request(RequestFlaw),
    Subrequest(&'a str),
}
