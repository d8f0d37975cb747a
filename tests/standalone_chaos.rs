//! Without a cluster, when many want devices and when everything is killed: none is lost, and none is had twice.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{
    alone::{Host, eventually, reports, said, spawn},
    driver::names,
};

const DEVICES: usize = 8;
const GPUS: &str = "sources: [{name: gpu, simulated: {count: 8}}]";
const ONE: &[&str] = &["--device-class", "claimfs.dev", "--wait"];

/// Each holds the lock of its device while it runs; a device that two have is written down.
const PLAIN: &str =
    r#"d=${CLAIMFS_CDI_DEVICES##*-gpu-}; exec 9>"gpu-$d"; flock -n 9 || echo "$d" >>doubled; sleep 0.1"#;
const CONTAINED: &str = r#"
    trap 'exit 3' TERM
    exec 9>"/shared/$CLAIMFS_DEVICE_DEVICE_0"; /usr/bin/flock -n 9 || echo "$CLAIMFS_DEVICE_DEVICE_0" >>/shared/doubled
    sleep 0.1 & wait"#;

/// Where the machine's own `flock` and what it needs are: busybox has none.
const FLOCK: &[&str] =
    &["--rm", "--volume", "/usr:/usr:ro", "--volume", "/lib:/lib:ro", "--volume", "/lib64:/lib64:ro"];

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn whatever_is_killed_no_device_is_lost_or_had_twice() {
    const ROUNDS: usize = 200;
    const LONGEST: Duration = Duration::from_secs(300);
    let host = Host::new(GPUS);
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let started = Instant::now();
    let mut killed = [0; 4];
    let mut running: Vec<Child> = Vec::new();
    for round in 0..ROUNDS {
        // Some wait for others all the time.
        running.retain_mut(|run| run.try_wait().unwrap().is_none());
        while running.len() < DEVICES + 2 {
            let command = match dice.roll(3) {
                0 => host.podman(ONE, FLOCK, CONTAINED),
                _ => host.plain(ONE, PLAIN),
            };
            running.push(spawn(command));
        }
        thread::sleep(Duration::from_millis(dice.roll(150)));
        let (which, victims) = match dice.roll(4) {
            0 => (0, host.processes("node")),
            1 => (1, host.named("podman")),
            2 => (2, host.named("conmon")),
            _ => (3, host.processes("run")),
        };
        if !victims.is_empty() {
            let victim = victims[usize::try_from(dice.roll(victims.len() as u64)).unwrap()];
            // It may have ended by itself.
            killed[which] += usize::from(kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok());
        }
        assert!(!host.path("shared/doubled").exists(), "round {round}: a device was had twice");
    }
    // What was killed with its daemon is released by the next one, which whoever asks starts.
    let all_have_ended =
        |running: &mut Vec<Child>| running.iter_mut().all(|run| run.try_wait().unwrap().is_some());
    while !all_have_ended(&mut running) || !host.status()["claims"].as_array().unwrap().is_empty() {
        assert!(started.elapsed() < LONGEST, "a claim is lost: {:#}", host.status());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!host.path("shared/doubled").exists(), "a device was had twice");
    let all = DEVICES.to_string();
    said(host.plain(&["--device-class", "claimfs.dev", "--count", &all], "true"));
    host.is_clean();
    println!("killed: {killed:?} (daemon, podman, conmon, claimfs run) in {:?}", started.elapsed());
    assert!(killed.iter().all(|count| *count > ROUNDS / 20), "{killed:?}");
}

fn eventually_ends(run: &mut Child) {
    let deadline = Instant::now() + support::DEADLINE;
    while run.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "a run does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn fifty_wait_for_eight_devices_and_are_served_in_order() {
    const RUNS: usize = 50;
    let host = Host::new(GPUS);
    let mut daemon = host.claimfs(&["node", "--standalone"]);
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().unwrap();
    // All devices are taken until everybody waits.
    let all = DEVICES.to_string();
    let hold = "touch held; while [ ! -e go ]; do sleep 0.05; done";
    let mut holder = host.plain(&["--device-class", "claimfs.dev", "--count", &all], hold).spawn().unwrap();
    eventually("all devices are taken", || host.path("shared/held").exists());
    let mut watch =
        host.claimfs(&["status", "--watch", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reports = reports(&mut watch);
    let script = "echo start >>log; sleep 0.1; echo end >>log";
    let mut runs = Vec::new();
    let mut order: Vec<String> = Vec::new();
    for _ in 0..RUNS {
        runs.push(host.plain(ONE, script).spawn().unwrap());
        let report =
            reports.find(|report| report["waiting"].as_array().unwrap().len() == runs.len()).unwrap();
        let name = |waiting: &Value| waiting["name"].as_str().unwrap().to_owned();
        order = report["waiting"].as_array().unwrap().iter().map(name).collect();
    }
    fs::write(host.path("shared/go"), "").unwrap();
    for mut run in runs {
        eventually_ends(&mut run);
        assert!(run.wait().unwrap().success());
    }
    eventually_ends(&mut holder);
    let log = fs::read_to_string(host.path("shared/log")).unwrap();
    let mut now = 0;
    let mut most = 0;
    for line in log.lines() {
        now = if line == "start" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    assert_eq!((log.lines().count(), now), (2 * RUNS, 0));
    assert!((2..=DEVICES).contains(&most), "{most} had devices at the same time");
    for process in host.processes("node") {
        kill(Pid::from_raw(process), Signal::SIGTERM).unwrap();
    }
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut daemon.stderr.take().unwrap(), &mut stderr).unwrap();
    daemon.wait().unwrap();
    let granted = stderr.lines().filter(|line| line.contains("\"message\":\"granted\""));
    let claim =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["claim"].as_str().unwrap().to_owned();
    let granted: Vec<String> = granted.map(claim).skip(1).collect();
    assert_eq!(granted, order);
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(names(&host.path("objects/claims")), [""; 0]);
}
