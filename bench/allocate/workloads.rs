//! What both allocators are given.

use serde_json::{Value, json};

const DRIVER: &str = "gpu.example.com";

/// Pods that are scheduled one after the other, each on the first node that has what its claims want.
pub(crate) struct Workload {
    pub(crate) nodes: Vec<Value>,
    pub(crate) slices: Vec<Value>,
    /// The requests of a pod's one claim, and what has to hold between its devices.
    pub(crate) pods: Vec<Pod>,
}

#[derive(Clone)]
pub(crate) struct Pod {
    requests: Vec<Value>,
    constraints: Vec<Value>,
}

impl Workload {
    /// In the form that both sides read.
    pub(crate) fn json(&self) -> Value {
        let pods: Vec<_> =
            self.pods.iter().enumerate().map(|(index, pod)| json!([pod.claim(index)])).collect();
        let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors(&format!("device.driver == \"{DRIVER}\""))}});
        json!({"Nodes": self.nodes, "Classes": [class], "Slices": self.slices, "Pods": pods})
    }
}

impl Pod {
    fn claim(&self, index: usize) -> Value {
        let devices = json!({"requests": self.requests, "constraints": self.constraints});
        json!({"metadata": {"name": format!("claim-{index}"), "namespace": "default"}, "spec": {"devices": devices}})
    }

    fn constrained(mut self, constraint: Value) -> Self {
        self.constraints.push(constraint);
        self
    }
}

fn of_one_node(devices: &[Value], pod: Pod) -> Workload {
    Workload { nodes: vec![node(0)], slices: vec![slice(0, devices)], pods: vec![pod] }
}

/// So many requests, each for so many devices.
fn pod(requests: usize, count: usize) -> Pod {
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
    let request = |index: usize| json!({"name": format!("request-{index}"), "exactly": exactly});
    Pod { requests: (0..requests).map(request).collect(), constraints: Vec::new() }
}

/// One device for which an expression holds.
fn selecting(expression: &str) -> Pod {
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors(expression)});
    Pod { requests: vec![json!({"name": "request", "exactly": exactly})], constraints: Vec::new() }
}

fn selectors(expression: &str) -> Value {
    json!([{"cel": {"expression": expression}}])
}

fn node(index: usize) -> Value {
    json!({"metadata": {"name": format!("node-{index}")}})
}

fn slice(node: usize, devices: &[Value]) -> Value {
    let pool = json!({"name": format!("node-{node}"), "generation": 1, "resourceSliceCount": 1});
    json!({
        "metadata": {"name": format!("slice-{node}")},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": format!("node-{node}"), "devices": devices},
    })
}

/// As a driver of GPUs publishes it.
fn device(index: usize) -> Value {
    json!({
        "name": format!("gpu-{index}"),
        "attributes": {
            "driverVersion": {"version": "550.54.15"},
            "index": {"int": index},
            "model": {"string": if index % 8 == 7 { "H200" } else { "H100" }},
            "numa": {"int": index / 8},
            "uuid": {"string": format!("GPU-5b1d9c4e-0000-4000-8000-{index:012}")},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    })
}

fn devices(count: usize) -> Vec<Value> {
    (0..count).map(device).collect()
}

/// A selector that compares a text and an amount, and holds for the last of eight devices.
fn the_last_of_eight() -> Pod {
    selecting(&format!(
        "device.attributes[\"{DRIVER}\"].model == \"H200\" && device.capacity[\"{DRIVER}\"].memory.compareTo(quantity(\"40Gi\")) >= 0"
    ))
}

fn nothing() -> Pod {
    selecting(&format!("device.attributes[\"{DRIVER}\"].model == \"B300\""))
}

/// Five requests for devices of one NUMA node.
fn matching() -> Workload {
    let constraint = json!({"matchAttribute": format!("{DRIVER}/numa")});
    of_one_node(&devices(8), pod(5, 1).constrained(constraint))
}

/// Seven partitions: only without the first, which is as large as two, there is enough for all.
fn partitions() -> Workload {
    let devices = (0..8).map(|index| {
        let mut device = device(index);
        let slices = if index == 0 { 2 } else { 1 };
        device["consumesCounters"] = json!([{"counterSet": "gpu", "counters": {"slices": {"value": slices.to_string()}, "memory": {"value": "10Gi"}}}]);
        device
    });
    let mut slices = vec![slice(0, &devices.collect::<Vec<_>>())];
    let mut counters = slice(0, &[]);
    counters["metadata"]["name"] = json!("slice-0-counters");
    counters["spec"]["sharedCounters"] =
        json!([{"name": "gpu", "counters": {"slices": {"value": "7"}, "memory": {"value": "80Gi"}}}]);
    slices.push(counters);
    for slice in &mut slices {
        slice["spec"]["pool"]["resourceSliceCount"] = json!(2);
    }
    Workload { nodes: vec![node(0)], slices, pods: vec![pod(1, 7)] }
}

/// More devices wanted by one request than exist.
pub(crate) fn one_too_few(wanted: usize) -> Workload {
    of_one_node(&devices(wanted - 1), pod(1, wanted))
}

/// More single requests than devices.
pub(crate) fn one_too_few_for_requests(requests: usize) -> Workload {
    of_one_node(&devices(requests - 1), pod(requests, 1))
}

/// Eight devices on each of so many nodes.
fn cluster(nodes: usize, asked: impl IntoIterator<Item = usize>, pods: Vec<Pod>) -> Workload {
    let slices = (0..nodes).map(|index| slice(index, &devices(8))).collect();
    Workload { nodes: asked.into_iter().map(node).collect(), slices, pods }
}

/// Makes a workload, some of which are large.
type Make = fn() -> Workload;

/// The table.
pub(crate) const ALL: [(&str, Make); 13] = [
    ("1 of 10 devices", || of_one_node(&devices(10), pod(1, 1))),
    ("1 of 10 devices, CEL selector", || of_one_node(&devices(10), the_last_of_eight())),
    ("128 devices, none match", || of_one_node(&devices(128), nothing())),
    ("matchAttribute, 5 requests", matching),
    ("partitionable backtracking, 7 of 8", partitions),
    ("16 wanted, 15 exist", || one_too_few(16)),
    ("18 wanted, 17 exist", || one_too_few(18)),
    ("8 single requests, 7 devices", || one_too_few_for_requests(8)),
    ("1,000 nodes x 8, CEL, one asked", || cluster(1_000, [500], vec![the_last_of_eight()])),
    ("10,000 nodes x 8, CEL, one asked", || cluster(10_000, [5_000], vec![the_last_of_eight()])),
    ("1,000 nodes x 8, CEL, all asked, none fits", || cluster(1_000, 0..1_000, vec![nothing()])),
    ("10,000 nodes x 8, CEL, all asked, none fits", || cluster(10_000, 0..10_000, vec![nothing()])),
    ("20 nodes x 8, one device a pod until full", || cluster(20, 0..20, vec![pod(1, 1); 20 * 8 + 1])),
];
