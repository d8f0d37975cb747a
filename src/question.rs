//! What the allocator is asked: claims, and everything that decides about them.
//!
//! The claims come from files or from a cluster as people write them; here they get the defaults that an API server
//! would give them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{
        AllocationResult, DeviceClass, DeviceRequest, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
    },
};

use crate::{
    allocate::{
        self, Claim, Cluster, DeviceId, Expressions, Features, Held, Interruption, ModelError, Release,
        Slice, Slices, tainted,
    },
    objects::{NAMESPACE, Objects, qualified},
};

/// How long one node may be thought about.
const LONGEST: Duration = Duration::from_secs(30);

/// Why there is nothing to ask.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are no claims, or all are allocated.
    #[error("there is no claim that is not allocated yet, and no template")]
    NoClaim,
    /// A claim was named that is not there.
    #[error("there is no claim {name}; there are: {known}")]
    UnknownClaim {
        /// As it was named.
        name: String,
        /// The claims that there are.
        known: String,
    },
    /// A quantity in an object is none.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// What of all that is known is asked.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The claims, as NAMESPACE/NAME or NAME; all that are not allocated when there are none here.
    pub claims: Vec<String>,
    /// Only this node.
    pub node: Option<String>,
    /// As which release decides.
    pub release: Release,
    /// With what switched on.
    pub features: Features,
    /// Devices that are kept for others.
    pub reserved: Vec<Reserved>,
}

/// A device that is kept for others.
#[derive(Debug, Clone)]
pub struct Reserved {
    /// Its driver.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// For whom.
    pub by: String,
}

/// Claims, and everything that decides about them.
#[derive(Debug)]
pub struct Question {
    wanted: Vec<ResourceClaim>,
    holding: Vec<ResourceClaim>,
    classes: Vec<DeviceClass>,
    slices: Vec<ResourceSlice>,
    nodes: Vec<Node>,
    release: Release,
    features: Features,
    reserved: Vec<Reserved>,
}

/// A question with everything read that the allocator looks at.
pub struct Situation<'a> {
    /// Everything but the node and the claims.
    pub cluster: Cluster<'a>,
    /// The claims that are to be allocated.
    pub claims: Vec<Claim<'a>>,
    /// What other claims have.
    pub held: &'a Held<'a>,
    /// Evaluates expressions.
    pub expressions: &'a Expressions,
}

/// What came of a question on one node.
#[derive(Debug)]
pub enum Answer {
    /// Everything fits.
    Fits(Vec<AllocationResult>),
    /// It does not.
    DoesNotFit,
    /// Something is wrong with the claims or with what they are asked of.
    Fails(allocate::Error),
}

impl Question {
    /// Asks for claims of `asked`, with everything that is `known` besides. Of two objects with the same name, the one
    /// of `asked` counts.
    pub fn new(asked: Objects, known: Objects, choice: Choice) -> Result<Self, Error> {
        let Choice { claims: names, node, release, features, reserved } = choice;
        let own = asked.claims.into_iter().chain(asked.templates.iter().map(instance)).map(defaulted);
        let own = last_of_each(own);
        let own_names: BTreeSet<String> = own.iter().map(name).collect();
        let is_asked = |claim: &ResourceClaim| match names.as_slice() {
            [] => own_names.contains(&name(claim)) && !is_allocated(claim),
            names => names.iter().any(|wanted| is_named(claim, wanted)),
        };
        let others =
            known.claims.into_iter().map(defaulted).filter(|claim| !own_names.contains(&name(claim)));
        let (wanted, others): (Vec<_>, Vec<_>) = own.iter().cloned().chain(others).partition(is_asked);
        let is_there = |name: &&String| wanted.iter().any(|claim| is_named(claim, name));
        if let Some(missing) = names.iter().find(|name| !is_there(name)) {
            let known: Vec<String> = others.iter().chain(&wanted).map(name).collect();
            return Err(Error::UnknownClaim { name: missing.clone(), known: known.join(", ") });
        }
        if wanted.is_empty() {
            return Err(Error::NoClaim);
        }
        let mut slices = merged(asked.slices, known.slices, |slice| slice.metadata.name.clone());
        let rules = merged(asked.rules, known.rules, |rule| rule.metadata.name.clone());
        if features.device_taints {
            tainted(&mut slices, &rules);
        }
        let nodes = merged(asked.nodes, known.nodes, |node| node.metadata.name.clone());
        Ok(Self {
            nodes: chosen(nodes, &slices, node),
            wanted,
            holding: others.into_iter().filter(is_allocated).collect(),
            classes: merged(asked.classes, known.classes, |class| class.metadata.name.clone()),
            slices,
            release,
            features,
            reserved,
        })
    }

    /// The nodes that come into question, in the order in which they are tried.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The claims that are to be allocated, with their defaults.
    #[must_use]
    pub fn wanted(&self) -> &[ResourceClaim] {
        &self.wanted
    }

