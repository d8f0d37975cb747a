//! The manifests in deploy/, on a real cluster: the daemon without privilege in a pod, its holder in another, and an
//! update that starts the new pod first, under a reader that never stops.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{fs, path::Path, process::Command};

use support::{cluster::Cluster, driver::binary, podman::busybox};
use tempfile::TempDir;

/// Reads until it is told to, and tells how often and how often in vain. In a user namespace of its own, if the
/// runtime can.
fn reader(name: &str, extra: &str) -> String {
    format!(
        "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, namespace: default}}
spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: claimfs.dev}}}}]}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  {extra}
  resourceClaims: [{{name: mine, resourceClaimName: {name}}}]
  containers:
  - name: main
    image: localhost/claimfs/busybox:1
    command:
    - sh
    - -c
    - |
      n=0 e=0 done=
      trap 'done=1' TERM USR1
      while [ -z \"$done\" ]; do
        if cat /var/run/kubernetes.io/dra-device-attributes/resourceclaims/{name}/gpu/claimfs.dev-metadata.json >/dev/null
        then n=$((n+1)); else e=$((e+1)); fi
      done
      echo \"$n reads, $e errors\"
    resources: {{claims: [{{name: mine}}]}}
---
"
    )
}

/// As it is in deploy/, with what is different on this node: where the kubelet and the API server are. Another
/// version of it has another port for its probes, because on this node all pods share one network.
fn manifests(cluster: &Cluster, version: u16) -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/claimfs.yaml")).unwrap();
    let server = cluster.kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let (host, port) = server.strip_prefix("https://").unwrap().split_once(':').unwrap();
    let server = format!(
        "- {{name: KUBERNETES_SERVICE_HOST, value: {host}}}\n        - {{name: KUBERNETES_SERVICE_PORT, value: \"{port}\"}}\n        "
    );
    let probes = 19440 + version;
    let replaced = [
        ("/var/lib/kubelet", cluster.kubelet_dir().to_str().unwrap().to_owned()),
        // A machine that is itself in a container may not protect anybody from the lack of memory.
        ("priorityClassName: system-node-critical", String::from("priorityClassName: null")),
        ("hostNetwork: false", String::from("hostNetwork: true")),
        ("- {name: CLAIMFS_NODE_NAME", format!("{server}- {{name: CLAIMFS_NODE_NAME")),
        ("0.0.0.0:9440", format!("127.0.0.1:{probes}")),
        ("httpGet: {port: 9440", format!("httpGet: {{host: 127.0.0.1, port: {probes}")),
    ];
    replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

fn load_image(cluster: &Cluster) {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("claimfs.tar");
    let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    let hack = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack");
    run(Command::new(hack.join("cluster.d/image"))
        .arg(busybox())
        .arg(&image)
        .args(["localhost/claimfs/claimfs:0.1.0", &binary()]));
    run(Command::new(hack.join("cluster")).args(["--name", cluster.name(), "load-image"]).arg(&image));
}

fn rolled_out(cluster: &Cluster) {
    cluster.kubectl(&["--namespace=claimfs", "rollout", "status", "daemonset/claimfs", "--timeout=120s"]);
}

fn holds(cluster: &Cluster) {
    let ready = "--for=jsonpath={.status.numberReady}=1";
    cluster.kubectl(&["--namespace=claimfs", "wait", "daemonset/claimfs-hold", ready, "--timeout=60s"]);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn an_update_that_starts_the_new_pod_first_fails_no_read() {
    let cluster = Cluster::shared();
    load_image(cluster);
    cluster.apply("apply", &manifests(cluster, 1));
    holds(cluster);
    rolled_out(cluster);
    let readers = [
        ("reads", ""),
        ("reads-as-user", "securityContext: {runAsUser: 1000, runAsNonRoot: true}"),
        ("reads-in-user-namespace", "hostUsers: false"),
    ];
    for (name, extra) in readers {
        cluster.apply("apply", &reader(name, extra));
        cluster.kubectl(&["wait", &format!("pod/{name}"), "--for=condition=Ready", "--timeout=60s"]);
    }
    for version in 2..=4 {
        cluster.apply("apply", &manifests(cluster, version));
        rolled_out(cluster);
    }
    // The holder can be updated, too.
    cluster.kubectl(&[
        "--namespace=claimfs",
        "delete",
        "pod",
        "--selector=app=claimfs-hold",
        "--timeout=60s",
    ]);
    holds(cluster);
    cluster.apply("apply", &reader("late", ""));
    cluster.kubectl(&["wait", "pod/late", "--for=condition=Ready", "--timeout=60s"]);
    for name in readers.iter().map(|(name, _)| *name).chain(["late"]) {
        cluster.signal(name, "-USR1");
        let pod = format!("pod/{name}");
        cluster.kubectl(&["wait", &pod, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"]);
        let log = cluster.kubectl(&["logs", name]);
        println!("{name}: {}", log.trim());
        assert!(log.contains(" reads, 0 errors") && !log.starts_with("0 "), "{log}");
    }
    let daemon = cluster.kubectl(&["--namespace=claimfs", "logs", "daemonset/claimfs"]);
    assert!(daemon.contains("taking over") && daemon.contains("the metadata are served"), "{daemon}");
    cluster.kubectl(&["delete", "pod", "--all", "--timeout=60s"]);
    cluster.kubectl(&["--namespace=claimfs", "delete", "daemonset", "--all", "--timeout=60s"]);
}
