//! Random but hostile questions to an allocator, as JSON: what the recorded rows have, in combinations that nobody wrote.

use serde_json::{Map, Value, json};

/// Numbers that a seed decides, so that a case can be made again.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than this.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const FEATURES: [&str; 11] = [
    "AdminAccess",
    "CompatibilityGroups",
    "ConsumableCapacity",
    "DerivedAttributes",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "FractionalCapacityRange",
    "ListTypeAttributes",
    "OptionalNodeOperations",
    "PartitionableDevices",
    "PrioritizedList",
];
const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];
const POOLS: [&str; 3] = ["pool-1", "pool-2", "pool-10"];
const NODES: [&str; 2] = ["node-1", "node-2"];
const CLASSES: [&str; 3] = ["any", "driver-a", "big"];
const ATTRIBUTES: [&str; 5] = ["model", "numa", "flag", "version", "b.example.com/shared"];
const QUANTITIES: [&str; 6] = ["1", "1Gi", "2Gi", "3Gi", "4Gi", "1500M"];
const EFFECTS: [&str; 3] = ["NoSchedule", "NoExecute", "None"];
const SELECTORS: [&str; 14] = [
    "true",
    "device.driver == \"a.example.com\"",
    "device.driver.startsWith(\"b.\")",
    "device.attributes[device.driver].model == \"x\"",
    "device.attributes[device.driver].numa > 0",
    "has(device.attributes[device.driver].flag) && device.attributes[device.driver].flag",
    "device.attributes[\"b.example.com\"].shared == \"s\"",
    "device.attributes[device.driver].?numa.orValue(7) != 1",
    "device.capacity[device.driver].memory.compareTo(quantity(\"2Gi\")) >= 0",
    "\"memory\" in device.capacity[device.driver]",
    "device.attributes[device.driver].version.isGreaterThan(semver(\"1.1.0\"))",
    "device.attributes[\"nope\"].x == 1",
    "device.attributes[device.driver].model in [\"x\", \"y\"]",
    "1 == \"a\"",
];

/// What attributes are derived by: of every type, some that fail on some devices, and some that are none.
const DERIVATIONS: [&str; 10] = [
    "device.driver",
    "device.attributes[device.driver].?numa.orValue(7) % 2",
    "device.attributes[device.driver].?model.orValue(\"none\")",
    "device.attributes[device.driver].version",
    "device.attributes[device.driver].model",
    "has(device.attributes[device.driver].numa)",
    "[device.driver, \"x\"]",
    "[1, 2].filter(x, x > 2)",
    "dyn(1.5)",
    "[[1]]",
];

/// A whole question.
pub fn question(dice: &mut Dice) -> Value {
    let features: Vec<&str> = FEATURES.into_iter().filter(|_| !dice.once_in(12)).collect();
    let slices: Vec<Value> = DRIVERS.iter().flat_map(|driver| pools(dice, driver)).collect();
    let devices: Vec<String> = slices.iter().flat_map(device_ids).collect();
    let claims: Vec<Value> = (0..=dice.below(3)).map(|index| claim(dice, index)).collect();
    let allocated: Vec<&String> = devices.iter().filter(|_| dice.once_in(6)).collect();
    json!({
        "Features": features,
        "Node": {"metadata": {"name": "node-1", "labels": {"zone": "z1"}}},
        "Classes": classes(dice),
        "Slices": slices,
        "Claims": claims,
        "AllocatedDevices": allocated,
        "AllocatedShared": [],
        "Aggregated": {},
    })
}

