//! Our allocator, asked as the reference is.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use claimfs::allocate::{
    Allocated, Claim, Cluster, DeviceId, Expressions, Features, InspectedWant, Interruption, Release, Slice,
    Slices, allocate, inspect,
};
use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    cases,
    compare::{Subject, comparable},
    dice::Dice,
};

/// What is wanted by whom, and what they get.
#[derive(Default)]
pub struct Allocator {
    /// By consumable capacity and lists, which expressions depend on.
    expressions: HashMap<(bool, bool), Expressions>,
}

/// All that an answer has besides the names of shares, which are random.
#[derive(Debug, PartialEq)]
pub struct Answer {
    results: Option<Vec<AllocationResult>>,
    error: String,
}

/// Longer than the reference takes for anything that it answers.
const PATIENCE: Duration = Duration::from_secs(10);

pub const FITS: &str = "fits";

impl Subject for Allocator {
    const KIND: &'static str = "allocate";

    type Answer = Answer;

    fn question(dice: &mut Dice) -> Value {
        cases::question(dice)
    }

    fn ours(&mut self, question: &Value) -> Option<Answer> {
        let names: Vec<String> = part(question, "Features")?;
        let node = Node::deserialize(&question["Node"]).ok()?;
        let classes: Vec<DeviceClass> = part(question, "Classes")?;
        let slices: Vec<ResourceSlice> = part(question, "Slices")?;
        let claims: Vec<ResourceClaim> = part(question, "Claims")?;
        let taken: Vec<String> = part(question, "AllocatedDevices")?;
        let shared: Vec<String> = part(question, "AllocatedShared")?;
        let consumed: BTreeMap<String, BTreeMap<String, String>> =
            Option::deserialize(&question["Aggregated"]).ok()?.unwrap_or_default();
        let slices: Slices<'_> = slices.iter().map(Slice::try_from).collect::<Result<_, _>>().ok()?;
        let claims: Vec<Claim<'_>> = claims.iter().map(Claim::try_from).collect::<Result<_, _>>().ok()?;
        let allocated = Allocated {
            devices: taken.iter().map(|id| device_id(id)).collect(),
            shared: shared.iter().map(|id| device_id(id)).collect(),
            capacity: consumed
                .iter()
                .map(|(id, amounts)| {
                    let amounts = amounts.iter().map(|(name, text)| Ok((name.as_str(), text.parse()?)));
                    Ok((device_id(id), amounts.collect::<Result<_, claimfs::device::AmountError>>()?))
                })
                .collect::<Result<_, claimfs::device::AmountError>>()
                .ok()?,
        };
        let features = features(&names);
        let expressions = self
            .expressions
            .entry((features.consumable_capacity, features.list_type_attributes))
            .or_insert_with(|| Expressions::new(Release::V1_37, &features));
        let started = Instant::now();
        let cluster = Cluster {
            release: Release::V1_37,
            channel: features.channel(),
            features,
            allocated: &allocated,
            classes: &classes,
            slices: &slices,
            cel: expressions,
            interruption: &|| (started.elapsed() > PATIENCE).then_some(Interruption::Deadline),
            new_share_id: &|| String::from("share"),
        };
        let outcome = allocate(&cluster, &node, &claims);
        if let Ok(Some(results)) = &outcome {
            nothing_was_in_the_way(&cluster, &node, &claims, results);
        }
        Some(match outcome {
            Ok(results) => Answer { results, error: String::new() },
            Err(error) => Answer { results: None, error: comparable(&error.to_string()).to_owned() },
        })
    }

    fn theirs(said: &Value) -> Option<Answer> {
        if said.get("invalid").is_some() {
            return None;
        }
        let mut results = Option::<Vec<AllocationResult>>::deserialize(&said["Results"]).unwrap();
        let devices = results.iter_mut().flatten().filter_map(|result| result.devices.as_mut());
        for device in devices.flat_map(|devices| devices.results.iter_mut().flatten()) {
            device.share_id = device.share_id.take().map(|_| String::from("share"));
        }
        let error = said["Error"].as_str().unwrap_or_default();
        Some(Answer { results, error: comparable(error).to_owned() })
    }

