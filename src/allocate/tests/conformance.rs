//! The recorded answers of the reference.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
};
use serde::Deserialize;

use super::expressions::FewExpressions;
use crate::allocate::{
    Allocated, Channel, Claim, Cluster, DeviceId, Error, Features, Interruption, Release, Slice, Slices,
    pools::Pools, prune::PATIENCE, requests::Requests, search::Search,
};
use crate::recorded::{Recorded, recorded};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    name: String,
    channel: String,
    features: Option<Vec<String>>,
    node: Node,
    classes: Option<Vec<DeviceClass>>,
    slices: Option<Vec<ResourceSlice>>,
    claims: Option<Vec<ResourceClaim>>,
    allocated_devices: Option<Vec<String>>,
    allocated_shared: Option<Vec<String>>,
    aggregated: Option<BTreeMap<String, BTreeMap<String, String>>>,
    results: Option<Vec<AllocationResult>>,
    error: String,
    steps: u64,
}

/// What the recording lost something of.
const LOST: [&str; 2] = [
    "consumable-capacity-requests-are-not-modified",
    "list-attributes-distinct-constaint-with-empty-or-unknown-type",
];

/// What later patch releases answer otherwise than the recorded one.
const NEWER: [(&str, &str); 3] = [
    (
        "too-many-devices-single-request",
        "claim claim-0, request req-0: adding 500 devices exceeds the claim limit of 32, with 0 already accounted for",
    ),
    (
        "too-many-devices-total",
        "claim claim-0, request req-1: adding 1 devices exceeds the claim limit of 32, with 32 already accounted for",
    ),
    (
        "all-devices-invalid-CEL",
        "claim claim-0, request req-0: adding 500 devices exceeds the claim limit of 32, with 0 already accounted for",
    ),
];

impl Row {
    fn case(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    fn features(&self) -> Features {
        let mut features = Features::default();
        for name in self.features.iter().flatten() {
            let feature = match name.as_str() {
                "AdminAccess" => &mut features.admin_access,
                "CompatibilityGroups" => &mut features.compatibility_groups,
                "ConsumableCapacity" => &mut features.consumable_capacity,
                "DerivedAttributes" => &mut features.derived_attributes,
                "DeviceBindingAndStatus" => &mut features.binding_conditions,
                "DeviceTaints" => &mut features.device_taints,
                "FractionalCapacityRange" => &mut features.fractional_capacity_range,
                "ListTypeAttributes" => &mut features.list_type_attributes,
                "OptionalNodeOperations" => &mut features.optional_node_operations,
                "PartitionableDevices" => &mut features.partitionable_devices,
                "PrioritizedList" => &mut features.prioritized_list,
                other => panic!("{other}"),
            };
            *feature = true;
        }
        features
    }

    fn allocated<'a>(&'a self) -> Allocated<'a> {
        let amounts = |consumed: &'a BTreeMap<String, String>| {
            consumed.iter().map(|(name, text)| (name.as_str(), text.parse().unwrap())).collect()
        };
        Allocated {
            devices: self.allocated_devices.iter().flatten().map(|id| device_id(id)).collect(),
            shared: self.allocated_shared.iter().flatten().map(|id| device_id(id)).collect(),
            capacity: self
                .aggregated
                .iter()
                .flatten()
                .map(|(id, consumed)| (device_id(id), amounts(consumed)))
                .collect(),
        }
    }

    fn interruption(&self) -> Option<Interruption> {
        let interrupt = self.name.rsplit_once("/interrupt/")?.1;
        match interrupt {
            "timeout" | "deadline" => Some(Interruption::Deadline),
            "cancel" => Some(Interruption::Cancelled),
            _ => None,
        }
    }

    fn expected_error(&self, release: Release) -> String {
        let newer = NEWER.iter().find(|(name, _)| release >= Release::V1_37 && *name == self.case());
        let text = newer.map_or(self.error.as_str(), |(_, text)| text);
        // The recording's list of classes has an error text of its own.
        let class =
            text.split_once("could not retrieve device class ").and_then(|(_, rest)| rest.split_once(':'));
        class.map_or_else(
            || text.to_owned(),
            |(class, _)| {
                text.replace(
                    " \"not found\" not found",
                    &format!("deviceclass.resource.k8s.io {class:?} not found"),
                )
            },
        )
    }
}

