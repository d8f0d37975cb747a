//! Without a cluster: real runtimes get devices, and give them back however they end.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    env, fs,
    process::{Command, Stdio},
};

use serde_json::Value;
use support::alone::{Host, eventually, example, output, reports, said};

const ONE: &[&str] = &["--device-class", "claimfs.dev"];
const GPUS: &str = "sources: [{name: gpu, simulated: {count: 2}}]";

/// The machine that the examples are for, with their class.
fn example_host() -> Host {
    let host = Host::new(include_str!("../examples/config.yaml"));
    fs::create_dir(host.path("objects/classes")).unwrap();
    fs::copy(example("standalone/classes/gpu.yaml"), host.path("objects/classes/gpu.yaml")).unwrap();
    host
}

/// What a container of the example prints.
const LOOK: &str = "env | grep -e CLAIMFS_DEVICE -e ENTROPY | sort; head -c 4 /dev/random | wc -c; \
    cat /var/run/kubernetes.io/dra-device-attributes/resourceclaims/train/gpu/claimfs.dev-metadata.json; exit 7";

fn assert_example(output: &std::process::Output) {
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "CLAIMFS_DEVICE_ENTROPY_0=random\nCLAIMFS_DEVICE_ENTROPY_0_PATH=/dev/random\n\
        CLAIMFS_DEVICE_GPU_0=gpu-0\nCLAIMFS_DEVICE_GPU_1=gpu-1\nENTROPY=hardware\n4\n";
    let metadata = text.strip_prefix(expected).unwrap_or_else(|| panic!("{text}"));
    let metadata = serde_json::Deserializer::from_str(metadata).into_iter::<Value>().next().unwrap().unwrap();
    assert_eq!(metadata["requests"][0]["devices"][1]["name"], "gpu-1", "{metadata}");
}

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
    let path = format!("{}:{}", built("podman"), env::var("PATH").unwrap());
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
    let path = format!("{}:{}:{}", built("containerd"), built("runc"), env::var("PATH").unwrap());
    let config = host.path("containerd.toml");
    fs::write(
        &config,
        "version = 3\nroot = '/run/containerd-root'\nstate = '/run/containerd'\ndisabled_plugins = \
         ['io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images', 'io.containerd.grpc.v1.cri']\n",
    )
    .unwrap();
    let mut containerd = host.command("containerd");
    let mut containerd = containerd
        .env("PATH", &path)
        .arg("--config")
        .arg(config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("containerd answers", || {
        output(host.command("ctr").env("PATH", &path).arg("version")).status.success()
    });
    let ctr = |options: &[&str], id: &str, script: &str| {
        let mut command = host.claimfs(&["run", "-f", &example("standalone/claim.yaml"), "--", "ctr", "run"]);
        command.env("PATH", &path).args(options).args(["--env", "PATH=/bin", "--rootfs", "/run/root", id]);
        command.args(["sh", "-c", script]);
        output(command)
    };
    assert_example(&ctr(&["--rm"], "look", LOOK));
    host.is_clean();
    // Its shim is no child of ours; what tells is what the container has mounted.
    let detached = ctr(&["--detach"], "stay", "sleep infinity");
    assert!(String::from_utf8_lossy(&detached.stderr).contains("the container goes on"), "{detached:?}");
    assert_eq!(host.status()["claims"].as_array().unwrap().len(), 1);
    said(host.command("ctr").env("PATH", &path).args(["task", "kill", "--signal", "KILL", "stay"]));
    host.status_becomes("released", |status| status["claims"].as_array().unwrap().is_empty());
    host.is_clean();
    containerd.kill().unwrap();
    containerd.wait().unwrap();
}

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
    let status = host.status();
    assert_eq!(status["claims"].as_array().unwrap().len(), 1, "{status:#}");
    // Allocated as before, and prepared anew.
    assert_eq!(said(host.claimfs(&["claim", "show", "train", "-o", "yaml"])), before);
    assert_eq!(status["claims"][0]["devices"].as_array().unwrap().len(), 3, "{status:#}");
    assert_example(&output(host.podman(&["--claim", "train"], &["--rm"], LOOK)));
    said(host.claimfs(&["claim", "delete", "train"]));
    host.is_clean();
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_run_that_is_interrupted_gives_its_devices_back() {
    let host = Host::new(GPUS);
    for signal in ["INT", "TERM", "KILL"] {
        let _ = fs::remove_file(host.path("shared/started"));
        let mut run =
            host.podman(ONE, &["--rm"], "trap 'exit 3' INT TERM; touch /shared/started; sleep 60 & wait");
        let mut run = run.spawn().unwrap();
        eventually("the container has started", || host.path("shared/started").exists());
        let process = host.processes("run")[0].to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
        let code = run.wait().unwrap().code();
        assert!(signal == "KILL" || code == Some(3), "{signal}: {code:?}");
        host.is_clean();
    }
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
fn what_cannot_be_done_is_answered_with_the_way_out() {
    let host = Host::new(GPUS);
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
    let class = ["--device-class", "claimfs.dev"];
    let cases: [(&[&str], &[&str], i32, &str); 13] = [
        (
            &[class[0], "gpu"],
            &["podman", "run", "i"],
            2,
            "there is no class \"gpu\"; there are: claimfs.dev\nfix: name one of these",
        ),
        (&[class[0], class[1], "--select", "device.x"], &["podman", "run", "i"], 2, "undefined field 'x'"),
        (&class, &["true"], 2, "put {} where the --device options are to go"),
        (&class, &["podman", "ps"], 2, "no run or create"),
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
    ];
    for (what, command, code, expected) in cases {
        let mut run = host.claimfs(&["run"]);
        let output = output(run.args(what).arg("--").args(command));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{what:?} {command:?}: {errors}");
        assert!(errors.starts_with("error: ") && errors.contains(expected), "{what:?} {command:?}: {errors}");
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
    let mut nobody = host.command("setpriv");
    nobody.args([
        "--reuid=65534",
        "--clear-groups",
        &support::driver::binary(),
        "run",
        class[0],
        class[1],
        "--plain",
        "--",
        "true",
    ]);
    let nobody = output(nobody);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&nobody.stderr).contains("only root can do this\nfix: sudo claimfs"),
        "{nobody:?}"
    );
}

/// The folder of something that hack/cluster.d/build has built.
fn built(module: &str) -> String {
    let output = Command::new("hack/cluster.d/build")
        .arg(module)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
