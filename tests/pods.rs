//! What a real kubelet does with claims besides the usual, and what a real runtime makes of our specs.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Instant};

use support::{
    DEADLINE,
    cluster::Cluster,
    driver::{Driver, names},
};

/// A class with the devices of a driver, and a claim for one of them.
fn claim(driver: &str, name: &str) -> String {
    format!(
        "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: {driver}}}
spec: {{selectors: [{{cel: {{expression: 'device.driver == \"{driver}\"'}}}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}}}
spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: {driver}}}}}]}}}}
---
"
    )
}

/// A pod with claims, of which its container uses some.
fn pod(name: &str, claims: &[&str], used: &[&str], security: &str, script: &str) -> String {
    let claims: Vec<String> =
        claims.iter().map(|claim| format!("{{name: {claim}, resourceClaimName: {claim}}}")).collect();
    let used: Vec<String> = used.iter().map(|claim| format!("{{name: {claim}}}")).collect();
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  resourceClaims: [{}]
  containers:
  - name: main
    image: localhost/claimfs/busybox:1
    securityContext: {security}
    command: [sh, -c, '{script}']
    resources: {{claims: [{}]}}
---
",
        claims.join(", "),
        used.join(", ")
    )
}

fn wait(cluster: &Cluster, pod: &str, phase: &str) {
    cluster.kubectl(&[
        "wait",
        &format!("pod/{pod}"),
        &format!("--for=jsonpath={{.status.phase}}={phase}"),
        "--timeout=120s",
    ]);
}

