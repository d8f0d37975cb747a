//! Random but hostile questions to an allocator, as JSON: what the recorded rows have, in combinations that nobody wrote.

mod claims;
mod slices;

use serde_json::{Value, json};

use crate::dice::Dice;

/// On by default in 1.37.
const SETTLED: [&str; 7] = [
    "AdminAccess",
    "ConsumableCapacity",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "FractionalCapacityRange",
    "PartitionableDevices",
    "PrioritizedList",
];
const YOUNG: [&str; 4] =
    ["CompatibilityGroups", "DerivedAttributes", "ListTypeAttributes", "OptionalNodeOperations"];
const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];
const NODES: [&str; 2] = ["node-1", "node-2"];
const QUANTITIES: [&str; 6] = ["1", "1Gi", "2Gi", "3Gi", "4Gi", "1500M"];

/// Classes by name, and the selectors that each has.
const CLASSES: [(&str, &[&str]); 5] = [
    ("any", &[]),
    ("driver-a", &["device.driver == \"a.example.com\""]),
    ("driver-b", &["device.driver.startsWith(\"b.\")", "true"]),
    (
        "big",
        &[
            "\"memory\" in device.capacity[device.driver] && device.capacity[device.driver].memory.compareTo(quantity(\"2Gi\")) >= 0",
        ],
    ),
    ("shared", &["device.allowMultipleAllocations == true"]),
];

/// A whole question.
pub fn question(dice: &mut Dice) -> Value {
    let drivers = if dice.once_in(3) { &DRIVERS[..] } else { &DRIVERS[..1] };
    let slices: Vec<Value> = drivers.iter().flat_map(|driver| slices::pools(dice, driver)).collect();
    let devices: Vec<Published<'_>> = slices.iter().flat_map(published).collect();
    let claims: Vec<Value> =
        (0..=dice.weighted(&[10, 5, 1])).map(|index| claims::claim(dice, index, &devices)).collect();
    let mut allocated = Vec::new();
    let mut shared = Vec::new();
    let mut aggregated = serde_json::Map::new();
    for device in &devices {
        if device.is_shared() {
            if dice.once_in(4) {
                shared.push(format!("{}/share-{}", device.id, dice.below(3)));
                let amount = dice.one_of(&["512Mi", "1Gi", "1500M", "5Gi"]);
                aggregated.insert(device.id.clone(), json!({"memory": amount}));
            }
        } else if dice.once_in(8) {
            allocated.push(device.id.clone());
        }
    }
    json!({
        "Features": features(dice),
        "Node": {"metadata": {"name": "node-1", "labels": {"zone": "z1"}}},
        "Classes": classes(dice),
        "Slices": slices,
        "Claims": claims,
        "AllocatedDevices": allocated,
        "AllocatedShared": shared,
        "Aggregated": aggregated,
    })
}

fn features(dice: &mut Dice) -> Vec<&'static str> {
    let mut features = SETTLED.to_vec();
    match dice.below(3) {
        0 => {}
        1 => features.extend(YOUNG),
        _ => features.extend(YOUNG.into_iter().filter(|_| dice.once_in(2))),
    }
    // Off is what the request needs most often: that is an error, and answers nothing else.
    features.retain(|_| !dice.odd(12));
    features
}

fn classes(dice: &mut Dice) -> Vec<Value> {
    let mut classes: Vec<Value> = CLASSES
        .iter()
        .map(|(name, expressions)| {
            let mut spec = json!({});
            if !expressions.is_empty() {
                spec["selectors"] = expressions.iter().map(|text| selector(text)).collect();
            }
            if dice.once_in(4) {
                let driver = dice.one_of(&DRIVERS);
                spec["config"] = json!([{"opaque": {"driver": driver, "parameters": {"of": name}}}]);
            }
            json!({"metadata": {"name": name}, "spec": spec})
        })
        .collect();
    if dice.odd(15) {
        classes.remove(dice.below(CLASSES.len()));
    }
    if dice.odd(30) {
        classes.remove(0);
    }
    classes
}

fn selector(expression: &str) -> Value {
    json!({"cel": {"expression": expression}})
}

/// A device as a claim would look for it.
struct Published<'a> {
    id: String,
    driver: &'a str,
    device: &'a Value,
    is_near: bool,
}

impl Published<'_> {
    fn is_shared(&self) -> bool {
        self.device["allowMultipleAllocations"] == true
    }
}

fn published(slice: &Value) -> Vec<Published<'_>> {
    let spec = &slice["spec"];
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let is_near = |place: &Value| {
        place["nodeName"] == NODES[0] || place["allNodes"] == true || place["nodeSelector"].is_object()
    };
    let devices = spec["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    devices
        .iter()
        .map(|device| Published {
            id: format!(
                "{}/{}/{}",
                text(&spec["driver"]),
                text(&spec["pool"]["name"]),
                text(&device["name"])
            ),
            driver: spec["driver"].as_str().unwrap_or_default(),
            device,
            is_near: is_near(spec) || is_near(device),
        })
        .collect()
}
