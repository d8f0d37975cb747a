//! What the allocator looks at, made of the objects of the API with their quantities read once.

mod held;
mod read;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use k8s_openapi::api::{
    core::v1::NodeSelector,
    resource::v1::{DeviceClaimConfiguration, DeviceConstraint, DeviceTaint, DeviceToleration},
};

pub(super) use self::read::expressions;
pub use self::{held::Held, read::ModelError};
use super::selectors::Seen;
use crate::device::Amount;

/// Who a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId<'a> {
    /// Its driver.
    pub driver: &'a str,
    /// Its pool.
    pub pool: &'a str,
    /// Its name in the pool.
    pub device: &'a str,
}

impl fmt::Display for DeviceId<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// What claims hold already.
#[derive(Debug, Clone, Default)]
pub struct Allocated<'a> {
    /// Devices that one claim has for itself.
    pub devices: HashSet<DeviceId<'a>>,
    /// Devices that claims have shares of.
    pub shared: HashSet<DeviceId<'a>>,
    /// How much of shared devices is consumed.
    pub capacity: HashMap<DeviceId<'a>, BTreeMap<&'a str, Amount>>,
}

impl Allocated<'_> {
    /// Whether any claim has something of a device.
    pub(super) fn has_any_of(&self, id: &DeviceId<'_>) -> bool {
        self.devices.contains(id) || self.shared.contains(id) || self.capacity.contains_key(id)
    }
}

/// The nodes that can reach something.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// This one.
    pub node_name: Option<&'a str>,
    /// Every one.
    pub all_nodes: bool,
    /// Those that match.
    pub selector: Option<&'a NodeSelector>,
}

/// A slice of a pool.
#[derive(Debug, Clone)]
pub struct Slice<'a> {
    /// Its name, which orders the slices of a pool.
    pub name: &'a str,
    /// Whose it is.
    pub driver: &'a str,
    /// The pool that it is a part of.
    pub pool: &'a str,
    /// Which state of the pool it is of.
    pub generation: i64,
    /// How many slices that state has.
    pub slice_count: i64,
    /// Where its devices can be reached from.
    pub placement: Placement<'a>,
    /// Whether each device says that for itself.
    pub per_device_placement: Option<bool>,
    /// What devices of the pool consume from.
    pub counter_sets: Vec<CounterSet<'a>>,
    /// The devices.
    pub devices: Vec<Device<'a>>,
    /// What a node need not do for them.
    pub skip_node_operations: &'a [String],
}

/// Counters that devices share.
#[derive(Debug, Clone)]
pub struct CounterSet<'a> {
    /// Its name in the pool.
    pub name: &'a str,
    /// How much there is of each.
    pub counters: BTreeMap<&'a str, Amount>,
}

/// What a device takes from a counter set.
#[derive(Debug, Clone)]
pub struct Consumption<'a> {
    /// From which.
    pub counter_set: &'a str,
    /// How much of each.
    pub counters: BTreeMap<&'a str, Amount>,
    /// Which other devices it can stand beside.
    pub compatibility_groups: &'a [String],
}

/// A device.
#[derive(Debug, Clone)]
pub struct Device<'a> {
    /// Its name in the pool.
    pub name: &'a str,
    /// By name, with or without a domain.
    pub attributes: BTreeMap<&'a str, Attribute<'a>>,
    /// By name, with or without a domain.
    pub capacity: BTreeMap<&'a str, Capacity>,
    /// Whether several claims can have shares of it.
    pub allow_multiple_allocations: bool,
    /// What it takes from counter sets.
    pub consumes: Vec<Consumption<'a>>,
    /// What a request has to tolerate.
    pub taints: &'a [DeviceTaint],
    /// Where it can be reached from, if the slice leaves that to it.
    pub placement: Placement<'a>,
    /// What has to become true before a pod is bound.
    pub binding_conditions: Option<&'a [String]>,
    /// What must not.
    pub binding_failure_conditions: Option<&'a [String]>,
    /// Whether its claim stays on the node that it was chosen for.
    pub binds_to_node: bool,
    /// What expressions see of it.
    pub seen: Seen,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute<'a> {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    String(Cow<'a, str>),
    /// A semantic version.
    Version(Cow<'a, str>),
    /// Several of these.
    Bools(Cow<'a, [bool]>),
    /// Several of these.
    Ints(Cow<'a, [i64]>),
    /// Several of these.
    Strings(Cow<'a, [String]>),
    /// Several of these.
    Versions(Cow<'a, [String]>),
    /// None, or one of a kind that is not known.
    Unknown,
}

/// How much of something a device has.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// All of it.
    pub value: Amount,
    /// What can be asked for.
    pub policy: Option<Policy>,
}

/// What of a capacity can be asked for.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What a request without an amount gets.
    pub default: Option<Amount>,
    /// Amounts in steps.
    pub range: Option<Range>,
    /// These amounts.
    pub values: Option<Vec<Amount>>,
}

/// Amounts in steps.
#[derive(Debug, Clone)]
pub struct Range {
    /// The least.
    pub min: Option<Amount>,
    /// The most.
    pub max: Option<Amount>,
    /// What lies between two.
    pub step: Option<Amount>,
}

/// A claim that has to be allocated.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// Its namespace and name.
    pub id: String,
    /// Its name.
    pub name: &'a str,
    /// What it wants.
    pub requests: Vec<Request<'a>>,
    /// What has to hold for all that it gets.
    pub constraints: &'a [DeviceConstraint],
    /// What drivers are told.
    pub config: &'a [DeviceClaimConfiguration],
}

/// A request of a claim.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Its name in the claim.
    pub name: &'a str,
    /// What is wanted.
    pub wanted: Wanted<'a>,
}

/// What a request wants.
#[derive(Debug, Clone)]
pub enum Wanted<'a> {
    /// This.
    Exactly(Want<'a>),
    /// The first of these that can be had.
    FirstAvailable(Vec<Want<'a>>),
    /// Something that is not known.
    Unknown,
}

/// Devices that are wanted.
#[derive(Debug, Clone)]
pub struct Want<'a> {
    /// The name of the request or subrequest.
    pub name: &'a str,
    /// Of which class.
    pub class: &'a str,
    /// How many.
    pub mode: Mode<'a>,
    /// Expressions that have to match; none where a selector is of another kind.
    pub selectors: Vec<Option<&'a str>>,
    /// Whether devices are wanted that others have, if that is said.
    pub admin_access: Option<bool>,
    /// Which taints do not matter.
    pub tolerations: &'a [DeviceToleration],
    /// How much of each capacity.
    pub capacity: Option<BTreeMap<&'a str, Amount>>,
    /// Attributes that are calculated, by name.
    pub derived: BTreeMap<&'a str, &'a str>,
}

/// How many devices are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode<'a> {
    /// So many.
    Count(i64),
    /// All that there are.
    All,
    /// Something that is not known.
    Unknown(&'a str),
}