fn device_id(id: &str) -> DeviceId<'_> {
    let mut parts = id.split('/');
    let mut part = || parts.next().unwrap();
    DeviceId { driver: part(), pool: part(), device: part() }
}

/// Results with every share named alike.
fn without_share_ids(mut results: Vec<AllocationResult>) -> Vec<AllocationResult> {
    for result in results.iter_mut().flat_map(|result| result.devices.iter_mut()) {
        for device in result.results.iter_mut().flatten() {
            if let Some(id) = &mut device.share_id {
                assert_eq!(id.len(), 36, "{id}");
                *id = "share".to_owned();
            }
        }
    }
    results
}

fn answer(row: &Row, release: Release) -> (Result<Option<Vec<AllocationResult>>, Error>, u64) {
    let slices: Slices<'_> =
        row.slices.iter().flatten().map(|slice| Slice::try_from(slice).unwrap()).collect();
    let claims: Vec<_> = row.claims.iter().flatten().map(|claim| Claim::try_from(claim).unwrap()).collect();
    // Lists were only known where they were switched on; since 1.37 they always are.
    let knows_lists = release >= Release::V1_37 || row.features().list_type_attributes;
    let cluster = Cluster {
        release,
        channel: if row.channel == "incubating" { Channel::Incubating } else { Channel::Experimental },
        features: row.features(),
        allocated: &row.allocated(),
        classes: row.classes.as_deref().unwrap_or_default(),
        slices: &slices,
        cel: &FewExpressions { knows_lists },
        interruption: &|| row.interruption(),
        new_share_id: &|| "00000000-0000-4000-8000-000000000000".to_owned(),
    };
    let answer = crate::allocate::allocate(&cluster, &row.node, &claims);
    let steps = Pools::gather(&cluster, &row.node).and_then(|pools| {
        let requests = Requests::check(&cluster, &row.node, &claims, &pools)?;
        let mut search = Search::new(&cluster, &row.node, &claims, &pools, &requests);
        let _ = search.run();
        Ok(search.steps)
    });
    (answer, steps.unwrap_or_default())
}

/// Why an answer differs, if it does.
fn difference(row: &Row, release: Release) -> Option<String> {
    let (answer, steps) = answer(row, release);
    let (results, error) = match answer {
        Ok(results) => (results, String::new()),
        Err(error) => (None, error.to_string()),
    };
    let results = results.map(without_share_ids);
    let recorded = row.results.clone().map(without_share_ids);
    let expected = row.expected_error(release);
    if error != expected {
        return Some(format!("error {error:?}, recorded {expected:?}"));
    }
    if results != recorded {
        let text = |results| serde_json::to_string(&results).unwrap();
        return Some(format!("{}\n   recorded {}", text(&results), text(&recorded)));
    }
    let is_as_long = if row.steps < PATIENCE { steps == row.steps } else { steps <= row.steps };
    (!is_as_long).then(|| format!("{steps} steps, recorded {}", row.steps))
}

fn release_of(name: &str) -> Release {
    if name.contains("v1.36") { Release::V1_36 } else { Release::V1_37 }
}

#[test]
fn allocations_are_those_of_the_reference() {
    let mut different = 0;
    for Recorded { name, text } in recorded("allocator-") {
        let rows = text.lines().map(|line| serde_json::from_str::<Row>(line).unwrap());
        let (lost, rows): (Vec<_>, Vec<_>) = rows.partition(|row| LOST.contains(&row.case()));
        let differences =
            rows.iter().filter_map(|row| Some((&row.name, difference(row, release_of(&name))?)));
        let mut equal = rows.len();
        for (row, difference) in differences {
            eprintln!("{name}: {row}: {difference}");
            equal -= 1;
        }
        eprintln!("{equal} of {} rows equal in {name}, {} left out", rows.len() + lost.len(), lost.len());
        different += rows.len() - equal;
    }
    assert_eq!(different, 0);
}