fn device_ids(slice: &Value) -> Vec<String> {
    let spec = &slice["spec"];
    let devices = spec["devices"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    devices
        .iter()
        .map(|device| {
            format!("{}/{}/{}", text(&spec["driver"]), text(&spec["pool"]["name"]), text(&device["name"]))
        })
        .collect()
}

fn classes(dice: &mut Dice) -> Vec<Value> {
    let selector = |expression: &str| json!([{"cel": {"expression": expression}}]);
    let config = json!([{"opaque": {"driver": "a.example.com", "parameters": {"of": "class"}}}]);
    let mut classes = vec![
        json!({"metadata": {"name": "any"}, "spec": {}}),
        json!({"metadata": {"name": "driver-a"}, "spec": {"selectors": selector(SELECTORS[1]), "config": config}}),
        json!({"metadata": {"name": "big"}, "spec": {"selectors": selector(SELECTORS[8])}}),
    ];
    if dice.once_in(20) {
        classes.remove(dice.below(3));
    }
    classes
}

fn pools(dice: &mut Dice, driver: &str) -> Vec<Value> {
    (0..=dice.below(3)).flat_map(|index| pool(dice, driver, POOLS[index])).collect()
}

fn pool(dice: &mut Dice, driver: &str, name: &str) -> Vec<Value> {
    let count = dice.below(3) + 1;
    let has_counters = dice.once_in(3);
    let total = count + usize::from(has_counters);
    // Now and then a pool that is being updated.
    let said = if dice.once_in(12) { total + 1 } else { total };
    let head = |slice: &str, generation: usize| {
        json!({
            "metadata": {"name": format!("{driver}-{name}-{slice}")},
            "spec": {"driver": driver, "pool": {"name": name, "generation": generation, "resourceSliceCount": said}},
        })
    };
    let mut slices = Vec::new();
    let mut serial = 0;
    let where_to = dice.below(8);
    for index in 0..count {
        let generation = if dice.once_in(15) { 2 } else { 1 };
        let mut slice = head(&format!("s{}", index * 9 + 1), generation);
        let spec = slice["spec"].as_object_mut().unwrap();
        placed(dice, spec, where_to);
        let devices: Vec<Value> = (0..dice.below(5))
            .map(|_| {
                // Now and then a name twice.
                serial += usize::from(!dice.once_in(40));
                device(dice, serial, has_counters, where_to == 7)
            })
            .collect();
        spec.insert(String::from("devices"), json!(devices));
        slices.push(slice);
    }
    if has_counters {
        let mut slice = head("counters", 1);
        let spec = slice["spec"].as_object_mut().unwrap();
        placed(dice, spec, where_to.min(6));
        spec.insert(
            String::from("sharedCounters"),
            json!([{"name": "set", "counters": {"memory": {"value": dice.one_of(&QUANTITIES)}, "units": {"value": "4"}}}]),
        );
        slices.push(slice);
    }
    slices
}

fn placed(dice: &mut Dice, spec: &mut Map<String, Value>, where_to: usize) {
    let (key, value) = match where_to {
        0..=3 => ("nodeName", json!(if dice.once_in(10) { NODES[1] } else { NODES[0] })),
        4 | 5 => ("allNodes", json!(true)),
        6 => ("nodeSelector", node_selector(dice)),
        _ => ("perDeviceNodeSelection", json!(true)),
    };
    spec.insert(key.to_owned(), value);
}

fn node_selector(dice: &mut Dice) -> Value {
    let zone = dice.one_of(&["z1", "z1", "z2"]);
    json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]})
}

fn device(dice: &mut Dice, serial: usize, has_counters: bool, is_placed_alone: bool) -> Value {
    let mut device = Map::new();
    let mut put = |key: &str, value: Value| drop(device.insert(key.to_owned(), value));
    put("name", json!(format!("dev-{serial}")));
    let mut attributes = Map::new();
    for name in ATTRIBUTES {
        if !dice.once_in(4) {
            attributes.insert(name.to_owned(), attribute(dice, name));
        }
    }
    put("attributes", Value::Object(attributes));
    let shared = dice.once_in(4);
    if !dice.once_in(4) {
        let mut memory = json!({"value": dice.one_of(&QUANTITIES)});
        if shared && dice.once_in(2) {
            memory["requestPolicy"] = match dice.below(3) {
                0 => json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}),
                1 => json!({"default": "1Gi", "validRange": {"min": "512Mi", "max": "2Gi"}}),
                _ => json!({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}),
            };
        }
        put("capacity", json!({"memory": memory}));
    }
    if shared {
        put("allowMultipleAllocations", json!(true));
    }
    if has_counters && dice.once_in(2) {
        let units = dice.below(4) + 1;
        put(
            "consumesCounters",
            json!([{"counterSet": "set", "counters": {"units": {"value": units.to_string()}}}]),
        );
    }
    if dice.once_in(6) {
        put(
            "taints",
            json!([{"key": dice.one_of(&["k1", "k2"]), "value": "v", "effect": dice.one_of(&EFFECTS)}]),
        );
    }
    if dice.once_in(12) {
        put("bindingConditions", json!(["ready"]));
        put("bindingFailureConditions", json!(["failed"]));
        put("bindsToNode", json!(dice.once_in(2)));
    }
    if is_placed_alone {
        match dice.below(3) {
            0 => put("nodeName", json!(dice.one_of(&NODES))),
            1 => put("allNodes", json!(true)),
            _ => put("nodeSelector", node_selector(dice)),
        }
    }
    Value::Object(device)
}

fn attribute(dice: &mut Dice, name: &str) -> Value {
    match name {
        "numa" => json!({"int": dice.below(3)}),
        "flag" => json!({"bool": dice.once_in(2)}),
        "version" => json!({"version": dice.one_of(&["1.0.0", "1.2.0", "1.2.0+build"])}),
        "model" if dice.once_in(8) => json!({"strings": ["x", "z"]}),
        "model" => json!({"string": dice.one_of(&["x", "y", "z"])}),
        _ => json!({"string": dice.one_of(&["s", "t"])}),
    }
}

