//! Attributes that requests calculate, with the real expressions.

use serde_json::{Value, from_value, json};

use crate::allocate::{Allocated, Claim, Cluster, Expressions, Features, Release, Slice, Slices, allocate};

/// The devices of two requests that must have the same derived attribute, of three devices with a number each.
fn chosen(expression: &str) -> Result<Option<Vec<String>>, String> {
    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        from_value(value).unwrap()
    }
    let devices: Vec<_> = [1, 4, 3]
        .map(|number| {
            json!({ "name": format!("device-{number}"), "attributes": { "number": { "int": number } } })
        })
        .into();
    let slice = read(json!({
        "metadata": { "name": "slice" },
        "spec": {
            "driver": "driver", "allNodes": true, "devices": devices,
            "pool": { "name": "pool", "generation": 1, "resourceSliceCount": 1 },
        },
    }));
    let request = |name: &str| {
        let derived = json!([{ "name": "driver/kind", "expression": expression }]);
        let exactly = json!({
            "deviceClassName": "class", "allocationMode": "ExactCount", "count": 1, "derivedAttributes": derived,
        });
        json!({ "name": name, "exactly": exactly })
    };
    let devices = json!({
        "requests": [request("one"), request("other")],
        "constraints": [{ "matchAttribute": "driver/kind" }],
    });
    let claim = read(json!({ "metadata": { "name": "claim" }, "spec": { "devices": devices } }));
    let class = read(json!({ "metadata": { "name": "class" }, "spec": {} }));
    let node = read(json!({ "metadata": { "name": "node" } }));
    let features = Features { derived_attributes: true, ..Features::default_of(Release::V1_37) };
    let cluster = Cluster {
        release: Release::V1_37,
        channel: features.channel(),
        features,
        allocated: &Allocated::default(),
        classes: &[class],
        slices: &Slices::from_iter([Slice::try_from(&slice).unwrap()]),
        cel: &Expressions::new(Release::V1_37, &features),
        interruption: &|| None,
        new_share_id: &String::new,
    };
    let results = allocate(&cluster, &node, &[Claim::try_from(&claim).unwrap()]);
    let results = results.map_err(|error| error.to_string())?;
    Ok(results.map(|results| {
        let devices =
            results.into_iter().filter_map(|result| result.devices).filter_map(|devices| devices.results);
        devices.flatten().map(|result| result.device).collect()
    }))
}

#[test]
fn devices_are_matched_by_what_a_request_calculates() {
    let of = |devices: [&str; 2]| Ok(Some(devices.map(str::to_owned).into()));
    assert_eq!(chosen("device.attributes.driver.number % 2"), of(["device-1", "device-3"]));
    assert_eq!(chosen("device.driver"), of(["device-1", "device-4"]));
    assert_eq!(chosen("device.attributes.driver.number"), Ok(None));
}

#[test]
fn what_cannot_be_calculated_ends_the_allocation_with_the_name_of_the_attribute() {
    for (expression, expected) in [
        (
            "1.5",
            "compile derived attribute driver/kind failed: must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not double",
        ),
        (
            "device.attributes.driver.none",
            "evaluate derived attribute driver/kind on device driver/pool/device-1 failed: no such key: none",
        ),
        (
            "dyn(1.5)",
            "evaluate derived attribute driver/kind on device driver/pool/device-1 failed: unsupported CEL return type: float64",
        ),
    ] {
        let error = chosen(expression).unwrap_err();
        assert!(error.ends_with(expected), "{error}");
    }
}
