//! A real kubelet, scheduler and runtime. `CLAIMFS_TEST_KUBERNETES` and `CLAIMFS_TEST_RUNTIME` choose which.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use support::{cluster::Cluster, plugin::RunningPlugin};

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