    /// Reads everything, and lets something be done with it.
    pub fn with<T>(&self, work: impl FnOnce(&Situation<'_>) -> T) -> Result<T, Error> {
        let claims = self.wanted.iter().map(Claim::try_from).collect::<Result<Vec<_>, _>>()?;
        let slices = self.slices.iter().map(Slice::try_from).collect::<Result<Slices<'_>, _>>()?;
        let mut held = Held::by(&self.holding, &self.features)?;
        for Reserved { driver, pool, device, by } in &self.reserved {
            let id = DeviceId { driver, pool, device };
            held.allocated.devices.insert(id);
            held.owners.entry(id).or_default().insert(by.clone());
        }
        let expressions = Expressions::new(self.release, &self.features);
        let started = Instant::now();
        let interruption = || (started.elapsed() > LONGEST).then_some(Interruption::Deadline);
        let cluster = Cluster {
            release: self.release,
            channel: self.features.channel(),
            features: self.features,
            allocated: &held.allocated,
            classes: &self.classes,
            slices: &slices,
            cel: &expressions,
            interruption: &interruption,
            new_share_id: &share_id,
        };
        Ok(work(&Situation { cluster, claims, held: &held, expressions: &expressions }))
    }
}

impl Situation<'_> {
    /// What the claims get on a node.
    #[must_use]
    pub fn ask(&self, node: &Node) -> Answer {
        self.ask_for(node, &self.claims)
    }

    /// What other claims would get on a node.
    #[must_use]
    pub fn ask_for(&self, node: &Node, claims: &[Claim<'_>]) -> Answer {
        match allocate::allocate(&self.cluster, node, claims) {
            Ok(Some(results)) => Answer::Fits(results),
            Ok(None) => Answer::DoesNotFit,
            Err(error) => Answer::Fails(error),
        }
    }
}

/// Namespace and name.
#[must_use]
pub fn name(claim: &ResourceClaim) -> String {
    let metadata = &claim.metadata;
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or(NAMESPACE),
        metadata.name.as_deref().unwrap_or_default()
    )
}

/// Whether a claim has its devices already.
#[must_use]
pub fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

fn is_named(claim: &ResourceClaim, wanted: &str) -> bool {
    name(claim) == qualified(wanted)
}

/// The claim that a template would make for a pod.
fn instance(template: &ResourceClaimTemplate) -> ResourceClaim {
    let mut metadata = template.metadata.clone();
    metadata.uid = None;
    let spec = template.spec.as_ref().and_then(|spec| spec.spec.clone());
    ResourceClaim { metadata, spec, status: None }
}

/// As the API server would store it.
fn defaulted(mut claim: ResourceClaim) -> ResourceClaim {
    let namespace = &mut claim.metadata.namespace;
    if namespace.as_deref().is_none_or(str::is_empty) {
        *namespace = Some(NAMESPACE.to_owned());
    }
    let devices = claim.spec.as_mut().and_then(|spec| spec.devices.as_mut());
    for request in devices.and_then(|devices| devices.requests.as_mut()).into_iter().flatten() {
        let DeviceRequest { exactly, first_available, .. } = request;
        if let Some(exactly) = exactly {
            counted(&mut exactly.allocation_mode, &mut exactly.count);
        }
        for subrequest in first_available.iter_mut().flatten() {
            counted(&mut subrequest.allocation_mode, &mut subrequest.count);
        }
    }
    claim
}

fn counted(mode: &mut Option<String>, count: &mut Option<i64>) {
    if mode.as_deref().is_none_or(str::is_empty) {
        *mode = Some(String::from("ExactCount"));
    }
    if mode.as_deref() == Some("ExactCount") && count.unwrap_or_default() == 0 {
        *count = Some(1);
    }
}

/// All objects; of two with the same name, the first.
fn merged<T>(own: Vec<T>, others: Vec<T>, name: impl Fn(&T) -> Option<String>) -> Vec<T> {
    let names: BTreeSet<Option<String>> = own.iter().map(&name).collect();
    let is_new = |other: &T| !names.contains(&name(other));
    let others: Vec<T> = others.into_iter().filter(is_new).collect();
    own.into_iter().chain(others).collect()
}

/// As with `kubectl apply`, what is said later about the same claim counts.
fn last_of_each(claims: impl Iterator<Item = ResourceClaim>) -> Vec<ResourceClaim> {
    let mut kept: Vec<ResourceClaim> = Vec::new();
    for claim in claims {
        match kept.iter_mut().find(|other| name(other) == name(&claim)) {
            Some(other) => *other = claim,
            None => kept.push(claim),
        }
    }
    kept
}

/// The named node, or else all that there are, also those of which only slices tell.
fn chosen(nodes: Vec<Node>, slices: &[ResourceSlice], only: Option<String>) -> Vec<Node> {
    let mut by_name: BTreeMap<String, Node> = BTreeMap::new();
    let told = slices.iter().filter_map(|slice| slice.spec.node_name.clone()).filter(|name| !name.is_empty());
    for name in told.chain(only.clone()) {
        by_name.entry(name.clone()).or_insert_with(|| bare(&name));
    }
    for node in nodes {
        if let Some(name) = node.metadata.name.clone() {
            by_name.insert(name, node);
        }
    }
    match only {
        Some(name) => by_name.remove(&name).into_iter().collect(),
        // Devices that no node has for itself are still devices.
        None if by_name.is_empty() => vec![Node::default()],
        None => by_name.into_values().collect(),
    }
}

/// A node of which only the name is known, and the label that follows from it.
fn bare(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.labels = Some(BTreeMap::from([(String::from("kubernetes.io/hostname"), name.to_owned())]));
    node
}

/// Drawn by the kernel. Without one the share has no name, which only matters to whoever stores it.
fn share_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid").map(|id| id.trim().to_owned()).unwrap_or_default()
}
