//! What is asked for. Most requests look for a device that is there, so that many can be met; whether all of them can
//! at once is another matter.

use serde_json::{Value, json};

use super::{CLASSES, Published, selector};
use crate::dice::Dice;

/// Selectors that may fail on a device, or match none.
const RISKY: [&str; 9] = [
    "device.attributes[device.driver].model == \"x\"",
    "device.attributes[device.driver].numa > 0",
    "device.attributes[\"b.example.com\"].shared == \"s\"",
    "device.capacity[device.driver].memory.compareTo(quantity(\"2Gi\")) >= 0",
    "device.attributes[device.driver].version.isGreaterThan(semver(\"1.1.0\"))",
    "device.attributes[\"nope\"].x == 1",
    "device.attributes[device.driver].model in [\"x\", \"y\"]",
    "1 == \"a\"",
    "device.attributes[device.driver].flag",
];
/// Selectors that fail on no device with a value for each attribute.
const SAFE: [&str; 9] = [
    "true",
    "device.attributes[device.driver].?numa.orValue(7) != 1",
    "!has(device.attributes[device.driver].flag) || device.attributes[device.driver].flag == true",
    "\"memory\" in device.capacity[device.driver]",
    "device.attributes[device.driver].?model.orValue(\"x\") in [\"x\", \"y\"]",
    "device.driver.matches(\"^[ab][.]example\")",
    "device.attributes.exists(domain, device.attributes[domain].size() > 0)",
    "cel.bind(found, device.attributes[device.driver], size(found) > 2 || found.all(name, name != \"model\"))",
    "device.attributes[\"b.example.com\"].?shared.optMap(text, text == \"s\").orValue(true)",
];

