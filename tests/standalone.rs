//! Without a cluster: real runtimes get devices, and give them back however they end.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{
    alone::{Host, KEPT, eventually, example, output, reports, said},
    driver::binary,
    engines::{LOOK, assert_example, example_host, path_with},
    link_to_node,
};

const ONE: &[&str] = &["--device-class", "claimfs.dev"];
const TYPO: &str = "device.attributes['claimfs.dev'].suorce == 'gpu'";
const GPUS: &str = "sources: [{name: gpu, simulated: {count: 2}}]";

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_container_of_podman_that_goes_on_keeps_its_devices() {
    let host = Host::new(GPUS);
    let stop = "while [ ! -e /shared/stop ]; do sleep 0.1; done";
    let detached = output(host.podman(ONE, &["--rm", "--detach"], stop));
    assert!(detached.status.success(), "{detached:?}");
    assert_eq!(host.status()["devices"][0]["owners"].as_array().unwrap().len(), 1);
    fs::write(host.path("shared/stop"), "").unwrap();
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn containers_share_a_claim_by_its_name() {
    let host = example_host();
    said(host.claimfs(&["claim", "create", "-f", &example("standalone/claim.yaml")]));
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let script = "echo $CLAIMFS_DEVICE_GPU_0; while [ ! -e /shared/stop ]; do sleep 0.05; done";
            host.podman(&["--claim", "train"], &["--rm"], script).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    host.status_becomes("both use it", |status| status["claims"][0]["runs"].as_array().unwrap().len() == 2);
    let refused = output(host.claimfs(&["claim", "delete", "train"]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("claim default/train is in use by run"),
        "{refused:?}"
    );
    fs::write(host.path("shared/stop"), "").unwrap();
    for run in runs {
        let output = run.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "gpu-0\n");
    }
    // It stays, and so do its devices.
    let shown = said(host.claimfs(&["claim", "show", "train"]));
    assert!(shown.contains("default/train  gpu      gpu-1   until deleted  -"), "{shown}");
    said(host.claimfs(&["claim", "delete", "default/train"]));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn every_run_has_its_own_claim_of_a_template() {
    let host = example_host();
    let template = example("standalone/template.yaml");
    let script = "cd /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/worker/gpu && ls && echo $CLAIMFS_DEVICE_GPU_0";
    let runs: Vec<_> = (0..3)
        .map(|_| host.podman(&["-f", &template], &["--rm"], script).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    for run in runs {
        let text = String::from_utf8(run.wait_with_output().unwrap().stdout).unwrap();
        assert!(text.starts_with("claimfs.dev-metadata.json\ngpu-"), "{text}");
    }
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn what_is_kept_outlives_a_reboot_and_runs_do_not() {
    let host = example_host();
    said(host.claimfs(&["claim", "create", "-f", &example("standalone/claim.yaml")]));
    let mut run = host.plain(ONE, "touch started; sleep infinity").spawn().unwrap();
    eventually("the run has started", || host.path("shared/started").exists());
    let before = said(host.claimfs(&["claim", "show", "train", "-o", "yaml"]));
    let host = host.reboot();
    run.wait().unwrap();
    host.status_becomes("only what is kept is there", |status| {
        status["claims"].as_array().unwrap().len() == 1
    });
    let status = host.status();
    // Allocated as before, and prepared anew.
    assert_eq!(said(host.claimfs(&["claim", "show", "train", "-o", "yaml"])), before);
    assert_eq!(status["claims"][0]["devices"].as_array().unwrap().len(), 3, "{status:#}");
    assert_example(&output(host.podman(&["--claim", "train"], &["--rm"], LOOK)));
    said(host.claimfs(&["claim", "delete", "train"]));
    host.is_clean();
}

/// Waits until podman has started a container, which says so, and passes signals on to it. Before version 5 there is a moment
/// in which it does not yet, but ends; and what is typed also interrupts the runtime that it starts the container with.
fn has_started(host: &Host) {
    let started = host.path("shared/started");
    eventually("the container has started", || started.exists() && host.named("runc").is_empty());
    fs::remove_file(started).unwrap();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_run_that_is_interrupted_gives_its_devices_back() {
    let host = Host::new(GPUS);
    let path = path_with(&["podman"]);
    let script = "trap 'exit 3' INT TERM; touch /shared/started; sleep 60 & wait";
    for signal in ["INT", "TERM", "KILL"] {
        let mut run = host.podman(ONE, &["--rm"], script).env("PATH", &path).spawn().unwrap();
        has_started(&host);
        let process = host.processes("run")[0].to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
        let code = run.wait().unwrap().code();
        assert!(signal == "KILL" || code == Some(3), "{signal}: {code:?}");
        host.is_clean();
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn the_terminal_is_passed_through_and_ctrl_c_arrives_once() {
    let host = Host::new(GPUS);
    let path = path_with(&["podman"]);
    let wait = "trap 'echo interrupted; exit 5' INT; touch /shared/started; while :; do sleep 0.05; done";
    // With a terminal of its own the container gets what is typed; without, podman is told like us.
    for (options, script) in [
        (&["--rm", "--interactive", "--tty"][..], format!("tty; {wait}")),
        (&["--rm", "--interactive"][..], String::from(wait)),
    ] {
        let quoted = |word: &OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''"));
        // Within the machine: what leads into it would get what is typed, too.
        let run = host.podman(ONE, options, &script);
        let words: Vec<String> = run.get_args().skip_while(|word| *word != &*binary()).map(quoted).collect();
        let mut terminal = host.command("script");
        // A shell that waits for it would be interrupted, too; some end with that instead of how it ended.
        let line = format!("exec {}", words.join(" "));
        terminal.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
        terminal.env("PATH", &path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut terminal = terminal.spawn().unwrap();
        has_started(&host);
        terminal.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
        let output = terminal.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(5), "{text}");
        assert_eq!(text.matches("interrupted").count(), 1, "{text}");
        assert_eq!(text.contains("/dev/pts/"), options.contains(&"--tty"), "{text}");
        host.is_clean();
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_container_that_is_made_and_never_started_gives_its_devices_back() {
    let host = Host::new(GPUS);
    // podman is killed when it has made the container and wants to start it; what watches over it lives on, or not, or has
    // somebody beside it that serves others as well.
    let stranger = "cp /bin/sleep /run/aardvark-dns; setsid /run/aardvark-dns 1000 <&- >&- 2>&- &";
    for also in ["", "kill -9 $(pidof conmon)", stranger] {
        let runtime = host.path("runtime");
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' start '*) {also}\nkill -9 $PPID; exit 1 ;; esac\nexec runc \"$@\"\n"
        );
        fs::write(&runtime, script).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
        let killed = output(host.podman_by(runtime.to_str().unwrap(), ONE, &[], "touch /shared/started"));
        assert_eq!(killed.status.code(), Some(137), "{killed:?}");
        // It is there, and it has the device.
        let status = host.status();
        assert_eq!(status["claims"][0]["runs"].as_array().unwrap().len(), 1, "{also}: {status:#}");
        host.status_becomes("released", |status| status["claims"].as_array().unwrap().is_empty());
        host.is_clean();
        assert!(!host.path("shared/started").exists());
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_daemon_that_is_killed_comes_back_by_itself_and_no_read_fails() {
    let host = Host::new(GPUS);
    let read =
        "cd /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/run/device; reads=0; errors=0
        while [ ! -e /shared/stop ]; do
            cat *.json >/dev/null && reads=$((reads+1)) || errors=$((errors+1)); echo $reads >/shared/reads
        done; echo $errors";
    let run = host.podman(ONE, &["--rm"], read).stdout(Stdio::piped()).spawn().unwrap();
    let reads = || fs::read_to_string(host.path("shared/reads")).ok()?.trim().parse::<u64>().ok();
    for _ in 0..3 {
        eventually("the container reads", || reads() > Some(0));
        let daemon = host.processes("node");
        kill(Pid::from_raw(daemon[0]), Signal::SIGKILL).unwrap();
        // Nobody asks for anything.
        eventually("there is another one", || {
            !host.processes("node").is_empty() && host.processes("node") != daemon
        });
        let before = reads();
        eventually("the container reads on", || reads() > before);
    }
    fs::write(host.path("shared/stop"), "").unwrap();
    assert_eq!(run.wait_with_output().unwrap().stdout, b"0\n");
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn what_a_run_leaves_running_keeps_its_devices_unless_it_serves_others() {
    let host = Host::new(GPUS);
    for name in ["worker", "aardvark-dns"] {
        let leave = format!("cp /bin/sleep {name} && (setsid ./{name} 1000 <&- >&- 2>&- &)");
        let run = output(host.plain(ONE, &leave));
        assert!(run.status.success(), "{run:?}");
        // It may have been left before it has become what it is.
        eventually("it is left", || host.named(name).len() == 1);
        let left = host.named(name);
        if name == "worker" {
            assert_eq!(host.status()["claims"].as_array().unwrap().len(), 1);
            kill(Pid::from_raw(left[0]), Signal::SIGKILL).unwrap();
        }
        host.is_clean();
    }
    assert_eq!(host.named("aardvark-dns").len(), 1, "it is left alone");
}

/// Somebody who waits, and its process: that of a `claimfs WORD`.
fn start_waiting(host: &Host, word: &str, mut command: Command) -> (Child, Pid) {
    let waiting = |status: &Value| status["waiting"].as_array().unwrap().len();
    let (before, number) = (host.processes(word), waiting(&host.status()) + 1);
    let child = command.spawn().unwrap();
    let is_new = || host.processes(word).into_iter().find(|process| !before.contains(process));
    eventually("it runs", || is_new().is_some());
    let process = is_new().unwrap();
    host.status_becomes("it waits", |status| waiting(status) == number);
    (child, Pid::from_raw(process))
}

fn waiting_run(host: &Host, script: &str) -> (Child, Pid) {
    start_waiting(host, "run", host.plain(&[ONE, &["--wait"]].concat(), script))
}

/// Stops a run, and with it what has led it into the machine.
fn stop(run: &Child, process: Pid) {
    kill(process, Signal::SIGSTOP).unwrap();
    let state = format!("/proc/{}/stat", run.id());
    eventually("both are stopped", || fs::read_to_string(&state).unwrap().contains(") T "));
}

/// Lets both go on.
fn go_on(run: &Child, process: Pid) {
    kill(process, Signal::SIGCONT).unwrap();
    kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), Signal::SIGCONT).unwrap();
}

/// A run that has the only device until there is a file `stop`.
fn start_holding(host: &Host) -> Child {
    let run = host.plain(ONE, "touch started; until [ -e stop ]; do sleep 0.05; done").spawn().unwrap();
    eventually("the run has started", || host.path("shared/started").exists());
    run
}

/// The daemon is killed, and whoever has the only device ends; the first of two who wait has been stopped before. Comes
/// back when the other one waits again.
fn daemon_and_holder_end(host: &Host, mut holding: Child, stopped: (&Child, Pid)) {
    stop(stopped.0, stopped.1);
    for daemon in host.processes("node") {
        kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    }
    fs::write(host.path("shared/stop"), "").unwrap();
    assert!(holding.wait().unwrap().success());
    // The device is free, and whoever is quicker is there first.
    host.status_becomes("the other waits again", |status| status["waiting"].as_array().unwrap().len() == 1);
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn who_waited_when_a_daemon_was_killed_is_served_in_the_same_order_by_the_next() {
    let host = Host::new("sources: [{name: gpu, simulated: {count: 1}}]");
    let first = start_holding(&host);
    let (mut second, slow) =
        waiting_run(&host, "echo second >> order; until [ -e end ]; do sleep 0.05; done");
    let (mut third, _) = waiting_run(&host, "echo third >> order");
    daemon_and_holder_end(&host, first, (&second, slow));
    let mut hasty = host.plain(ONE, "true").stderr(Stdio::null()).spawn().unwrap();
    go_on(&second, slow);
    assert_eq!(hasty.wait().unwrap().code(), Some(1), "whoever does not wait has nothing before them");
    fs::write(host.path("shared/end"), "").unwrap();
    assert!(second.wait().unwrap().success() && third.wait().unwrap().success());
    assert_eq!(fs::read_to_string(host.path("shared/order")).unwrap(), "second\nthird\n");
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_claim_that_stays_has_its_turn_after_a_daemon_was_killed_too() {
    let host = Host::new("sources: [{name: gpu, simulated: {count: 1}}]");
    let first = start_holding(&host);
    let file = host.path("claim.yaml");
    fs::write(&file, KEPT).unwrap();
    let create = host.claimfs(&["claim", "create", "--wait", "-f", file.to_str().unwrap()]);
    let (mut second, slow) = start_waiting(&host, "claim", create);
    let (mut third, _) = waiting_run(&host, "true");
    daemon_and_holder_end(&host, first, (&second, slow));
    go_on(&second, slow);
    assert!(second.wait().unwrap().success());
    assert_eq!(host.status()["waiting"].as_array().unwrap().len(), 1);
    said(host.claimfs(&["claim", "delete", "kept"]));
    assert!(third.wait().unwrap().success());
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn who_does_not_come_back_after_a_daemon_was_killed_keeps_nobody_for_long() {
    for is_killed in [true, false] {
        let host = Host::new("sources: [{name: gpu, simulated: {count: 1}}]");
        let first = start_holding(&host);
        let (mut second, slow) = waiting_run(&host, "true");
        let (mut third, _) = waiting_run(&host, "true");
        daemon_and_holder_end(&host, first, (&second, slow));
        if is_killed {
            kill(slow, Signal::SIGKILL).unwrap();
        }
        assert!(third.wait().unwrap().success());
        let log = said(host.command("cat").arg("/run/claimfs/node.log"));
        assert_eq!(log.contains("no longer waiting for those who waited before"), !is_killed, "{log}");
        kill(slow, Signal::SIGKILL).unwrap();
        go_on(&second, slow);
        assert!(!second.wait().unwrap().success());
        host.is_clean();
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn who_is_killed_while_it_is_served_keeps_nobody_else_waiting() {
    let host = Host::new("sources: [{name: gpu, simulated: {count: 1}}]");
    let mut first = start_holding(&host);
    let (mut second, stopped) = waiting_run(&host, "touch second");
    let (mut third, _) = waiting_run(&host, "touch third");
    // It is given the device, and does not know.
    stop(&second, stopped);
    fs::write(host.path("shared/stop"), "").unwrap();
    assert!(first.wait().unwrap().success());
    host.status_becomes("it is served", |status| {
        status["waiting"].as_array().unwrap().len() == 1 && status["claims"].as_array().unwrap().len() == 1
    });
    kill(stopped, Signal::SIGKILL).unwrap();
    go_on(&second, stopped);
    assert!(!second.wait().unwrap().success() && third.wait().unwrap().success());
    assert!(!host.path("shared/second").exists() && host.path("shared/third").exists());
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_configuration_that_is_edited_holds_for_the_next_run_unless_something_is_in_use() {
    let host = Host::new("sources: [{name: gpu, simulated: {count: 1}}]");
    let edit = |text: &str| fs::write(host.path("config.yaml"), text).unwrap();
    let name = "echo $CLAIMFS_CDI_DEVICES";
    assert!(said(host.plain(ONE, name)).contains("gpu-0"));
    edit("sources: [{name: fpga, simulated: {count: 1}}]");
    assert!(said(host.plain(ONE, name)).contains("fpga-0"));
    let mut run = start_holding(&host);
    edit("sources: [{name: nic, simulated: {count: 1}}]");
    let refused = output(host.plain(ONE, name));
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("was started with other settings, and keeps them"), "{errors}");
    fs::write(host.path("shared/stop"), "").unwrap();
    assert!(run.wait().unwrap().success());
    assert!(said(host.plain(ONE, name)).contains("nic-0"));
    edit("sources: [{nmae: nic, simulated: {count: 1}}]");
    let refused = output(host.plain(ONE, name));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn runs_with_settings_of_their_own_do_not_keep_each_other_from_being_served() {
    let host = Host::new(GPUS);
    let runs: Vec<_> = (0..8)
        .map(|number| {
            let config = host.path(&format!("config-{number}.yaml"));
            fs::write(&config, format!("sources: [{{name: gpu-{number}, simulated: {{count: 8}}}}]"))
                .unwrap();
            host.plain(ONE, "true").env("CLAIMFS_CONFIG", config).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for run in runs {
        let ended = run.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn the_status_follows() {
    let host = Host::new(GPUS);
    let mut watch =
        host.claimfs(&["status", "--watch", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reports = reports(&mut watch);
    let mut run = host.plain(ONE, "while [ ! -e stop ]; do sleep 0.05; done").spawn().unwrap();
    let owners = |report: Value| report["devices"][0]["owners"].as_array().unwrap().len();
    assert!(reports.any(|report| owners(report) == 1), "an owner is shown");
    fs::write(host.path("shared/stop"), "").unwrap();
    assert!(reports.any(|report| owners(report) == 0), "and that there is none any more");
    watch.kill().unwrap();
    watch.wait().unwrap();
    run.wait().unwrap();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn without_fuse_the_metadata_are_plain_files_or_the_way_out_is_named() {
    let host = example_host();
    let hide = "mkdir -p /run/dev/pts /run/dev/shm && cd /dev && cp -a full null random tty urandom zero /run/dev && \
        mount --bind /run/dev /dev";
    said(host.command("sh").args(["-c", hide]));
    let claim = example("standalone/claim.yaml");
    let mut refused = host.claimfs(&["run", "-f", &claim, "--metadata", "fuse", "--plain", "--", "true"]);
    let refused = output(refused.env("CLAIMFS_RUN_DIR", "/run/refused"));
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("there is no /dev/fuse") && errors.contains("\nfix: modprobe fuse"), "{errors}");
    let checked = said(host.claimfs(&["check"]));
    assert!(checked.contains("warn  CFS0203  /dev/fuse cannot be opened"), "{checked}");
    assert_example(&output(host.podman(&["-f", &claim], &["--rm"], LOOK)));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn another_daemon_is_refused_before_it_touches_anything_of_the_first() {
    let host = example_host();
    said(host.claimfs(&["claim", "create", "-f", &example("standalone/claim.yaml")]));
    let specs = || said(host.command("sh").args(["-c", "ls /run/cdi"]));
    let before = specs();
    for (name, value, expected) in [
        // Whatever else it has of its own.
        ("CLAIMFS_METADATA", "off", "another claimfs has the claims in"),
        ("CLAIMFS_OBJECTS_DIR", "/run/others", "is mounted by the daemon of /run/claimfs"),
    ] {
        let mut other = host.claimfs(&["status"]);
        let other = output(other.env("CLAIMFS_RUN_DIR", "/run/second").env(name, value));
        let errors = String::from_utf8_lossy(&other.stderr);
        assert!(errors.contains(expected), "{errors}");
        assert_eq!((other.status.code(), specs()), (Some(1), before.clone()));
    }
    said(host.claimfs(&["claim", "delete", "train"]));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn what_is_kept_gets_its_devices_when_they_come_after_the_daemon() {
    let host = Host::new("sources: [{name: port, dev: {paths: [/dev/port0]}}]");
    let dev = host.path("dev");
    fs::create_dir(&dev).unwrap();
    link_to_node(&dev, "port0", "null");
    let claim = host.path("claim.yaml");
    fs::write(&claim, KEPT).unwrap();
    said(host.claimfs(&["claim", "create", "-f", claim.to_str().unwrap()]).env("CLAIMFS_DEV", &dev));
    fs::remove_file(dev.join("port0")).unwrap();
    let host = host.reboot();
    let devices = || {
        let status = said(host.claimfs(&["status", "-o", "json"]).env("CLAIMFS_DEV", &dev));
        let status: Value = serde_json::from_str(&status).unwrap();
        status["claims"][0]["devices"].as_array().unwrap().len()
    };
    assert_eq!(devices(), 0);
    link_to_node(&dev, "port0", "null");
    eventually("it is prepared", || devices() == 1);
    said(host.claimfs(&["claim", "delete", "kept"]));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_node_is_for_the_same_in_the_container_as_on_the_host() {
    let host = Host::new("sources: [{name: port, dev: {paths: [/dev/port0]}}]");
    let dev = host.path("dev");
    fs::create_dir(&dev).unwrap();
    let node = dev.join("port0").display().to_string();
    said(host.command("mknod").args(["-m", "0640", &node, "c", "1", "3"]));
    let look = || {
        let mut run = host.podman(ONE, &["--rm", "--user=7:8"], "stat -c %a:%u:%g /dev/port0");
        said(run.env("CLAIMFS_DEV", &dev))
    };
    // It is its user's.
    assert_eq!(look(), "640:7:8\n");
    said(host.command("chmod").args(["0604", &node]));
    eventually("it is seen", || look() == "604:7:8\n");
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_node_with_another_name_does_not_give_held_devices_away() {
    let host = Host::new(GPUS);
    let claim = host.path("claim.yaml");
    fs::write(&claim, KEPT).unwrap();
    said(host.claimfs(&["claim", "create", "-f", claim.to_str().unwrap()]));
    kill(Pid::from_raw(host.processes("node")[0]), Signal::SIGKILL).unwrap();
    let refused = output(host.claimfs(&["status"]).env("CLAIMFS_NODE_NAME", "n2"));
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    let expected =
        "claim default/kept has devices of driver claimfs.dev on node n1\nfix: start it with --node-name n1";
    assert!(errors.contains(expected), "{errors}");
    said(host.claimfs(&["claim", "delete", "kept"]));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_program_that_is_replaced_while_it_runs_goes_on() {
    let host = Host::new(GPUS);
    let program = host.path("claimfs");
    let install = || {
        fs::copy(binary(), host.path("new")).unwrap();
        fs::rename(host.path("new"), &program).unwrap();
    };
    let claimfs = |arguments: &[&str]| {
        let mut command = host.command(program.to_str().unwrap());
        command.args(arguments);
        command
    };
    install();
    said(claimfs(&["status"]));
    install();
    // The holder starts its helper now, and the daemon another holder.
    said(claimfs(&[&["run"], ONE, &["--plain", "--", "true"]].concat()));
    let holder = host.processes("hold");
    kill(Pid::from_raw(holder[0]), Signal::SIGKILL).unwrap();
    eventually("there is another holder", || {
        !host.processes("hold").is_empty() && host.processes("hold") != holder
    });
    said(claimfs(&[&["run"], ONE, &["--plain", "--", "true"]].concat()));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn signals_that_are_ignored_stay_so() {
    let host = Host::new(GPUS);
    let line = format!(
        "trap '' HUP; exec {} run --device-class claimfs.dev --plain -- grep SigIgn: /proc/self/status",
        binary()
    );
    let ignored = said(host.command("sh").args(["-c", &line]));
    let mask = u64::from_str_radix(ignored.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert_eq!(mask & 1, 1, "{ignored}");
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn what_cannot_be_done_is_answered_with_the_way_out() {
    let host = Host::new(GPUS);
    // Each of them is told with the line that it is on.
    let long = ["device.x"; 400].join(" || ");
    let claim = |name: &str, text: &str| {
        let path = host.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let named = claim(
        "named.yaml",
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: one}\nspec: {devices: {requests: [{name: a, exactly: {deviceClassName: claimfs.dev}}]}}\n",
    );
    said(host.claimfs(&["claim", "create", "-f", &named]));
    let broken = claim("broken.yaml", "kind: [");
    let nothing = claim("nothing.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n");
    let empty = claim(
        "empty.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: e}\nspec: {}\n",
    );
    let misspelt = claim(
        "misspelt.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: m}\nspec: {devices: {requests: [{name: a, exactly: {deviceClassName: claimfs.dev, cuont: 2}}]}}\n",
    );
    let class = ["--device-class", "claimfs.dev"];
    let cases: [(&[&str], &[&str], i32, &str); 23] = [
        (
            &[class[0], "gpu"],
            &["podman", "run", "i"],
            2,
            "there is no class \"gpu\"; there are: claimfs.dev\nfix: name one of these",
        ),
        (&[class[0], class[1], "--select", "device.x"], &["podman", "run", "i"], 2, "undefined field 'x'"),
        (&[class[0], class[1], "--select", TYPO], &["podman", "run", "i"], 2, "CFS0130"),
        (&[class[0], class[1], "--select", &long], &["podman", "run", "i"], 2, "undefined field 'x'"),
        (&[class[0], class[1], "--count", "33"], &["podman", "run", "i"], 2, "CFS0104"),
        (&class, &["true"], 2, "put {} where the --device options are to go"),
        (&class, &["podman", "ps"], 2, "neither to run nor to create"),
        (&["-f", &misspelt], &["podman", "run", "i"], 2, "requests[0].exactly.cuont: there is no such field"),
        (&["-f", &named, "--count", "2"], &["podman", "run", "i"], 2, "cannot be used with"),
        (&["--claim", "one", "--select", "true"], &["podman", "run", "i"], 2, "cannot be used with"),
        (&class, &["podman", "create", "i"], 2, "put run in its place"),
        (&class, &["podman", "run", "--restart=always", "i"], 2, "make a claim that stays"),
        (&["--wait"], &["podman", "run", "i"], 2, "required arguments were not provided"),
        (&["-f", &broken], &["podman", "run", "i"], 2, "broken.yaml: "),
        (
            &["-f", &nothing],
            &["podman", "run", "i"],
            2,
            "there is no ResourceClaim and no ResourceClaimTemplate",
        ),
        (&["-f", &empty], &["podman", "run", "i"], 2, "it asks for nothing"),
        (&["-f", "/nowhere.yaml"], &["podman", "run", "i"], 2, "cannot read /nowhere.yaml"),
        (
            &["-f", &named],
            &["podman", "run", "i"],
            1,
            "claim default/one exists already\nfix: share it with --claim",
        ),
        (&["--claim", "two"], &["podman", "run", "i"], 1, "there is no claim default/two"),
        (&[class[0], class[1], "--count", "2"], &["podman", "run", "i"], 1, "in use by default/one (gpu-0)"),
        (
            &[class[0], class[1], "--count", "3", "--wait"],
            &["podman", "run", "i"],
            1,
            "It would not fit if all devices were free",
        ),
        (&class, &["/nowhere/podman", "run", "i"], 127, "cannot run /nowhere/podman"),
        (&[class[0], class[1], "--plain"], &["/etc/passwd"], 126, "a program that can be executed"),
    ];
    for (what, command, code, expected) in cases {
        let mut run = host.claimfs(&["run"]);
        let output = output(run.args(what).arg("--").args(command));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{expected}: {errors}");
        assert!(errors.starts_with("error: ") && errors.contains(expected), "{expected}: {errors}");
    }
    said(host.claimfs(&["claim", "delete", "one"]));
    host.is_clean();
    let wrong = output(
        host.claimfs(&["status"]).env("CLAIMFS_RUN_DIR", "/run/other").env("CLAIMFS_CONFIG", "/nowhere"),
    );
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&wrong.stderr)
            .contains("does not start: cannot read the configuration /nowhere"),
        "{wrong:?}"
    );
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn whoever_is_not_root_is_told_so() {
    let host = Host::new(GPUS);
    let mut nobody = host.command("setpriv");
    nobody.args(["--reuid=65534", "--clear-groups", &binary(), "run"]).args(ONE);
    let nobody = output(nobody.args(["--plain", "--", "true"]));
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&nobody.stderr).contains("only root can do this\nfix: sudo claimfs"),
        "{nobody:?}"
    );
}
