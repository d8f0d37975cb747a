//! A cluster leaves nothing behind, however it or its user ends.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::cluster::{self, Cluster, Part};

/// What is left of a cluster: processes, mounts, cgroups, sockets and other files.
fn remains(name: &str) -> Vec<String> {
    let folder = cluster::folder(name);
    let place = folder.to_str().unwrap();
    let mut remains = Vec::new();
    for process in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
        let read = |file| fs::read(process.path().join(file)).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if command.contains(place) || command.contains(&format!("--name {name}")) {
            remains.push(format!("process {}: {command}", process.file_name().display()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    remains
        .extend(mounts.lines().filter(|mount| mount.contains(place)).map(|mount| format!("mount {mount}")));
    let group = format!("claimfs-{name}");
    let groups = [Path::new("/sys/fs/cgroup").to_owned()].into_iter();
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
    let groups = groups.chain(hierarchies).map(|path| path.join(&group)).filter(|path| path.exists());
    remains.extend(groups.map(|group| format!("cgroup {}", group.display())));
    // The logs stay on purpose.
    let files = fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    let expected = ["logs", "lock", "settings"];
    let files = files.filter(|file| !expected.iter().any(|name| file == name));
    remains.extend(files.map(|file| format!("file {}", file.display())));
    remains
}

/// Waits until the supervisor of a cluster has gone: it holds the lock to the very end.
fn gone(name: &str) {
    let lock = cluster::folder(name).join("lock");
    let seconds = support::DEADLINE.as_secs().to_string();
    let waited = Command::new("flock").args(["--wait", &seconds]).arg(lock).arg("true").status().unwrap();
    assert!(waited.success(), "cluster {name} is still there");
}

/// A container that is still running when its cluster ends.
fn start_a_pod(cluster: &Cluster) {
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec:
  containers:
  - {name: main, image: 'localhost/claimfs/busybox:1', command: [sleep, infinity]}
";
    cluster.apply("apply", pod);
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/stays", "--timeout=60s"]);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn two_clusters_run_side_by_side_and_leave_nothing() {
    let clusters = [Cluster::start("one", Part::Node), Cluster::start("two", Part::Node)];
    clusters.iter().for_each(start_a_pod);
    for cluster in clusters {
        assert_eq!(cluster.kubectl(&["get", "nodes", "-o", "name"]), format!("node/{}\n", cluster.node()));
        let name = cluster.name().to_owned();
        assert!(!remains(&name).is_empty(), "the check sees a cluster that runs");
        cluster.down();
        assert_eq!(remains(&name), [""; 0]);
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_killed_test_leaves_nothing() {
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "victim", "--nocapture"])
        .env("CLAIMFS_TEST_VICTIM", "yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let name = cluster::name("victim");
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.ends_with("a pod runs")));
    assert!(!remains(&name).is_empty(), "the check sees a cluster that runs");
    victim.kill().unwrap();
    victim.wait().unwrap();
    gone(&name);
    assert_eq!(remains(&name), [""; 0]);
}

/// Killed by the test above, in another process.
#[test]
#[ignore = "only a_killed_test_leaves_nothing runs it"]
fn victim() {
    if env::var_os("CLAIMFS_TEST_VICTIM").is_none() {
        return;
    }
    let cluster = Cluster::start("victim", Part::Node);
    start_a_pod(&cluster);
    println!("a pod runs");
    // Until we are killed.
    std::thread::park();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn an_interrupted_start_leaves_nothing() {
    let name = cluster::name("interrupted");
    let mut up = cluster::command(&name).args(["up"]).stderr(Stdio::piped()).spawn().unwrap();
    // The supervisor writes its number as the first thing.
    let pid = cluster::folder(&name).join("supervisor.pid");
    let started = std::time::Instant::now();
    while !pid.exists() {
        assert!(started.elapsed() < support::DEADLINE, "the start does not start");
        std::thread::yield_now();
    }
    kill(Pid::from_raw(up.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(130));
    gone(&name);
    assert_eq!(remains(&name), [""; 0]);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_component_that_fails_is_shown_and_nothing_is_left() {
    let name = cluster::name("failing");
    // etcd takes its flags from the environment as well.
    let output = cluster::command(&name)
        .args(["up", "--control-plane"])
        .env("ETCD_QUOTA_BACKEND_BYTES", "not a number")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("did not start: etcd ended") && errors.contains("logs/etcd.log"), "{errors}");
    gone(&name);
    assert_eq!(remains(&name), [""; 0]);
}