pub(super) fn claim(dice: &mut Dice, index: usize, devices: &[Published<'_>]) -> Value {
    let requests: Vec<Value> =
        (0..=dice.weighted(&[10, 6, 2])).map(|number| request(dice, number, devices)).collect();
    let mut spec = json!({"requests": requests});
    let constraints: Vec<Value> =
        (0..dice.weighted(&[14, 5, 1])).map(|_| constraint(dice, &requests)).collect();
    if !constraints.is_empty() {
        spec["constraints"] = json!(constraints);
    }
    if dice.once_in(4) {
        let named = if dice.once_in(2) { json!([]) } else { json!([name_in(dice, &requests)]) };
        let driver = dice.one_of(&super::DRIVERS);
        spec["config"] =
            json!([{"requests": named, "opaque": {"driver": driver, "parameters": {"of": "claim"}}}]);
    }
    json!({"metadata": {"name": format!("claim-{index}"), "namespace": "default"}, "spec": {"devices": spec}})
}

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

/// The name of a request, or of one with its subrequest.
fn name_in(dice: &mut Dice, requests: &[Value]) -> String {
    let request = &requests[dice.below(requests.len())];
    let name = request["name"].as_str().unwrap_or_default();
    match request["firstAvailable"].as_array() {
        Some(subrequests) if dice.once_in(2) => {
            let subrequest = &subrequests[dice.below(subrequests.len())];
            format!("{name}/{}", subrequest["name"].as_str().unwrap_or_default())
        }
        _ => name.to_owned(),
    }
}

fn constraint(dice: &mut Dice, requests: &[Value]) -> Value {
    let attribute = dice.one_of(&[
        "a.example.com/model",
        "a.example.com/numa",
        "b.example.com/shared",
        "a.example.com/version",
        "a.example.com/flag",
        "a.example.com/lane",
    ]);
    let mut constraint = if attribute.ends_with("lane") || dice.once_in(5) {
        json!({"distinctAttribute": attribute})
    } else {
        json!({"matchAttribute": attribute})
    };
    if dice.odd(60) {
        constraint = json!({});
    }
    if dice.once_in(3) {
        constraint["requests"] = json!([name_in(dice, requests)]);
    }
    constraint
}

fn request(dice: &mut Dice, number: usize, devices: &[Published<'_>]) -> Value {
    let name = format!("req-{number}");
    if dice.once_in(5) {
        let subrequests: Vec<Value> = (0..=dice.below(3))
            .map(|index| {
                let mut exact = exact(dice, devices);
                exact["name"] = json!(format!("sub-{index}"));
                exact
            })
            .collect();
        return json!({"name": name, "firstAvailable": subrequests});
    }
    if dice.odd(60) {
        return json!({"name": name});
    }
    let mut exact = exact(dice, devices);
    if dice.once_in(12) {
        exact["adminAccess"] = json!(!dice.once_in(5));
    }
    if dice.once_in(10) {
        let expression = dice.one_of(&DERIVATIONS);
        exact["derivedAttributes"] = json!([{"name": "a.example.com/model", "expression": expression}]);
    }
    json!({"name": name, "exactly": exact})
}

fn exact(dice: &mut Dice, devices: &[Published<'_>]) -> Value {
    let near: Vec<&Published<'_>> = devices.iter().filter(|device| device.is_near).collect();
    let wanted = (!near.is_empty() && !dice.once_in(6)).then(|| near[dice.below(near.len())]);
    let class = match wanted {
        Some(wanted) if wanted.is_shared() && dice.once_in(4) => "shared",
        Some(wanted) if dice.once_in(3) => {
            if wanted.driver.starts_with('a') {
                "driver-a"
            } else {
                "driver-b"
            }
        }
        Some(_) => "any",
        None if dice.odd(15) => "missing",
        None => CLASSES[dice.below(CLASSES.len())].0,
    };
    let mut exact = json!({"deviceClassName": class});
    if dice.once_in(14) {
        exact["allocationMode"] = json!("All");
    } else if dice.odd(60) {
        exact["allocationMode"] = json!("Some");
    } else {
        exact["allocationMode"] = json!("ExactCount");
        exact["count"] = match dice.weighted(&[30, 6, 2, 1]) {
            3 => json!(dice.one_of(&[0, 4, 33])),
            more => json!(more + 1),
        };
    }
    let selectors: Vec<Value> =
        (0..dice.weighted(&[4, 5, 1])).map(|_| selector(&expression(dice, wanted))).collect();
    if !selectors.is_empty() {
        exact["selectors"] = json!(selectors);
    }
    let is_tainted = wanted.is_some_and(|wanted| wanted.device["taints"].is_array());
    if is_tainted && !dice.once_in(5) || dice.once_in(6) {
        exact["tolerations"] = (0..=dice.below(2)).map(|_| toleration(dice)).collect();
    }
    let has_memory = wanted.is_none_or(|wanted| wanted.device["capacity"].is_object());
    if has_memory && dice.once_in(5) || dice.odd(20) {
        let amount = dice.one_of(&["1", "512Mi", "1Gi", "1500Mi", "2Gi", "1200M", "300m"]);
        let name = if dice.odd(8) { "b.example.com/slots" } else { "memory" };
        exact["capacity"] = if dice.odd(30) { json!({}) } else { json!({"requests": {name: amount}}) };
    }
    exact
}

/// Something that holds for the wanted device, if there is one.
fn expression(dice: &mut Dice, wanted: Option<&Published<'_>>) -> String {
    if dice.odd(8) {
        return dice.one_of(&RISKY).to_owned();
    }
    let Some(wanted) = wanted.filter(|_| !dice.once_in(3)) else { return dice.one_of(&SAFE).to_owned() };
    let attribute = dice.one_of(&["model", "numa", "flag", "version"]);
    let value = &wanted.device["attributes"][attribute];
    let path = "device.attributes[device.driver]";
    let truth = if let Some(text) = value["string"].as_str() {
        match dice.below(3) {
            0 => format!("{path}.{attribute}.lowerAscii() == {text:?}"),
            1 => format!("{path}.{attribute} in [{text:?}, \"w\"]"),
            _ => format!("{path}.{attribute} == {text:?}"),
        }
    } else if let Some(number) = value["int"].as_i64() {
        match dice.below(3) {
            0 => format!("{path}.{attribute} >= {number}"),
            1 => format!("[{path}.{attribute}, 1].min() <= {number}"),
            _ => format!("{path}.{attribute} == {number}"),
        }
    } else if let Some(flag) = value["bool"].as_bool() {
        format!("{path}.{attribute} == {flag}")
    } else if let Some(version) = value["version"].as_str() {
        match dice.below(3) {
            0 => format!("!{path}.{attribute}.isLessThan(semver({version:?}))"),
            1 => format!("{path}.{attribute}.major() == semver({version:?}).major()"),
            _ => format!("{path}.{attribute}.compareTo(semver({version:?})) == 0"),
        }
    } else {
        return dice.one_of(&SAFE).to_owned();
    };
    // Without a guard, one device without the attribute, or with a list, spoils it all.
    if dice.odd(3) {
        truth
    } else {
        format!("{attribute:?} in {path} && type({path}.{attribute}) != list && {truth}")
    }
}

fn toleration(dice: &mut Dice) -> Value {
    match dice.below(6) {
        0..=2 => json!({"operator": "Exists"}),
        3 => json!({"key": "k1", "operator": "Exists", "effect": "NoSchedule"}),
        4 => json!({"key": "k2", "operator": "Equal", "value": "v"}),
        _ => json!({"key": "k1", "value": "w", "effect": "NoExecute", "tolerationSeconds": 5}),
    }
}
