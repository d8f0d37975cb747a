//! The model from the objects of the API.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{
        CapacityRequestPolicy, CapacityRequestPolicyRange, CapacityRequirements, Counter,
        Device as ApiDevice, DeviceAttribute, DeviceCapacity, DeviceDerivedAttribute, DeviceRequest,
        DeviceSelector, DeviceSubRequest, ExactDeviceRequest, ResourceClaim, ResourceSlice,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Attribute, Capacity, Claim, Consumption, CounterSet, Device, Mode, Placement, Policy, Range, Request,
    Slice, Want, Wanted,
};
use crate::{
    allocate::selectors::Seen,
    device::{Amount, AmountError},
};

/// A quantity in an object that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: quantity {text:?}: {error}")]
pub struct ModelError {
    object: String,
    text: String,
    error: AmountError,
}

/// Reads the quantities of one object.
pub(super) struct Reader<'a> {
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
}

impl Reader<'_> {
    pub(super) fn amount(&self, Quantity(text): &Quantity) -> Result<Amount, ModelError> {
        text.trim().parse().map_err(|error| ModelError {
            object: format!("{} {}", self.kind, self.name),
            text: text.clone(),
            error,
        })
    }

    fn optional(&self, quantity: Option<&Quantity>) -> Result<Option<Amount>, ModelError> {
        quantity.map(|quantity| self.amount(quantity)).transpose()
    }

    fn counters<'c>(
        &self,
        counters: &'c BTreeMap<String, Counter>,
    ) -> Result<BTreeMap<&'c str, Amount>, ModelError> {
        counters.iter().map(|(name, counter)| Ok((name.as_str(), self.amount(&counter.value)?))).collect()
    }

    fn capacity(&self, capacity: &DeviceCapacity) -> Result<Capacity, ModelError> {
        let policy = capacity.request_policy.as_ref().map(|policy| self.policy(policy)).transpose()?;
        Ok(Capacity { value: self.amount(&capacity.value)?, policy })
    }

    fn policy(&self, policy: &CapacityRequestPolicy) -> Result<Policy, ModelError> {
        let values = policy.valid_values.as_ref();
        Ok(Policy {
            default: self.optional(policy.default.as_ref())?,
            range: policy.valid_range.as_ref().map(|range| self.range(range)).transpose()?,
            values: values
                .map(|values| values.iter().map(|value| self.amount(value)).collect())
                .transpose()?,
        })
    }

    fn range(&self, range: &CapacityRequestPolicyRange) -> Result<Range, ModelError> {
        let is_there = |quantity: &&Quantity| !quantity.0.is_empty();
        Ok(Range {
            min: self.optional(Some(&range.min).filter(is_there))?,
            max: self.optional(range.max.as_ref())?,
            step: self.optional(range.step.as_ref())?,
        })
    }

    fn device<'d>(&self, device: &'d ApiDevice) -> Result<Device<'d>, ModelError> {
        let attributes = device.attributes.iter().flatten();
        let capacity = device.capacity.iter().flatten();
        let consumes = device.consumes_counters.iter().flatten();
        Ok(Device {
            name: &device.name,
            attributes: attributes.map(|(name, value)| (name.as_str(), value.into())).collect(),
            capacity: capacity
                .map(|(name, capacity)| Ok((name.as_str(), self.capacity(capacity)?)))
                .collect::<Result<_, _>>()?,
            allow_multiple_allocations: device.allow_multiple_allocations.unwrap_or_default(),
            consumes: consumes
                .map(|consumption| {
                    Ok(Consumption {
                        counter_set: &consumption.counter_set,
                        counters: self.counters(&consumption.counters)?,
                        compatibility_groups: consumption.compatibility_groups.as_deref().unwrap_or_default(),
                    })
                })
                .collect::<Result<_, _>>()?,
            taints: device.taints.as_deref().unwrap_or_default(),
            placement: Placement {
                node_name: device.node_name.as_deref().filter(|name| !name.is_empty()),
                all_nodes: device.all_nodes.unwrap_or_default(),
                selector: device.node_selector.as_ref(),
            },
            binding_conditions: device.binding_conditions.as_deref(),
            binding_failure_conditions: device.binding_failure_conditions.as_deref(),
            binds_to_node: device.binds_to_node.unwrap_or_default(),
            seen: Seen::default(),
        })
    }

    fn requests<'c>(
        &self,
        capacity: Option<&'c CapacityRequirements>,
    ) -> Result<Option<BTreeMap<&'c str, Amount>>, ModelError> {
        let amounts = |requirements: &'c CapacityRequirements| {
            let requests = requirements.requests.iter().flatten();
            requests.map(|(name, quantity)| Ok((name.as_str(), self.amount(quantity)?))).collect()
        };
        capacity.map(amounts).transpose()
    }

    fn exactly<'r>(&self, name: &'r str, request: &'r ExactDeviceRequest) -> Result<Want<'r>, ModelError> {
        Ok(Want {
            name,
            class: &request.device_class_name,
            mode: mode(request.allocation_mode.as_deref(), request.count),
            selectors: expressions(request.selectors.as_deref()),
            admin_access: request.admin_access,
            tolerations: request.tolerations.as_deref().unwrap_or_default(),
            capacity: self.requests(request.capacity.as_ref())?,
            derived: derived(request.derived_attributes.as_deref()),
        })
    }

    fn subrequest<'r>(&self, request: &'r DeviceSubRequest) -> Result<Want<'r>, ModelError> {
        Ok(Want {
            name: &request.name,
            class: &request.device_class_name,
            mode: mode(request.allocation_mode.as_deref(), request.count),
            selectors: expressions(request.selectors.as_deref()),
            admin_access: None,
            tolerations: request.tolerations.as_deref().unwrap_or_default(),
            capacity: self.requests(request.capacity.as_ref())?,
            derived: derived(request.derived_attributes.as_deref()),
        })
    }

    fn request<'r>(&self, request: &'r DeviceRequest) -> Result<Request<'r>, ModelError> {
        let alternatives = request.first_available.as_deref().unwrap_or_default();
        let wanted = match &request.exactly {
            _ if !alternatives.is_empty() => {
                let wants = alternatives.iter().map(|request| self.subrequest(request));
                Wanted::FirstAvailable(wants.collect::<Result<_, _>>()?)
            }
            Some(exactly) => Wanted::Exactly(self.exactly(&request.name, exactly)?),
            None => Wanted::Unknown,
        };
        Ok(Request { name: &request.name, wanted })
    }
}