    fn outcome(answer: &Answer) -> String {
        let outcome = match answer {
            Answer { results: Some(_), .. } => FITS,
            Answer { error, .. } if error.is_empty() => "does not fit",
            Answer { error, .. } if error.contains("CEL") => "CEL error",
            Answer { error, .. } if error.contains("resource pool") => "pool error",
            _ => "other error",
        };
        outcome.to_owned()
    }

    fn traits(question: &Value) -> Vec<&'static str> {
        let claims = question["Claims"].to_string();
        let rest = question["Slices"].to_string();
        let several = question["Claims"].as_array().is_some_and(|claims| claims.len() > 1);
        let taken = ["AllocatedDevices", "AllocatedShared"];
        let is_taken = taken.iter().any(|name| question[*name].as_array().is_some_and(|all| !all.is_empty()));
        let has = [
            ("several claims", several),
            ("something taken", is_taken),
            ("firstAvailable", claims.contains("firstAvailable")),
            ("All", claims.contains("\"All\"")),
            ("adminAccess", claims.contains("adminAccess")),
            ("tolerations", claims.contains("tolerations")),
            ("capacity requests", claims.contains("\"capacity\"")),
            ("matchAttribute", claims.contains("matchAttribute")),
            ("distinctAttribute", claims.contains("distinctAttribute")),
            ("selectors", claims.contains("selectors")),
            ("config", claims.contains("opaque")),
            ("shared devices", rest.contains("allowMultipleAllocations")),
            ("request policies", rest.contains("requestPolicy")),
            ("counters", rest.contains("consumesCounters")),
            ("compatibility groups", rest.contains("compatibilityGroups")),
            ("taints", rest.contains("taints")),
            ("binding conditions", rest.contains("bindingConditions")),
            (
                "lists",
                ["ints\"", "bools\"", "strings\"", "versions\""].iter().any(|name| rest.contains(name)),
            ),
            ("node selectors", rest.contains("nodeSelector")),
            ("devices placed alone", rest.contains("perDeviceNodeSelection")),
            ("skipped operations", rest.contains("skipNodeOperations")),
        ];
        has.into_iter().filter_map(|(label, is_there)| is_there.then_some(label)).collect()
    }
}

fn part<T: DeserializeOwned>(question: &Value, name: &str) -> Option<Vec<T>> {
    Option::<Vec<T>>::deserialize(&question[name]).ok()?.or_else(|| Some(Vec::new()))
}

fn features(names: &[String]) -> Features {
    let on = |name: &str| names.iter().any(|one| one == name);
    Features {
        admin_access: on("AdminAccess"),
        compatibility_groups: on("CompatibilityGroups"),
        consumable_capacity: on("ConsumableCapacity"),
        derived_attributes: on("DerivedAttributes"),
        binding_conditions: on("DeviceBindingAndStatus"),
        device_taints: on("DeviceTaints"),
        fractional_capacity_range: on("FractionalCapacityRange"),
        list_type_attributes: on("ListTypeAttributes"),
        optional_node_operations: on("OptionalNodeOperations"),
        partitionable_devices: on("PartitionableDevices"),
        prioritized_list: on("PrioritizedList"),
    }
}

/// What is taken has no obstacle in the eyes of the explainer, which looks at every device by itself.
fn nothing_was_in_the_way(
    cluster: &Cluster<'_>,
    node: &Node,
    claims: &[Claim<'_>],
    results: &[AllocationResult],
) {
    let inspection = inspect(cluster, node, claims).unwrap();
    for (place, result) in results.iter().enumerate() {
        let devices = result.devices.as_ref().and_then(|devices| devices.results.as_deref());
        for result in devices.unwrap_or_default() {
            let (request, subrequest) = match result.request.split_once('/') {
                Some((request, subrequest)) => (request, Some(subrequest)),
                None => (result.request.as_str(), None),
            };
            let is_it = |want: &&InspectedWant<'_>| {
                want.claim == place && want.request == request && want.subrequest == subrequest
            };
            let want = inspection.wants.iter().find(is_it).unwrap();
            let id = DeviceId { driver: &result.driver, pool: &result.pool, device: &result.device };
            let device = want.devices.iter().find(|device| device.id == id).unwrap();
            assert_eq!(device.obstacles, [], "{id} was taken for {}", result.request);
        }
    }
}

fn device_id(text: &str) -> DeviceId<'_> {
    let mut parts = text.split('/');
    let mut part = || parts.next().unwrap_or_default();
    DeviceId { driver: part(), pool: part(), device: part() }
}
