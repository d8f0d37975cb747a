//! A real kubelet, scheduler and runtime. `CLAIMFS_TEST_KUBERNETES` and `CLAIMFS_TEST_RUNTIME` choose which.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{env, fs, process::Command};

use serde_json::Value;
use support::{cluster::Cluster, driver::binary, plugin::RunningPlugin};
use tempfile::TempDir;

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_pod_runs_and_its_log_is_read() {
    let cluster = Cluster::shared();
    cluster.apply(
        "apply",
        "
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: 'localhost/claimfs/busybox:1', command: [echo, hello from a container]}
",
    );
    cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/hello", "--timeout=60s"]);
    assert_eq!(cluster.kubectl(&["logs", "hello"]), "hello from a container\n");
    assert_eq!(cluster.kubectl(&["get", "pod", "hello", "-o", "jsonpath={.spec.nodeName}"]), cluster.node());
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn commands_run_as_on_the_node() {
    let cluster = Cluster::shared();
    assert!(cluster.exec(&["ls", "/var/lib/kubelet"]).contains("plugins_registry"));
}

/// The kubelet dials the registration socket by its bare path. What gRPC for Go makes of that is an
/// authority only when the file name has an `@`: this must hold for every kubelet that we support.
#[tokio::test]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_plugin_registers_with_the_real_kubelet() {
    let cluster = Cluster::shared();
    for _restart in 0..2 {
        let mut plugin =
            RunningPlugin::start(cluster.kubelet_dir(), "ground.example.com", "ground.example.com@reg.sock");
        let verdict = plugin.verdict().await;
        assert!(verdict.plugin_registered, "{}", verdict.error);
    }
}

/// Slices that no driver stands behind: the scheduler allocates them all the same.
const SLICES: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: agree.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == \"agree.example.com\"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: agree-a}
spec:
  driver: agree.example.com
  allNodes: true
  pool: {name: a, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: d0, attributes: {model: {string: x}, numa: {int: 0}}, capacity: {memory: {value: 8Gi}}}
  - {name: d1, attributes: {model: {string: z}, numa: {int: 1}}, capacity: {memory: {value: 16Gi}}}
  - {name: d2, attributes: {model: {string: x}, numa: {int: 1}}, capacity: {memory: {value: 16Gi}}}
  - name: d3
    attributes: {model: {string: z}, numa: {int: 0}}
    capacity: {memory: {value: 8Gi}}
    taints: [{key: sick, effect: NoSchedule}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: agree-b}
spec:
  driver: agree.example.com
  allNodes: true
  pool: {name: b, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: s0, allowMultipleAllocations: true, attributes: {model: {string: s}}, capacity: {memory: {value: 10Gi, requestPolicy: {default: 1Gi, validRange: {min: 1Gi, step: 2Gi}}}}}
";

/// What each claim asks for, in turn.
const ASKED: [(&str, &str); 6] = [
    (
        "numa",
        "requests: [{name: r, exactly: {deviceClassName: agree.example.com, count: 2, selectors: [{cel: {expression: 'device.attributes[\"agree.example.com\"].model != \"s\"'}}]}}], constraints: [{matchAttribute: agree.example.com/numa}]",
    ),
    (
        "share-one",
        "requests: [{name: r, exactly: {deviceClassName: agree.example.com, capacity: {requests: {memory: 4Gi}}, selectors: [{cel: {expression: 'device.allowMultipleAllocations'}}]}}]",
    ),
    (
        "alternatives",
        "requests: [{name: r, firstAvailable: [{name: big, deviceClassName: agree.example.com, selectors: [{cel: {expression: 'device.capacity[\"agree.example.com\"].memory.compareTo(quantity(\"64Gi\")) > 0'}}]}, {name: any, deviceClassName: agree.example.com}]}]",
    ),
    (
        "share-two",
        "requests: [{name: r, exactly: {deviceClassName: agree.example.com, capacity: {requests: {memory: 3Gi}}, selectors: [{cel: {expression: 'device.allowMultipleAllocations'}}]}}]",
    ),
    (
        "sick",
        "requests: [{name: r, exactly: {deviceClassName: agree.example.com, tolerations: [{key: sick, operator: Exists}], selectors: [{cel: {expression: '!device.allowMultipleAllocations'}}]}}]",
    ),
    (
        "none",
        "requests: [{name: r, exactly: {deviceClassName: agree.example.com, selectors: [{cel: {expression: '!device.allowMultipleAllocations'}}]}}]",
    ),
];

/// Which devices, in order, with their requests and shares.
fn chosen(allocation: &Value) -> Vec<Value> {
    let results = allocation["devices"]["results"].as_array().unwrap();
    let fields = ["request", "pool", "device", "consumedCapacity"];
    results.iter().map(|result| fields.map(|field| result[field].clone()).into_iter().collect()).collect()
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn the_allocator_chooses_what_the_real_scheduler_chooses() {
    let cluster = Cluster::shared();
    // What decides as 1.36 does decides as those before it do.
    let is_older = env::var("CLAIMFS_TEST_KUBERNETES").is_ok_and(|version| !version.starts_with("1.37"));
    let release = if is_older { "1.36" } else { "1.37" };
    cluster.apply("apply", SLICES);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("claim.yaml");
    let (file, kubeconfig) = (file.to_str().unwrap(), cluster.kubeconfig().to_str().unwrap());
    for (name, devices) in ASKED {
        let claim = format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: {{devices: {{{devices}}}}}\n"
        );
        fs::write(file, &claim).unwrap();
        let arguments =
            ["allocate", "--kubernetes", release, "--kubeconfig", kubeconfig, "-f", file, "-o", "json"];
        let ours = Command::new(binary()).args(arguments).output().unwrap();
        let pod = format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  resourceClaims: [{{name: c, resourceClaimName: {name}}}]\n  \
             containers: [{{name: main, image: 'localhost/claimfs/busybox:1', resources: {{claims: [{{name: c}}]}}}}]\n"
        );
        cluster.apply("apply", &(claim + &pod));
        if name == "none" {
            assert_eq!(ours.status.code(), Some(1));
            let reason = "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}=Unschedulable";
            cluster.kubectl(&["wait", &format!("pod/{name}"), &format!("--for={reason}"), "--timeout=60s"]);
            let subject = ["explain", "pod", "default/none", "--kubeconfig", kubeconfig];
            let explained = Command::new(binary()).args(subject).output().unwrap();
            let text = String::from_utf8(explained.stdout).unwrap();
            assert!(text.contains("in use by default/alternatives"), "{text}");
            assert!(text.contains("\nto change"), "{text}");
            continue;
        }
        cluster.kubectl(&[
            "wait",
            &format!("resourceclaim/{name}"),
            "--for=jsonpath={.status.allocation}",
            "--timeout=60s",
        ]);
        let theirs = cluster.kubectl(&["get", "resourceclaim", name, "-o", "json"]);
        let theirs: Value = serde_json::from_str(&theirs).unwrap();
        let ours: Value =
            serde_json::from_slice(&ours.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {ours:?}"));
        let (ours, theirs) = (&ours["items"][0]["status"]["allocation"], &theirs["status"]["allocation"]);
        assert_eq!(chosen(ours), chosen(theirs), "{name}");
        assert_eq!(ours["nodeSelector"], theirs["nodeSelector"], "{name}");
    }
    for (name, _) in ASKED {
        cluster.kubectl(&["delete", "pod", name, "--force", "--grace-period=0"]);
    }
}
