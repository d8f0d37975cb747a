//! What a real API server says to our slices.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::process::Command;

use support::cluster::Cluster;
use tempfile::TempDir;

/// The slices of a configuration, as `claimfs devices` prints them.
fn slices(config: &str, node: &str) -> String {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, config).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_claimfs"))
        .args(["devices", "-o", "slices", "--node-name", node, "--config", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every device as the API server has stored it.
fn stored(cluster: &Cluster, node: &str) -> Vec<serde_json::Value> {
    let selector = format!("--field-selector=spec.nodeName={node}");
    let list = cluster.kubectl(&["get", "resourceslices", "-o", "json", &selector]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let slices = list["items"].as_array().unwrap().iter();
    slices.flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default()).collect()
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn the_example_is_taken_as_it_is() {
    let cluster = Cluster::shared_control_plane();
    cluster.apply("create", &slices(include_str!("../examples/config.yaml"), "example"));
    let devices = stored(cluster, "example");
    let gpu = devices.iter().find(|device| device["name"] == "gpu-7").unwrap();
    assert_eq!(gpu["attributes"]["model"]["string"], "LATEST-GPU-MODEL");
    assert_eq!(gpu["capacity"]["memory"]["value"], "80Gi");
    // A server without consumable capacity would drop this without a word.
    let random = devices.iter().find(|device| device["name"] == "random").unwrap();
    assert_eq!(random["allowMultipleAllocations"], true);
    assert_eq!(random["capacity"]["shares"]["requestPolicy"]["default"], "1");
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn the_largest_devices_in_the_largest_slices_are_taken() {
    let cluster = Cluster::shared_control_plane();
    let domain = "d".repeat(63);
    let text = "x".repeat(64);
    let version = format!("1.0.0-{}", "x".repeat(58));
    let attributes: String =
        (0..27).map(|index| format!("    {domain}/{index:a>32}: {{string: {text}}}\n")).collect();
    let config = format!(
        "driver: {driver}\nsources:\n- name: {source}\n  simulated: {{count: 300}}\n  shared: {{max: 4294967295}}\n  \
         attributes:\n{attributes}    v: {{version: {version}}}\n    i: {{int: -9223372036854775808}}\n  \
         capacity: {{memory: 9223372036854775807}}\n",
        driver = format_args!("{}.{}", "r".repeat(31), "s".repeat(31)),
        source = "s".repeat(40),
    );
    let node = format!("{}.{}.{}.{}", "n".repeat(63), "n".repeat(63), "n".repeat(63), "n".repeat(61));
    cluster.apply("create", &slices(&config, &node));
    let devices = stored(cluster, &node);
    assert_eq!(devices.len(), 300);
    assert!(devices.iter().all(|device| device["attributes"].as_object().unwrap().len() == 30));
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn everything_in_dev_is_taken() {
    let cluster = Cluster::shared_control_plane();
    let printed =
        slices("sources: [{name: all, dev: {paths: ['/dev/*', '/dev/*/*', '/dev/*/*/*']}}]", "everything");
    cluster.apply("create", &printed);
    assert!(stored(cluster, "everything").iter().any(|device| device["name"] == "null"));
}
