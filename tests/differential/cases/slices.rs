//! What is published: pools of slices with devices.

use serde_json::{Map, Value, json};

use super::{NODES, QUANTITIES};
use crate::dice::Dice;

const POOLS: [&str; 3] = ["pool-1", "pool-2", "pool-10"];
const ATTRIBUTES: [&str; 6] = ["model", "numa", "flag", "version", "b.example.com/shared", "lane"];
const EFFECTS: [&str; 4] = ["NoSchedule", "NoSchedule", "NoExecute", "None"];
const SETS: [&str; 2] = ["set", "other"];
const GROUPS: [&str; 3] = ["red", "green", "blue"];

/// Where all slices of a pool are.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Node,
    AllNodes,
    Selected,
    Alone,
}

pub(super) fn pools(dice: &mut Dice, driver: &str) -> Vec<Value> {
    (0..=dice.weighted(&[4, 3, 1])).flat_map(|index| pool(dice, driver, POOLS[index])).collect()
}

fn pool(dice: &mut Dice, driver: &str, name: &str) -> Vec<Value> {
    let count = dice.weighted(&[5, 3, 1]) + 1;
    let has_counters = dice.once_in(3);
    let total = count + usize::from(has_counters);
    // Now and then a pool that is being updated.
    let said = if dice.odd(8) { total + 1 } else { total };
    let head = |slice: &str, generation: usize| {
        json!({
            "metadata": {"name": format!("{driver}-{name}-{slice}")},
            "spec": {"driver": driver, "pool": {"name": name, "generation": generation, "resourceSliceCount": said}},
        })
    };
    let mut slices = Vec::new();
    let mut serial = 0;
    let place =
        dice.one_of(&[Place::Node, Place::Node, Place::Node, Place::AllNodes, Place::Selected, Place::Alone]);
    let generation = if dice.once_in(4) { 2 } else { 1 };
    for index in 0..count {
        let generation = if dice.odd(15) { 3 - generation } else { generation };
        let mut slice = head(&format!("s{}", index * 9 + 1), generation);
        let spec = slice["spec"].as_object_mut().unwrap();
        placed(dice, spec, place);
        let devices: Vec<Value> = (0..dice.weighted(&[1, 4, 4, 2, 1]))
            .map(|_| {
                // Now and then a name twice.
                serial += usize::from(!dice.odd(20));
                device(dice, serial, has_counters, place == Place::Alone)
            })
            .collect();
        spec.insert(String::from("devices"), json!(devices));
        if dice.once_in(12) {
            spec.insert(
                String::from("skipNodeOperations"),
                dice.one_of(&[
                    &["NodeUnprepareResources"][..],
                    &["NodePrepareResources", "NodeUnprepareResources"],
                ])
                .into(),
            );
        }
        slices.push(slice);
    }
    if has_counters {
        let mut slice = head("counters", if dice.odd(15) { 3 } else { generation });
        let spec = slice["spec"].as_object_mut().unwrap();
        placed(dice, spec, place);
        spec.insert(String::from("sharedCounters"), counter_sets(dice));
        slices.push(slice);
    }
    if dice.once_in(3) {
        slices.reverse();
    }
    slices
}

fn counter_sets(dice: &mut Dice) -> Value {
    let mut sets: Vec<Value> = SETS
        .iter()
        .map(|name| {
            let units = dice.below(6) + 1;
            json!({"name": name, "counters": {"memory": {"value": dice.one_of(&QUANTITIES)}, "units": {"value": units.to_string()}}})
        })
        .collect();
    if dice.odd(15) {
        sets.remove(0);
    }
    if dice.odd(30) {
        sets.push(sets[0].clone());
    }
    json!(sets)
}

fn placed(dice: &mut Dice, spec: &mut Map<String, Value>, place: Place) {
    let (key, value) = match place {
        Place::Node => ("nodeName", json!(if dice.odd(8) { NODES[1] } else { NODES[0] })),
        Place::AllNodes => ("allNodes", json!(true)),
        Place::Selected => ("nodeSelector", node_selector(dice)),
        Place::Alone => ("perDeviceNodeSelection", json!(true)),
    };
    spec.insert(key.to_owned(), value);
}

fn node_selector(dice: &mut Dice) -> Value {
    let zone = |dice: &mut Dice| {
        let values: &[&str] = if dice.odd(5) { &["z2"] } else { dice.one_of(&[&["z1"][..], &["z2", "z1"]]) };
        json!({"key": "zone", "operator": "In", "values": values})
    };
    let mut term = match dice.below(8) {
        0 => {
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [dice.one_of(&NODES)]}]})
        }
        1 => json!({"matchExpressions": [zone(dice), {"key": "gone", "operator": "DoesNotExist"}]}),
        2 => {
            json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z2"]}, {"key": "zone", "operator": "Exists"}]})
        }
        _ => json!({"matchExpressions": [zone(dice)]}),
    };
    if dice.odd(30) {
        term["matchExpressions"] = json!([{"key": "zone", "operator": "Gt", "values": ["1"]}]);
    }
    let mut terms = vec![term];
    if dice.odd(20) {
        terms.push(json!({"matchExpressions": [zone(dice)]}));
    }
    json!({"nodeSelectorTerms": terms})
}

