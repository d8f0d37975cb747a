//! Every example runs on a real cluster, and prints what its README says.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{collections::BTreeSet, fs, path::Path, sync::LazyLock};

use support::{
    cluster::Cluster,
    driver::{Driver, names},
};

static DRIVER: LazyLock<Driver<'static>> =
    LazyLock::new(|| Driver::start(Cluster::shared(), include_str!("../examples/config.yaml")));

/// An example in a namespace of its own, so that all can run at the same time.
struct Example {
    cluster: &'static Cluster,
    namespace: String,
}

impl Example {
    fn start(name: &str) -> Self {
        LazyLock::force(&DRIVER);
        let cluster = Cluster::shared();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
        let file = names(&folder).into_iter().find(|file| file != "README.md").unwrap();
        let objects = fs::read_to_string(folder.join(file)).unwrap();
        let objects = objects.replace("image: busybox:stable", "image: localhost/claimfs/busybox:1");
        let namespace = if objects.contains("namespace: operators") { "operators" } else { name };
        cluster.apply("apply", &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"));
        cluster.apply_in("apply", namespace, &objects);
        Self { cluster, namespace: namespace.to_owned() }
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(&[&["--namespace", &self.namespace], arguments].concat())
    }

    fn wait(&self, what: &str, condition: &str) {
        self.kubectl(&["wait", what, &format!("--for={condition}"), "--timeout=120s"]);
    }

    fn log_of_pod(&self, pod: &str, container: &str) -> String {
        self.wait(&format!("pod/{pod}"), "jsonpath={.status.phase}=Succeeded");
        self.kubectl(&["logs", pod, "-c", container])
    }

    /// The lines of all pods of a Job, when it is complete.
    fn log_of_job(&self, job: &str) -> Vec<String> {
        self.wait(&format!("job/{job}"), "condition=Complete");
        let logs =
            self.kubectl(&["logs", "-l", &format!("job-name={job}"), "--tail=-1", "--max-log-requests=30"]);
        logs.lines().map(str::to_owned).collect()
    }

    /// Removes it, and waits until nothing of its claims is prepared any more.
    fn end(self) {
        let prepared = || names(&self.cluster.dir().join("cdi"));
        let uids = self.kubectl(&["get", "resourceclaims", "-o", "jsonpath={.items[*].metadata.uid}"]);
        self.cluster.kubectl(&["delete", "namespace", &self.namespace, "--timeout=120s"]);
        for uid in uids.split_whitespace() {
            assert!(!prepared().iter().any(|file| file.contains(uid)), "{uid} is still prepared");
        }
    }
}

/// The device in `NAME=device`.
fn device<'a>(log: &'a str, variable: &str) -> &'a str {
    let line = log.lines().find_map(|line| line.strip_prefix(variable)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {variable} in:\n{log}"))
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn pod_with_cats() {
    let example = Example::start("pod-with-cats");
    let logs = ["tom", "felix"].map(|container| example.log_of_pod("pod-with-cats", container));
    let devices: BTreeSet<&str> = logs.iter().map(|log| device(log, "CLAIMFS_DEVICE_CAT_0")).collect();
    assert_eq!(devices.len(), 2, "{devices:?}");
    // Each sees its own device and nothing of the other's.
    assert!(logs.iter().all(|log| log.lines().count() == 1), "{logs:?}");
    example.end();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn job_with_a_common_claim_and_separate_ones() {
    let example = Example::start("job");
    let lines = example.log_of_job("ten");
    assert_eq!(lines.len(), 10);
    let part = |line: &str, part: usize| line.split_whitespace().nth(part).unwrap().to_owned();
    // The common claim is allocated anew when no pod has used it for a moment, so its device can change; but
    // nobody else has it.
    let value = |line: &str, index: usize| part(line, index).split_once('=').unwrap().1.to_owned();
    assert!(lines.iter().all(|line| value(line, 0) != value(line, 1)), "{lines:?}");
    assert!(
        lines.iter().all(|line| value(line, 0).starts_with("gpu-") && value(line, 1).starts_with("gpu-"))
    );
    example.end();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn admin_access() {
    let example = Example::start("admin-access");
    assert_eq!(example.log_of_pod("monitor", "main"), "8\n");
    example.end();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn one_claim_shared_by_two_pods() {
    let example = Example::start("shared-claim");
    let logs = ["together-a", "together-b"].map(|pod| example.log_of_pod(pod, "main"));
    assert_eq!(logs[0], logs[1]);
    assert!(logs[0].starts_with("gpu-"));
    example.end();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn first_available() {
    let example = Example::start("first-available");
    let log = example.log_of_pod("first-available", "main");
    assert_eq!(log.lines().count(), 2, "{log}");
    assert_ne!(device(&log, "CLAIMFS_DEVICE_GPU_0"), device(&log, "CLAIMFS_DEVICE_GPU_1"));
    example.end();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn one_device_shared_by_twenty_pods() {
    let example = Example::start("shared-device");
    assert_eq!(example.log_of_job("twenty"), vec!["4"; 20]);
    example.end();
}