fn uid(cluster: &Cluster, claim: &str) -> String {
    cluster.kubectl(&["get", "resourceclaim", claim, "-o", "jsonpath={.metadata.uid}"])
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn c32_a_claim_that_no_container_uses_is_prepared_all_the_same() {
    let cluster = Cluster::shared();
    let driver = "unused.example.com";
    let config = format!("driver: {driver}\nsources: [{{name: gpu, simulated: {{count: 1}}}}]");
    let daemon = Driver::start_in(cluster, "unused", &config);
    cluster.apply(
        "apply",
        &(claim(driver, "unused") + &pod("unused", &["unused"], &[], "{}", "env; sleep 600")),
    );
    wait(cluster, "unused", "Running");
    let spec = format!("{driver}-{}.json", uid(cluster, "unused"));
    assert!(names(&cluster.dir().join("cdi")).contains(&spec));
    assert!(!cluster.kubectl(&["logs", "unused"]).contains("CLAIMFS_DEVICE"));
    cluster.kubectl(&["delete", "pod", "unused"]);
    daemon.wait_for("\"message\":\"unprepared\"");
    assert!(!names(&cluster.dir().join("cdi")).contains(&spec));
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn c30_a_driver_that_fails_holds_its_pod_up_and_nobody_else() {
    let cluster = Cluster::shared();
    let [good, bad] = ["good.example.com", "bad.example.com"];
    let config = |driver| format!("driver: {driver}\nsources: [{{name: gpu, simulated: {{count: 2}}}}]");
    let working = Driver::start_in(cluster, "good", &config(good));
    Driver::start_in(cluster, "bad", &config(bad)).kill();
    let script = "echo $CLAIMFS_DEVICE_R_0";
    let objects = [
        claim(good, "good"),
        claim(bad, "bad"),
        claim(good, "alone"),
        pod("both", &["good", "bad"], &["good"], "{}", script),
        pod("alone", &["alone"], &["alone"], "{}", script),
    ];
    cluster.apply("apply", &objects.concat());
    // The one that needs only the good driver is not kept waiting.
    wait(cluster, "alone", "Succeeded");
    let deadline = Instant::now() + DEADLINE;
    let events = || cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
    while !events().contains("FailedPrepareDynamicResources") {
        assert!(Instant::now() < deadline, "{}", events());
    }
    assert_eq!(cluster.kubectl(&["get", "pod", "both", "-o", "jsonpath={.status.phase}"]), "Pending");
    let _mended = Driver::start_in(cluster, "bad", &config(bad));
    wait(cluster, "both", "Succeeded");
    assert!(cluster.kubectl(&["logs", "both"]).starts_with("gpu-"));
    drop(working);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn specs_with_everything_are_injected() {
    let cluster = Cluster::shared();
    let driver = "everything.example.com";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("cdi-specs");
    let config = fs::read_to_string(golden.join("everything.yaml")).unwrap();
    let daemon = Driver::start_in(cluster, "everything", &format!("driver: {driver}\n{config}"));
    let script =
        "id; env; ls -ln /dev/random; cat /opt/fpga/hostname; head -c 1 /dev/random | wc -c; sleep 600";
    // Neither root nor in the node's group: only the additional group opens it.
    let user = "{runAsUser: 1000, runAsGroup: 1000}";
    cluster.apply(
        "apply",
        &(claim(driver, "everything") + &pod("everything", &["everything"], &["everything"], user, script)),
    );
    wait(cluster, "everything", "Running");
    let uid = uid(cluster, "everything");
    let spec = fs::read_to_string(cluster.dir().join(format!("cdi/{driver}-{uid}.json"))).unwrap();
    let expected = fs::read_to_string(golden.join("everything.json")).unwrap();
    let golden_uid = "0f9e8d7c-1234-4abc-9def-001122334455";
    let expected = expected
        .replace(golden_uid, &uid)
        .replace("claimfs.dev/device", &format!("{driver}/device"))
        .replace("DEVICE_FPGA", "DEVICE_R");
    // Beside what the configuration says there is the file with the metadata.
    let [mut spec, expected]: [serde_json::Value; 2] =
        [spec, expected].map(|text| serde_json::from_str(&text).unwrap());
    let mounts = spec["devices"][0]["containerEdits"]["mounts"].as_array_mut().unwrap();
    let metadata = mounts.pop().unwrap();
    assert!(metadata["containerPath"].as_str().unwrap().ends_with(&format!("{driver}-metadata.json")));
    assert_eq!(spec, expected);
    let log = log_to(cluster, "everything", "1");
    let hostname = fs::read_to_string("/etc/hostname").unwrap();
    for expected in ["FPGA_LIBRARY=/opt/fpga/lib", "crw-rw----", hostname.trim(), "\n1\n"] {
        assert!(log.contains(expected), "no {expected:?} in:\n{log}");
    }
    let groups = log.lines().next().unwrap().split("groups=").nth(1).unwrap();
    assert!(groups.split(',').any(|group| group == "44"), "{log}");
    cluster.kubectl(&["delete", "pod", "everything"]);
    daemon.wait_for("\"message\":\"unprepared\"");
}

/// What a pod says until its last line is this one, or it has had its time.
fn log_to(cluster: &Cluster, pod: &str, last: &str) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let log = cluster.kubectl(&["logs", pod]);
        if log.lines().last() == Some(last) || Instant::now() > deadline {
            return log;
        }
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_node_has_the_mode_of_the_host_and_the_owner_that_the_runtime_gives_it() {
    let cluster = Cluster::shared();
    let driver = "owned.example.com";
    let config = format!("driver: {driver}\nsources: [{{name: fuse, dev: {{paths: [/dev/fuse]}}}}]");
    let daemon = Driver::start_in(cluster, "owned", &config);
    let script = "stat -c %a:%u:%g /dev/fuse; (: <>/dev/fuse) && echo opened; echo end; sleep 600";
    let user = "{runAsUser: 1000, runAsGroup: 1001}";
    cluster.apply("apply", &(claim(driver, "owned") + &pod("owned", &["owned"], &["owned"], user, script)));
    wait(cluster, "owned", "Running");
    let mode = fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o7777;
    let log = log_to(cluster, "owned", "end");
    if env::var("CLAIMFS_TEST_RUNTIME").as_deref() == Ok("crio") {
        // It knows the user only after it has made the nodes.
        assert!(log.starts_with(&format!("{mode:o}:0:0\n")), "{log}");
    } else {
        assert_eq!(log, format!("{mode:o}:1000:1001\nopened\nend\n"));
    }
    cluster.kubectl(&["delete", "pod", "owned"]);
    daemon.wait_for("\"message\":\"unprepared\"");
}

/// Upstream's reader for Go, built where pods can mount it.
fn go_reader(cluster: &Cluster) -> String {
    let reader = cluster.dir().join("reader");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&reader)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/readers/go"))
        .env("CGO_ENABLED", "0")
        .status();
    assert!(built.unwrap().success());
    reader.display().to_string()
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn c54_containers_read_metadata_by_claim_and_by_template_with_upstreams_reader() {
    let cluster = Cluster::shared();
    let [one, two] = ["one.example.com", "two.example.com"];
    let config = |driver| format!("driver: {driver}\nsources: [{{name: gpu, simulated: {{count: 4}}}}]");
    let daemons =
        [Driver::start_in(cluster, "one", &config(one)), Driver::start_in(cluster, "two", &config(two))];
    let reader = go_reader(cluster);
    // Two drivers in one request: whoever has a device answers for it.
    let both = format!(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: both}}\nspec: {{selectors: [{{cel: \
         {{expression: 'device.driver in [\"{one}\", \"{two}\"]'}}}}]}}\n---\n"
    );
    let claims = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: both, count: 6}}, {name: hidden, exactly: {deviceClassName: both}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: made}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: both}}]}}}