fn device(dice: &mut Dice, serial: usize, has_counters: bool, is_placed_alone: bool) -> Value {
    let mut device = Map::new();
    let mut put = |key: &str, value: Value| drop(device.insert(key.to_owned(), value));
    put("name", json!(format!("dev-{serial}")));
    let mut attributes = Map::new();
    for name in ATTRIBUTES {
        if !dice.once_in(6) {
            attributes.insert(name.to_owned(), attribute(dice, name));
        }
    }
    if dice.once_in(10) {
        // No selector looks at it: which of the two that would see is left to chance in the reference.
        attributes.insert(String::from("a.example.com/lane"), json!({"int": dice.below(2)}));
    }
    put("attributes", Value::Object(attributes));
    let is_shared = dice.once_in(4);
    if !dice.once_in(5) {
        put("capacity", capacity(dice, is_shared));
    }
    if is_shared {
        put("allowMultipleAllocations", json!(true));
    }
    if has_counters && !dice.once_in(3) {
        let sets = if dice.once_in(4) { &SETS[..] } else { &SETS[..1] };
        put("consumesCounters", sets.iter().map(|set| consumption(dice, set)).collect());
    }
    if dice.once_in(6) {
        put("taints", (0..=dice.below(2)).map(|_| taint(dice)).collect());
    }
    if dice.once_in(12) {
        put("bindingConditions", json!(["ready"]));
        put("bindingFailureConditions", json!(["failed"]));
        put("bindsToNode", json!(dice.once_in(2)));
    }
    if is_placed_alone {
        match dice.below(5) {
            0 => put("nodeName", json!(NODES[1])),
            1 | 2 => put("nodeName", json!(NODES[0])),
            3 => put("allNodes", json!(true)),
            _ => put("nodeSelector", node_selector(dice)),
        }
    }
    Value::Object(device)
}

fn capacity(dice: &mut Dice, is_shared: bool) -> Value {
    let mut memory = json!({"value": dice.one_of(&QUANTITIES)});
    if is_shared && dice.once_in(2) || dice.odd(10) {
        memory["requestPolicy"] = match dice.below(8) {
            0 => json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}),
            1 => json!({"default": "1Gi", "validRange": {"min": "512Mi", "max": "2Gi"}}),
            2 => json!({"default": "500M", "validRange": {"min": "500M", "max": "1500M", "step": "500M"}}),
            3 => json!({"default": "1500m", "validRange": {"min": "500m", "step": "250m"}}),
            4 => json!({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}),
            5 => json!({"validValues": ["1", "1G", "1Gi", "3Gi"]}),
            6 => json!({"default": "1Gi"}),
            _ => json!({"validRange": {"min": "0", "step": "1"}}),
        };
    }
    let mut capacity = json!({"memory": memory});
    if dice.once_in(5) {
        capacity["b.example.com/slots"] = json!({"value": dice.one_of(&["1", "2", "2500m"])});
    }
    capacity
}

fn consumption(dice: &mut Dice, set: &str) -> Value {
    let units = dice.below(4) + 1;
    let mut counters = json!({"units": {"value": units.to_string()}});
    if dice.once_in(3) {
        counters["memory"] = json!({"value": dice.one_of(&["1", "512Mi", "1Gi", "2Gi"])});
    }
    if dice.odd(40) {
        counters["nothing"] = json!({"value": "1"});
    }
    let set = if dice.odd(40) { "missing" } else { set };
    let mut consumption = json!({"counterSet": set, "counters": counters});
    if dice.once_in(5) {
        let first = dice.below(GROUPS.len());
        let groups = [GROUPS[first], GROUPS[(first + 1) % GROUPS.len()]];
        consumption["compatibilityGroups"] = json!(groups[..=dice.below(2)]);
    }
    consumption
}

fn taint(dice: &mut Dice) -> Value {
    json!({"key": dice.one_of(&["k1", "k2"]), "value": dice.one_of(&["v", "w"]), "effect": dice.one_of(&EFFECTS)})
}

fn attribute(dice: &mut Dice, name: &str) -> Value {
    const VERSIONS: [&str; 4] = ["1.0.0", "1.2.0", "1.2.0+build", "2.0.0-rc.1"];
    // Only one name, because which of several the reference finds first is left to chance.
    if name == "flag" && dice.odd(40) {
        return json!({});
    }
    let is_list = dice.once_in(10);
    match name {
        "numa" if is_list => json!({"ints": [dice.below(2), dice.below(3)]}),
        "flag" if is_list => json!({"bools": [dice.once_in(2)]}),
        "version" if is_list => json!({"versions": [dice.one_of(&VERSIONS), "1.2.0"]}),
        "model" if is_list => json!({"strings": dice.one_of(&[&["x", "z"][..], &["y"], &["z", "y", "z"]])}),
        "numa" => json!({"int": dice.below(2)}),
        "lane" => json!({"int": dice.below(6)}),
        "flag" => json!({"bool": dice.once_in(2)}),
        "version" => json!({"version": dice.one_of(&VERSIONS)}),
        "model" => json!({"string": dice.one_of(&["x", "x", "y", "z"])}),
        _ => json!({"string": dice.one_of(&["s", "s", "t"])}),
    }
}
