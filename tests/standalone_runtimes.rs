//! Without a cluster: every runtime that we name gets devices, in the real program.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    process::{Output, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{
    alone::{Host, eventually, example, output, said},
    engines::{Engine, LOOK, assert_example, example_host, path_with},
};

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn podman_gets_its_devices_and_nothing_is_left() {
    let host = example_host();
    let claim = example("standalone/claim.yaml");
    // A moment is enough for it to end.
    let mut command = host.podman(&["-f", &claim], &["--rm"], LOOK);
    assert_example(&output(command.env("CLAIMFS_UNTIL_IDLE", "1")));
    host.is_clean();
    eventually("the daemon and its holder end when they are idle", || {
        host.processes("node").is_empty() && host.processes("hold").is_empty()
    });
    let mounts = said(host.command("cat").arg("/proc/self/mountinfo"));
    assert!(!mounts.contains("claimfs /run/claimfs"), "{mounts}");
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn the_next_generation_of_podman_gets_the_same() {
    let host = example_host();
    let path = path_with(&["podman"]);
    let version = said(host.command("podman").arg("--version").env("PATH", &path));
    assert!(version.starts_with("podman version 5."), "{version}");
    let claim = example("standalone/claim.yaml");
    let mut command = host.podman(&["-f", &claim], &["--rm"], LOOK);
    assert_example(&output(command.env("PATH", &path)));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn ctr_gets_its_devices_and_a_container_that_goes_on_keeps_them() {
    let host = example_host();
    let engine = Engine::containerd(&host);
    let run = |options: &[&str], id: &str, script: &str| {
        let rest = ["--env", "PATH=/bin", "--rootfs", "/run/root", id, "sh", "-c", script];
        engine.run(&[&["ctr", "run"], options, &rest].concat())
    };
    assert_example(&run(&["--rm"], "look", LOOK));
    host.is_clean();
    let detached = run(&["--detach"], "stay", "sleep infinity");
    goes_on(&host, &detached);
    said(engine.command("ctr").args(["task", "kill", "--signal", "KILL", "stay"]));
    is_released(&host);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn nerdctl_gets_its_devices_and_a_container_that_goes_on_keeps_them() {
    let host = example_host();
    let engine = Engine::containerd(&host);
    let nerdctl = ["nerdctl", "--data-root=/run/nerdctl"];
    let run = |options: &[&str], script: &str| {
        let rest = ["--network=none", "--env=PATH=/bin", "--rootfs", "/run/root", "sh", "-c", script];
        engine.run(&[&nerdctl[..], &["run"], options, &rest].concat())
    };
    assert_example(&run(&["--rm"], LOOK));
    host.is_clean();
    let detached = run(&["--detach", "--name=stay"], "sleep infinity");
    goes_on(&host, &detached);
    said(engine.command(nerdctl[0]).args([nerdctl[1], "rm", "--force", "stay"]));
    is_released(&host);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn docker_gets_its_devices_and_a_container_that_goes_on_keeps_them() {
    let host = example_host();
    let engine = Engine::docker(&host, &[]);
    let run = |options: &[&str], script: &str| {
        let rest = ["--network=none", "--env=PATH=/bin", "box:1", "sh", "-c", script];
        engine.run(&[&["docker", "run"], options, &rest].concat())
    };
    assert_example(&run(&["--rm"], LOOK));
    host.is_clean();
    let detached = run(&["--detach", "--name=stay"], "sleep infinity");
    goes_on(&host, &detached);
    // The same devices are not had twice meanwhile, and it is said who has them.
    let refused = run(&["--rm"], "true");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    said(engine.command("docker").args(["rm", "--force", "stay"]));
    is_released(&host);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn whenever_a_client_of_docker_is_killed_no_device_is_had_twice() {
    let host = Host::new("sources: [{name: gpu, simulated: {count: 1}}]");
    let engine = Engine::docker(&host, &[]);
    let shared = format!("--volume={}:/shared", host.path("shared").display());
    // Whoever has the device has a file; busybox makes folders in one step.
    let script =
        "mkdir /shared/held || touch /shared/doubled; touch /shared/ran; sleep 1; rmdir /shared/held";
    // By itself, and in a script, which does not say that it was killed.
    let ways = [&["docker", "run"][..], &["sh", "-c", "docker run \"$@\" || exit 1", "sh", "{}"]];
    let start = |way: &[&str]| {
        let mut run = engine.claimfs(&["run", "--device-class", "claimfs.dev", "--wait", "--"]);
        run.args(way);
        run.args(["--rm", "--network=none", "--env=PATH=/bin", &shared, "box:1", "sh", "-c", script]);
        run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut killed = 0;
    let mut runs = Vec::new();
    // From before its daemon hears of it until the container runs.
    for round in 0.. {
        if round >= 12 && host.path("shared/ran").exists() {
            break;
        }
        assert!(round < 60, "no container was ever started");
        runs.push(start(ways[round % ways.len()]));
        eventually("docker is asked", || !host.named("docker").is_empty());
        thread::sleep(Duration::from_millis(20) * u32::try_from(round).unwrap());
        for client in host.named("docker") {
            killed += usize::from(kill(Pid::from_raw(client), Signal::SIGKILL).is_ok());
        }
        assert!(!host.path("shared/doubled").exists(), "round {round}");
    }
    for mut run in runs {
        run.wait().unwrap();
    }
    is_released(&host);
    assert!(!host.path("shared/doubled").exists() && host.path("shared/ran").exists());
    println!("{killed} clients of docker were killed");
    assert!(killed > 6, "{killed}");
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn docker_without_cdi_is_answered_with_the_way_out() {
    let host = example_host();
    let engine = Engine::docker(&host, &["--feature=cdi=false"]);
    let refused = engine.run(&["docker", "run", "--rm", "--network=none", "box:1", "sh", "-c", "true"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    let errors = String::from_utf8_lossy(&refused.stderr);
    let expected =
        "claimfs: CFS0211 CDI is off in Docker 29.0.0\nfix: put {\"features\": {\"cdi\": true}} into";
    assert!(errors.contains(expected), "{errors}");
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn podman_that_is_told_to_look_elsewhere_is_answered_with_the_way_out() {
    let host = example_host();
    let settings = host.path("containers.conf");
    fs::write(&settings, "[engine]\ncdi_spec_dirs = [\"/etc/cdi\", \"/srv/cdi\"]\n").unwrap();
    let mut command = host.podman(&["--device-class", "claimfs.dev"], &["--rm"], "true");
    command.env("PATH", path_with(&["podman"])).env("CONTAINERS_CONF_OVERRIDE", settings);
    let refused = output(&mut command);
    assert_eq!(refused.status.code(), Some(126), "{refused:?}");
    let errors = String::from_utf8_lossy(&refused.stderr);
    let expected =
        "does not look into /var/run/cdi\nfix: add /var/run/cdi to cdi_spec_dirs in the section [engine]";
    assert!(errors.contains(expected), "{errors}");
    host.is_clean();
}

/// Its shim is no child of ours; what tells is what the container has mounted.
fn goes_on(host: &Host, detached: &Output) {
    assert!(String::from_utf8_lossy(&detached.stderr).contains("the container goes on"), "{detached:?}");
    let status = host.status();
    assert_eq!(status["claims"].as_array().unwrap().len(), 1);
    // What is left of the run says what it was.
    let command = status["claims"][0]["runs"][0]["command"].as_str().unwrap();
    assert!(command.contains(" run --detach "), "{command}");
}

fn is_released(host: &Host) {
    host.status_becomes("released", |status| status["claims"].as_array().unwrap().is_empty());
    host.is_clean();
}