---
";
    let pod = |name: &str, user: &str, claim: &str, used: &str, script: &str| {
        format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  {user}
  resourceClaims: [{{name: mine, {claim}}}]
  volumes: [{{name: reader, hostPath: {{path: {reader}}}}}]
  containers:
  - name: main
    image: localhost/claimfs/busybox:1
    volumeMounts: [{{name: reader, mountPath: /reader, readOnly: true}}]
    command: [sh, -c, '{script}']
    resources: {{claims: [{used}]}}
---
"
        )
    };
    let place = "/var/run/kubernetes.io/dra-device-attributes";
    let objects = [
        both,
        claims.to_owned(),
        pod(
            "direct",
            "securityContext: {runAsUser: 1000, runAsNonRoot: true}",
            "resourceClaimName: direct",
            "{name: mine, request: gpus}",
            &format!("/reader claim direct gpus {one} && find {place} -type f | sort"),
        ),
        pod(
            "made",
            "securityContext: {}",
            "resourceClaimTemplateName: made",
            "{name: mine}",
            &format!(
                "driver=$(ls {place}/resourceclaimtemplates/mine/gpu | sed s/-metadata.json//) && /reader template mine gpu $driver && find {place} -type f"
            ),
        ),
    ];
    cluster.apply("apply", &objects.concat());
    for pod in ["direct", "made"] {
        wait(cluster, pod, "Succeeded");
    }
    let log = cluster.kubectl(&["logs", "direct"]);
    let lines: Vec<&str> = log.lines().collect();
    // All of both drivers, then those of one twice, then the files.
    assert_eq!(
        lines.iter().filter(|line| line.contains(" gpus ")).count(),
        6 + 2 * lines.iter().take(6).filter(|line| line.contains(one)).count(),
        "{log}"
    );
    let files: Vec<&&str> = lines.iter().filter(|line| line.starts_with(place)).collect();
    assert_eq!(files.len(), 2, "one of each driver, and nothing of the other request: {log}");
    assert!(files.iter().all(|file| file.contains("/resourceclaims/direct/gpus/")), "{log}");
    let log = cluster.kubectl(&["logs", "made"]);
    // What upstream merges of several drivers has no name and no generation.
    assert!(log.lines().take(3).all(|line| line.contains(" gpu ")), "{log}");
    assert!(
        log.lines().skip(1).take(2).all(|line| line.starts_with("made-mine-") && line.contains(" 1 gpu ")),
        "{log}"
    );
    assert_eq!(log.lines().skip(3).count(), 1, "{log}");
    drop(daemons);
}

/// Stops the kubelet, which the other tests need: `hack/test` runs it alone.
#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn c25_a_pod_that_was_deleted_while_the_kubelet_was_down_is_not_prepared() {
    let cluster = Cluster::shared();
    let driver = "down.example.com";
    let config = format!("driver: {driver}\nsources: [{{name: gpu, simulated: {{count: 2}}}}]");
    let daemon = Driver::start_in(cluster, "down", &config);
    cluster.stop_component("kubelet");
    cluster.apply("apply", &(claim(driver, "gone") + &pod("gone", &["gone"], &["gone"], "{}", "true")));
    cluster.kubectl(&["wait", "pod/gone", "--for=condition=PodScheduled", "--timeout=60s"]);
    let uid = uid(cluster, "gone");
    cluster.kubectl(&["delete", "pod", "gone", "--force", "--grace-period=0"]);
    cluster.start_component("kubelet");
    // Another pod, so that the kubelet has certainly looked at all there is.
    cluster.apply("apply", &(claim(driver, "later") + &pod("later", &["later"], &["later"], "{}", "true")));
    wait(cluster, "later", "Succeeded");
    let log = daemon.log();
    assert!(log.iter().any(|line| line.contains("\"message\":\"prepared\"")), "{log:?}");
    assert!(!log.iter().any(|line| line.contains(&uid)), "{log:?}");
}