fn claim(dice: &mut Dice, index: usize) -> Value {
    let requests: Vec<Value> = (0..=dice.below(3)).map(|number| request(dice, number)).collect();
    let mut devices = json!({"requests": requests});
    let constraints: Vec<Value> = (0..dice.below(3)).map(|_| constraint(dice, &requests)).collect();
    if !constraints.is_empty() {
        devices["constraints"] = json!(constraints);
    }
    if dice.once_in(4) {
        let named = if dice.once_in(2) { json!([]) } else { json!([requests[0]["name"]]) };
        devices["config"] = json!([{"requests": named, "opaque": {"driver": "a.example.com", "parameters": {"of": "claim"}}}]);
    }
    json!({"metadata": {"name": format!("claim-{index}"), "namespace": "default"}, "spec": {"devices": devices}})
}

fn constraint(dice: &mut Dice, requests: &[Value]) -> Value {
    let attribute = dice.one_of(&[
        "a.example.com/model",
        "a.example.com/numa",
        "b.example.com/shared",
        "a.example.com/version",
    ]);
    let kind = if dice.once_in(4) { "distinctAttribute" } else { "matchAttribute" };
    let mut constraint = json!({kind: attribute});
    if dice.once_in(3) {
        constraint["requests"] = json!([requests[dice.below(requests.len())]["name"]]);
    }
    constraint
}

fn request(dice: &mut Dice, number: usize) -> Value {
    let name = format!("req-{number}");
    if dice.once_in(5) {
        let subrequests: Vec<Value> = (0..=dice.below(3))
            .map(|index| {
                let mut exact = exact(dice, false);
                exact["name"] = json!(format!("sub-{index}"));
                exact
            })
            .collect();
        return json!({"name": name, "firstAvailable": subrequests});
    }
    json!({"name": name, "exactly": exact(dice, true)})
}

fn exact(dice: &mut Dice, may_be_admin: bool) -> Value {
    let class = if dice.once_in(60) { "missing" } else { dice.one_of(&CLASSES) };
    let mut exact = json!({"deviceClassName": class});
    if dice.once_in(15) {
        exact["allocationMode"] = json!("All");
    } else {
        exact["allocationMode"] = json!("ExactCount");
        exact["count"] = json!(dice.below(3) + 1);
    }
    if dice.once_in(2) {
        let expression = if dice.once_in(30) { dice.one_of(&SELECTORS) } else { SELECTORS[dice.below(11)] };
        exact["selectors"] = json!([{"cel": {"expression": expression}}]);
    }
    if dice.once_in(4) {
        let toleration = match dice.below(3) {
            0 => json!({"operator": "Exists"}),
            1 => json!({"key": "k1", "operator": "Exists", "effect": "NoSchedule"}),
            _ => json!({"key": "k2", "operator": "Equal", "value": "v"}),
        };
        exact["tolerations"] = json!([toleration]);
    }
    if may_be_admin && dice.once_in(12) {
        exact["adminAccess"] = json!(true);
    }
    if dice.once_in(8) {
        let expression = dice.one_of(&DERIVATIONS);
        exact["derivedAttributes"] = json!([{"name": "a.example.com/model", "expression": expression}]);
    }
    if dice.once_in(6) {
        exact["capacity"] = json!({"requests": {"memory": dice.one_of(&["1Gi", "1500Mi", "2Gi"])}});
    }
    exact
}

/// The smallest question for which something still holds, as far as leaving parts out leads.
pub fn smallest(question: Value, holds: &mut impl FnMut(&Value) -> bool) -> Value {
    let mut best = question;
    loop {
        let smaller = shorter(&best).into_iter().find(|candidate| holds(candidate));
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// The same without one part: an element of a list, or a member of an object.
fn shorter(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Array(elements) => {
            for index in 0..elements.len() {
                let mut without = elements.clone();
                without.remove(index);
                all.push(Value::Array(without));
            }
            for (index, element) in elements.iter().enumerate() {
                for smaller in shorter(element) {
                    let mut with = elements.clone();
                    with[index] = smaller;
                    all.push(Value::Array(with));
                }
            }
        }
        Value::Object(members) => {
            for name in members.keys() {
                let mut without = members.clone();
                without.remove(name);
                all.push(Value::Object(without));
            }
            for (name, member) in members {
                for smaller in shorter(member) {
                    let mut with = members.clone();
                    with.insert(name.clone(), smaller);
                    all.push(Value::Object(with));
                }
            }
        }
        _ => {}
    }
    all
}
