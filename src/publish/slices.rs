//! From devices to the objects that describe them: one pool, named after the node, in as many slices as the
//! API needs.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{
        CapacityRequestPolicy, Device as ApiDevice, DeviceAttribute, DeviceCapacity, DeviceTaint,
        ResourcePool, ResourceSlice, ResourceSliceSpec,
    },
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1::ObjectMeta},
};

use crate::device::{AttributeValue, Device, DeviceName, DriverName, NodeName, Quantity, Sharing, Taint};

/// `ResourceSliceMaxDevices` of the API.
const MAX_DEVICES: usize = 128;
/// `ResourceSliceMaxDevicesWithAdvancedFeatures` of the API: with taints, that is.
const MAX_TAINTED_DEVICES: usize = 64;

/// The slices of one complete pool. The name of each begins with its number, because the scheduler
/// takes devices in the order of names. Without devices there is one empty slice: a pool that is known
/// to be empty.
#[must_use]
pub fn slices(
    driver: &DriverName,
    node: &NodeName,
    devices: &BTreeMap<DeviceName, Device>,
) -> Vec<ResourceSlice> {
    let devices: Vec<ApiDevice> = devices.values().map(ApiDevice::from).collect();
    // In all slices alike, so that a second taint does not move devices from one to another.
    let has_taints = devices.iter().any(|device| device.taints.is_some());
    let most = if has_taints { MAX_TAINTED_DEVICES } else { MAX_DEVICES };
    let parts: Vec<&[ApiDevice]> =
        if devices.is_empty() { vec![&[]] } else { devices.chunks(most).collect() };
    let pool = ResourcePool {
        name: node.to_string(),
        generation: 1,
        // Invariant: devices come from a machine's memory; their number is far below 2^63.
        resource_slice_count: i64::try_from(parts.len()).unwrap_or(i64::MAX),
    };
    let slice = |(index, devices): (usize, &&[ApiDevice])| ResourceSlice {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(index, driver, node)),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: driver.to_string(),
            node_name: Some(node.to_string()),
            pool: pool.clone(),
            devices: Some(devices.to_vec()).filter(|devices| !devices.is_empty()),
            ..ResourceSliceSpec::default()
        },
    };
    parts.iter().enumerate().map(slice).collect()
}

/// The same where no server names them: by what it would put first, so that the order is the same.
#[must_use]
pub fn named_slices(
    driver: &DriverName,
    node: &NodeName,
    devices: &BTreeMap<DeviceName, Device>,
) -> Vec<ResourceSlice> {
    let mut slices = slices(driver, node, devices);
    for slice in &mut slices {
        slice.metadata.name = slice.metadata.generate_name.take();
    }
    slices
}

/// The API server keeps 58 bytes of it and puts five of its own behind; one that is far longer is refused.
fn generate_name(index: usize, driver: &DriverName, node: &NodeName) -> String {
    let mut name = format!("{index:05x}-{driver}-{node}");
    name.truncate(57);
    name.trim_end_matches(['-', '.']).to_owned() + "-"
}

impl From<&Device> for ApiDevice {
    fn from(device: &Device) -> Self {
        let properties = &device.properties;
        let attributes: BTreeMap<_, _> = properties
            .attributes()
            .iter()
            .map(|(name, value)| (name.to_string(), attribute(value)))
            .collect();
        let mut capacity: BTreeMap<_, _> = properties
            .capacity()
            .iter()
            .map(|(name, value)| {
                (name.to_string(), DeviceCapacity { value: quantity(value), request_policy: None })
            })
            .collect();
        let allow_multiple_allocations = match device.sharing {
            Sharing::Exclusive => None,
            Sharing::Shared { max } => {
                capacity.insert(Sharing::capacity_name().to_string(), one_share_a_claim(max.get()));
                Some(true)
            }
        };
        Self {
            name: device.name.to_string(),
            attributes: Some(attributes).filter(|attributes| !attributes.is_empty()),
            capacity: Some(capacity).filter(|capacity| !capacity.is_empty()),
            allow_multiple_allocations,
            taints: Some(device.condition.taints.iter().map(taint).collect())
                .filter(|taints: &Vec<_>| !taints.is_empty()),
            ..Self::default()
        }
    }
}

fn attribute(value: &AttributeValue) -> DeviceAttribute {
    let mut attribute = DeviceAttribute::default();
    match value {
        AttributeValue::Bool(value) => attribute.bool = Some(*value),
        AttributeValue::Int(value) => attribute.int = Some(*value),
        AttributeValue::String(text) => attribute.string = Some(text.as_str().to_owned()),
        AttributeValue::Version(version) => attribute.version = Some(version.as_str().to_owned()),
    }
    attribute
}

/// When it was added is for the API server to say.
fn taint(taint: &Taint) -> DeviceTaint {
    DeviceTaint {
        key: taint.key.to_string(),
        value: taint.value.as_ref().map(ToString::to_string).filter(|value| !value.is_empty()),
        effect: taint.effect.as_str().to_owned(),
        time_added: None,
    }
}

fn quantity(quantity: &Quantity) -> ApiQuantity {
    ApiQuantity(quantity.to_string())
}

/// A capacity of which every claim takes exactly one, whether it asks for it or not.
fn one_share_a_claim(max: u32) -> DeviceCapacity {
    let one = quantity(&Quantity::whole(1));
    DeviceCapacity {
        value: quantity(&Quantity::whole(max)),
        request_policy: Some(CapacityRequestPolicy {
            valid_values: Some(vec![one.clone()]),
            default: Some(one),
            valid_range: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        config::Config,
        discover::{self, Roots},
    };

    fn publish(config: &str) -> Vec<ResourceSlice> {
        let config = Config::parse(Path::new("test"), config).unwrap();
        let found = discover::scan(&config, &Roots::default());
        slices(&config.driver, &"node-1".parse().unwrap(), &found.devices)
    }

    #[test]
    fn a_pool_is_split_where_the_api_needs_it() {
        let slices = publish("sources: [{name: gpu, simulated: {count: 300}}]");
        let sizes: Vec<usize> =
            slices.iter().map(|slice| slice.spec.devices.as_ref().unwrap().len()).collect();
        assert_eq!(sizes, [128, 128, 44]);
        assert!(slices.iter().all(|slice| slice.spec.pool.resource_slice_count == 3));
        assert_eq!(slices[2].metadata.generate_name.as_deref(), Some("00002-claimfs.dev-node-1-"));
    }

    #[test]
    fn an_empty_pool_is_one_slice_without_devices() {
        let slices = publish("sources: []");
        assert_eq!(slices.len(), 1);
        assert_eq!(slices[0].spec.devices, None);
    }

    #[test]
    fn a_shared_device_counts_its_claims() {
        let slices = publish("sources: [{name: kvm, simulated: {count: 1}, shared: {max: 110}}]");
        let device = &slices[0].spec.devices.as_ref().unwrap()[0];
        assert_eq!(device.allow_multiple_allocations, Some(true));
        let shares = &device.capacity.as_ref().unwrap()["shares"];
        assert_eq!(shares.value.0, "110");
        assert_eq!(shares.request_policy.as_ref().unwrap().default.as_ref().unwrap().0, "1");
    }
}
