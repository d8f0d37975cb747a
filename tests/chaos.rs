//! Everything is killed once while forty pods come and go: kubelet, API server, runtime, etcd, and the daemon.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{collections::BTreeMap, env, thread, time::Duration};

use support::{
    DEADLINE,
    cluster::{Cluster, Part},
    driver::{Driver, names},
};

const CONFIG: &str = "sources: [{name: gpu, simulated: {count: 6}}]";

const JOB: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.claimfs.dev}
spec: {selectors: [{cel: {expression: 'device.driver == "claimfs.dev"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.claimfs.dev}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: forty}
spec:
  completions: 40
  parallelism: 6
  # A pod whose runtime is killed under it may fail; its work is done by another.
  backoffLimit: 100
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
      containers:
      - name: main
        image: localhost/claimfs/busybox:1
        command: [sh, -c, 'read from _ < /proc/uptime; sleep 2; read to _ < /proc/uptime; echo "$CLAIMFS_DEVICE_GPU_0 $from $to"']
        resources: {claims: [{name: gpu}]}
"#;

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn forty_pods_end_well_while_everything_is_killed_once() {
    let cluster = Cluster::start("chaos", Part::Node);
    let driver = Driver::start(&cluster, CONFIG);
    cluster.apply("apply", JOB);
    driver.wait_for("\"message\":\"prepared\"");

    driver.kill();
    let driver = Driver::start(&cluster, CONFIG);
    driver.wait_for("\"message\":\"prepared\"");
    let runtime = env::var("CLAIMFS_TEST_RUNTIME").unwrap_or_else(|_| String::from("containerd"));
    for component in ["kubelet", &runtime, "etcd"] {
        cluster.stop_component(component);
        cluster.start_component(component);
        driver.wait_for("\"message\":\"prepared\"");
    }
    cluster.stop_component("kube-apiserver");
    // Longer than the kubelet waits for anything it could hold against us.
    thread::sleep(Duration::from_secs(30));
    cluster.start_component("kube-apiserver");
    driver.wait_for("\"message\":\"prepared\"");
    driver.stop();
    let driver = Driver::start(&cluster, CONFIG);

    cluster.kubectl(&["wait", "--for=condition=Complete", "job/forty", "--timeout=300s"]);
    let logs = cluster.kubectl(&["logs", "-l", "job-name=forty", "--tail=-1", "--max-log-requests=200"]);
    no_device_was_doubled(&logs);

    cluster.kubectl(&["delete", "job", "forty", "--cascade=foreground", "--timeout=120s"]);
    let deadline = std::time::Instant::now() + DEADLINE;
    while !names(&cluster.dir().join("cdi")).is_empty() || !driver.journal().is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?} are still prepared", driver.journal());
        thread::sleep(Duration::from_millis(50));
    }
    let slices =
        cluster.kubectl(&["get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].name}"]);
    assert_eq!(slices, "gpu-0 gpu-1 gpu-2 gpu-3 gpu-4 gpu-5");
    driver.stop();
    cluster.down();
}

/// No two containers had one device at the same time.
fn no_device_was_doubled(logs: &str) {
    let mut uses: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let mut count = 0;
    for line in logs.lines() {
        let mut words = line.split_whitespace();
        let (Some(device), Some(from), Some(to)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        uses.entry(device).or_default().push((from.parse().unwrap(), to.parse().unwrap()));
        count += 1;
    }
    assert!(count >= 40, "{count} pods have spoken:\n{logs}");
    for (device, mut times) in uses {
        times.sort_by(|one, other| one.0.total_cmp(&other.0));
        for pair in times.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{device} was used twice at the same time: {pair:?}");
        }
    }
}