fn mode(mode: Option<&str>, count: Option<i64>) -> Mode<'_> {
    match mode.unwrap_or_default() {
        "ExactCount" => Mode::Count(count.unwrap_or_default()),
        "All" => Mode::All,
        other => Mode::Unknown(other),
    }
}

/// The expressions of selectors.
pub(in crate::allocate) fn expressions(selectors: Option<&[DeviceSelector]>) -> Vec<Option<&str>> {
    let selectors = selectors.unwrap_or_default().iter();
    selectors.map(|selector| selector.cel.as_ref().map(|cel| cel.expression.as_str())).collect()
}

fn derived(attributes: Option<&[DeviceDerivedAttribute]>) -> BTreeMap<&str, &str> {
    let attributes = attributes.unwrap_or_default().iter();
    attributes.map(|attribute| (attribute.name.as_str(), attribute.expression.as_str())).collect()
}

impl<'a> From<&'a DeviceAttribute> for Attribute<'a> {
    fn from(attribute: &'a DeviceAttribute) -> Self {
        match attribute {
            DeviceAttribute { ints: Some(values), .. } => Self::Ints(values.into()),
            DeviceAttribute { bools: Some(values), .. } => Self::Bools(values.into()),
            DeviceAttribute { strings: Some(values), .. } => Self::Strings(values.into()),
            DeviceAttribute { versions: Some(values), .. } => Self::Versions(values.into()),
            DeviceAttribute { string: Some(text), .. } => Self::String(text.into()),
            &DeviceAttribute { int: Some(number), .. } => Self::Int(number),
            &DeviceAttribute { bool: Some(value), .. } => Self::Bool(value),
            DeviceAttribute { version: Some(text), .. } => Self::Version(text.into()),
            _ => Self::Unknown,
        }
    }
}

impl<'a> TryFrom<&'a ResourceSlice> for Slice<'a> {
    type Error = ModelError;

    fn try_from(slice: &'a ResourceSlice) -> Result<Self, ModelError> {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        let reader = Reader { kind: "slice", name };
        let spec = &slice.spec;
        let counter_sets = spec.shared_counters.iter().flatten();
        let devices = spec.devices.iter().flatten();
        Ok(Self {
            name,
            driver: &spec.driver,
            pool: &spec.pool.name,
            generation: spec.pool.generation,
            slice_count: spec.pool.resource_slice_count,
            placement: Placement {
                node_name: spec.node_name.as_deref().filter(|name| !name.is_empty()),
                all_nodes: spec.all_nodes.unwrap_or_default(),
                selector: spec.node_selector.as_ref(),
            },
            per_device_placement: spec.per_device_node_selection,
            counter_sets: counter_sets
                .map(|set| Ok(CounterSet { name: &set.name, counters: reader.counters(&set.counters)? }))
                .collect::<Result<_, _>>()?,
            devices: devices.map(|device| reader.device(device)).collect::<Result<_, _>>()?,
            skip_node_operations: spec.skip_node_operations.as_deref().unwrap_or_default(),
        })
    }
}

/// Namespace and name.
pub(super) fn id(claim: &ResourceClaim) -> String {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match claim.metadata.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}

impl<'a> TryFrom<&'a ResourceClaim> for Claim<'a> {
    type Error = ModelError;

    fn try_from(claim: &'a ResourceClaim) -> Result<Self, ModelError> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let reader = Reader { kind: "claim", name };
        let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        let requests = devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
        Ok(Self {
            id: id(claim),
            name,
            requests: requests.iter().map(|request| reader.request(request)).collect::<Result<_, _>>()?,
            constraints: devices.and_then(|devices| devices.constraints.as_deref()).unwrap_or_default(),
            config: devices.and_then(|devices| devices.config.as_deref()).unwrap_or_default(),
        })
    }
}
