//! Device metadata in real containers: whole, current, and there whatever is killed.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use claimfs::kubelet::api::dra::v1::Claim;
use nix::{
    fcntl::{Flock, FlockArg},
    sys::signal::{Signal, kill},
};
use support::{
    claims,
    cluster::Cluster,
    driver::{Daemon, Machine, names},
    metadata::{Counted, PLACE, READER, counted, file, reader, replace_holder, setup},
    podman::Container,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_hundred_kills_fail_no_read() {
    let (mut setup, _reports) = setup("kills", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let readers = [(); 2].map(|()| reader(&setup, &devices, &file(&claim, "r"), READER));
    let mut longest = Duration::ZERO;
    for round in 0..20 {
        for _ in 0..3 {
            let killed = Instant::now();
            setup.restart(drop).await;
            longest = longest.max(killed.elapsed());
        }
        replace_holder(&setup);
        // Both in turn.
        match round % 2 {
            0 => {
                replace_holder(&setup);
                setup.restart(drop).await;
            }
            _ => {
                setup.restart(drop).await;
                replace_holder(&setup);
            }
        }
    }
    for reader in readers {
        let Counted { reads, errors, longest } = counted(reader);
        println!("{reads} reads, {errors} errors, the longest took {longest:?}");
        assert!(errors == 0 && reads > 1000, "{errors} of {reads} failed");
    }
    println!("60 + 20 + 20 kills; the longest restart of the daemon took {longest:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn both_killed_at_once_are_healed() {
    let (mut setup, reports) = setup("both", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let reader = reader(&setup, &devices, &file(&claim, "r"), READER);
    for round in 0..20 {
        let holders = setup.machine.holders();
        let end = |daemon: Daemon| {
            for holder in holders {
                kill(holder, Signal::SIGKILL).unwrap();
            }
            drop(daemon);
        };
        setup.restart(end).await;
        reports.write("gpu-0", &format!("attributes: {{round: {{int: {round}}}}}\n"));
        // A container that is started now reads from what was mounted now.
        if round % 10 == 9 {
            let mut late =
                Container::start(&setup.machine, &devices, &[], &format!("cat {}; echo", file(&claim, "r")));
            assert!(late.line().contains("DeviceMetadata"));
        }
    }
    let started = Instant::now();
    let script =
        format!("until grep -q '\"round\":{{\"int\":19}}' {}; do :; done; echo seen", file(&claim, "r"));
    let mut late = Container::start(&setup.machine, &devices, &[], &script);
    assert_eq!(late.line(), "seen");
    let Counted { reads, errors, longest } = counted(reader);
    println!(
        "{reads} reads, {errors} errors while nobody was there, the longest took {longest:?}; the last look took {:?}",
        started.elapsed()
    );
    assert!(reads > 100);
    let left = fs::read_to_string("/proc/self/mountinfo").unwrap();
    setup.unprepare(&claim).await.unwrap();
    let anchors = setup.machine.path("real-run/anchors");
    assert!(left.contains(anchors.to_str().unwrap()));
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string("/proc/self/mountinfo").unwrap().contains(anchors.to_str().unwrap()) {
        assert!(Instant::now() < deadline, "{anchors:?} is still mounted");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_holder_that_takes_long_to_die_is_waited_for() {
    let (mut setup, _reports) = setup("dying", &[]).await;
    let (path, holders) = (setup.machine.path("run/hold.lock"), setup.machine.holders());
    let end = |daemon: Daemon| {
        for holder in holders {
            kill(holder, Signal::SIGKILL).unwrap();
        }
        drop(daemon);
        // The kernel takes a lock away after the socket; here it takes its time.
        let lock = Flock::lock(fs::File::open(path).unwrap(), FlockArg::LockExclusive).unwrap();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(500));
            drop(lock);
        });
    };
    setup.restart(end).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn who_cannot_be_healed_is_named() {
    let (mut setup, _reports) = setup("unhealed", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&claim).await.unwrap();
    // As a runtime does that takes no notice of what the spec says about propagation.
    let place = setup.machine.path("x-metadata.json");
    fs::write(&place, "").unwrap();
    let anchor = setup.machine.path(&format!("run/anchors/{}/r", claim.uid));
    let mut private = Printing::start(
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg("mount --bind \"$0\" \"$1\" && echo mounted && exec sleep 1000")
            .args([&anchor, &place]),
    );
    assert_eq!(private.line(), "mounted\n");
    let holders = setup.machine.holders();
    let end = |daemon: Daemon| {
        for holder in holders {
            kill(holder, Signal::SIGKILL).unwrap();
        }
        drop(daemon);
    };
    end(setup.daemon.take().unwrap());
    let daemon = setup.machine.start();
    let said = daemon.wait_for("reads from a connection that is dead");
    assert!(
        said.contains(&format!("process {} ", private.0.id())) && said.contains("/x-metadata.json"),
        "{said}"
    );
    setup.daemon = Some(daemon);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn an_update_reaches_a_running_container_at_once() {
    let (setup, reports) = setup("update", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0"), ("other", "gpu-1")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let script = format!(
        "find {PLACE} -name '*-metadata.json'; while [ ! -e /shared/stop ]; do \
         grep -q unhealthy {} && {{ cut -d' ' -f1 /proc/uptime; break; }}; done; cat {}",
        file(&claim, "r"),
        file(&claim, "r")
    );
    // A container of one request: it sees one file.
    let mut container = Container::start(&setup.machine, &devices[..1], &["--user", "1000"], &script);
    assert_eq!(container.line(), file(&claim, "r"));
    reports.write("gpu-0", "health: unhealthy\nmessage: the fan stands still\n");
    let uptime =
        || fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap();
    let told = uptime();
    let seen: f64 = container.line().parse().unwrap();
    println!("seen in the container {:.0} ms after it was reported", (seen - told) * 1e3);
    assert!(seen - told < 1.0, "{seen} {told}");
    let documents = [container.line(), container.line()].map(|line| {
        let document: Result<serde_json::Value, _> = serde_json::from_str(&line);
        document.unwrap_or_else(|error| panic!("{error} in {line:?}"))
    });
    assert_eq!(documents[0]["apiVersion"], "metadata.resource.k8s.io/v1beta1");
    assert_eq!(documents[1]["apiVersion"], "metadata.resource.k8s.io/v1alpha1");
    assert_eq!(documents[0]["metadata"]["generation"], 2);
    let device = &documents[0]["requests"][0]["devices"][0];
    assert_eq!(device["attributes"]["healthMessage"]["string"], "the fan stands still");
    // Only the file that is concerned has another version.
    let other = setup.machine.path(&format!("metadata/by-uid/{}/other/claimfs.dev-metadata.json", claim.uid));
    assert!(fs::read_to_string(other).unwrap().contains("\"generation\":1}"));
    let owned = fs::read_to_string(setup.machine.path("metadata/devices/update/gpu-0.json")).unwrap();
    assert!(owned.contains(&claim.name), "{owned}");
}

/// What a process prints, and the process, which ends with this.
struct Printing(Child, BufReader<ChildStdout>);

impl Printing {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self(child, output)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Printing {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn every_reader_sees_every_version() {
    let (setup, reports) = setup("readers", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let place = setup.machine.path("metadata");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/readers");
    let on_host = place.join(format!("claims/default/{}/r/claimfs.dev-metadata.json", claim.name));
    let named = format!("default/{}", claim.name);
    let mut ours = Printing::start(
        Command::new(env!("CARGO_BIN_EXE_claimfs"))
            .args(["metadata", &named, "r", "--watch", "--place"])
            .arg(&place),
    );
    assert!(ours.line().starts_with("CLAIM"));
    assert!(ours.line().contains("health=healthy"));
    let mut python = Printing::start(Command::new("python3").arg(examples.join("watch.py")).arg(on_host));
    assert!(python.line().starts_with("1 gpu-0"));
    let script = format!(
        "until [ -e /shared/read.sh ]; do :; done; sh /shared/read.sh {} r & until [ -e /shared/stop ]; do sleep 0.1; done; kill $!",
        claim.name
    );
    let mut shell = Container::start(&setup.machine, &devices, &[], &script);
    fs::copy(examples.join("read.sh"), shell.shared("read.sh.new")).unwrap();
    fs::rename(shell.shared("read.sh.new"), shell.shared("read.sh")).unwrap();
    assert!(shell.line().contains("\"generation\":1}"));
    for generation in 2..5 {
        let report = format!("attributes: {{speed: {{int: {generation}}}}}\n");
        reports.write("gpu-0", &report);
        ours.line();
        assert!(ours.line().contains(&format!("speed={generation}")));
        assert!(python.line().starts_with(&format!("{generation} gpu-0")));
        assert!(shell.line().contains(&format!("\"generation\":{generation}}}")));
    }
    let read = |of: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimfs"));
        command.arg("metadata").args(of).args(["-o", "json", "--place"]).arg(&place).output().unwrap()
    };
    for of in [vec![], vec![named.as_str()], vec![claim.name.as_str()], vec![&named, "r"]] {
        let document: serde_json::Value = serde_json::from_slice(&read(&of).stdout).unwrap();
        assert_eq!(document["metadata"]["generation"], 4);
    }
    let none = read(&["default/nobody"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&none.stderr).contains("there are no metadata of a claim default/nobody")
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_claim_from_a_template_is_found_by_the_name_in_its_pod() {
    let (setup, _reports) = setup("template", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let annotate = |value: &str| {
        let note = format!("resource.kubernetes.io/pod-claim-name={value}");
        setup.plane().kubectl(&["annotate", "--overwrite", "resourceclaim", &claim.name, &note]);
    };
    for hostile in ["../../../etc", "a/b", ".."] {
        annotate(hostile);
        let refused = setup.prepare(&claim).await.unwrap_err();
        assert!(refused.contains("name of a pod's claim"), "{refused}");
    }
    annotate("gpu");
    let devices = setup.prepare(&claim).await.unwrap();
    let script = format!("cat {PLACE}/resourceclaimtemplates/gpu/r/claimfs.dev-metadata.json");
    let mut container = Container::start(&setup.machine, &devices, &[], &script);
    let document: serde_json::Value = serde_json::from_str(&container.line()).unwrap();
    assert_eq!(
        (&document["podClaimName"], &document["metadata"]["name"]),
        (&"gpu".into(), &claim.name.as_str().into())
    );
    drop(container);
    claims::delete(setup.plane(), &claim);
    setup.unprepare(&claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_daemon_that_does_not_come_back_leaves_its_last_word() {
    let (mut setup, reports) = setup("grace", &["--grace", "1"]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let script = format!(
        "echo started; while [ ! -e /shared/gone ]; do :; done; cat {0}; until grep -q unhealthy {0}; do :; done; echo seen",
        file(&claim, "r")
    );
    let mut container = Container::start(&setup.machine, &devices, &[], &script);
    assert_eq!(container.line(), "started");
    drop(setup.daemon.take());
    fs::write(container.shared("gone"), "").unwrap();
    // It is asked while nobody serves, waits for the grace, and gets the last version: by then a plain file.
    let deadline = Instant::now() + Duration::from_secs(20);
    let on_host = setup.machine.path(&format!("run/anchors/{}/r", claim.uid));
    while !fs::read_to_string(&on_host).is_ok_and(|text| text.contains("\"generation\":1}")) {
        assert!(Instant::now() < deadline);
    }
    let daemon = setup.machine.start();
    daemon.wait_for("the metadata are served");
    setup.daemon = Some(daemon);
    reports.write("gpu-0", "health: unhealthy\n");
    // What it was reading when the connection ended may have failed; what it opens now is live again.
    while container.line() != "seen" {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_holder_that_hangs_fails_the_prepare_and_confuses_nothing() {
    let (mut setup, _reports) = setup("hangs", &[]).await;
    let [first, second] = [setup.claim("a", &[("r", "gpu-0")]), setup.claim("b", &[("r", "gpu-1")])];
    setup.prepare(&first).await.unwrap();
    let holder = setup.machine.holders()[0];
    kill(holder, Signal::SIGSTOP).unwrap();
    let refused = setup.prepare(&second).await.unwrap_err();
    assert!(refused.contains("holder"), "{refused}");
    kill(holder, Signal::SIGCONT).unwrap();
    let devices = setup.prepare(&second).await.unwrap();
    // It is really prepared: a crash does not undo it, and its file is its own.
    setup.restart(drop).await;
    assert_eq!(setup.machine.specs().len(), 2);
    assert_eq!(setup.prepare(&second).await.unwrap(), devices);
    let anchor = setup.machine.path(&format!("run/anchors/{}/r", second.uid));
    assert!(fs::read_to_string(anchor).unwrap().contains(&second.name));
    setup.unprepare(&second).await.unwrap();
    setup.unprepare(&first).await.unwrap();
    assert_eq!((setup.machine.specs(), setup.machine.journal()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_mount_that_is_taken_away_is_made_again() {
    let (mut setup, _reports) = setup("unmounted", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let script = format!(
        "echo started; until [ -e /shared/gone ]; do :; done; until grep -q {} {}; do :; done; echo seen",
        claim.name,
        file(&claim, "r")
    );
    let mut container = Container::start(&setup.machine, &devices, &[], &script);
    assert_eq!(container.line(), "started");
    let place = setup.machine.path("metadata");
    setup.end_and(drop, || nix::mount::umount2(&place, nix::mount::MntFlags::MNT_DETACH).unwrap()).await;
    assert!(fs::read_to_string(place.join("README")).is_ok());
    let deadline = Instant::now() + Duration::from_secs(20);
    let anchor = setup.machine.path(&format!("run/anchors/{}/r", claim.uid));
    while !fs::read_to_string(&anchor).is_ok_and(|text| text.contains(&claim.name)) {
        assert!(Instant::now() < deadline);
    }
    fs::write(container.shared("gone"), "").unwrap();
    assert_eq!(container.line(), "seen");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn the_mount_of_another_daemon_is_left_alone() {
    let (first, _reports) = setup("first", &[]).await;
    let place = first.machine.path("metadata");
    let mut second = Machine::new(Cluster::shared_control_plane(), "second-mount", "sources: []");
    // By another way to the same folder.
    std::os::unix::fs::symlink(first.machine.path(""), second.path("link")).unwrap();
    second.mount_point = Some(second.path("link/metadata"));
    let refused = second.command().output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("is mounted by the daemon of"), "{errors}");
    assert_eq!(refused.status.code(), Some(1));
    assert!(fs::read_to_string(place.join("README")).unwrap().contains("one whole version"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn ten_thousand_cycles_leave_nothing_behind() {
    let (setup, _reports) = setup("cycles", &[]).await;
    let claims: Vec<Claim> =
        (0..8).map(|index| setup.claim(&format!("c{index}"), &[("r", &format!("gpu-{index}"))])).collect();
    let pid = setup.daemon().id();
    let holder = setup.machine.holders()[0];
    let cycle = async |rounds: usize| {
        for _ in 0..rounds {
            let prepared = setup.plugin.prepare(&claims).await.unwrap();
            assert!(prepared.values().all(Result::is_ok), "{prepared:?}");
            let unprepared = setup.plugin.unprepare(&claims).await.unwrap();
            assert!(unprepared.values().all(Result::is_ok), "{unprepared:?}");
        }
    };
    let memory = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let descriptors = |pid: i32| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    let pids = [i32::try_from(pid).unwrap(), holder.as_raw()];
    cycle(250).await;
    let before = (pids.map(descriptors), pids.map(memory));
    cycle(1000).await;
    // What is mounted goes when nobody has anything else to ask.
    let left = || ["run/anchors", "run/versions"].map(|folder| names(&setup.machine.path(folder)).len());
    let deadline = Instant::now() + Duration::from_secs(20);
    // Of versions, those of the README and of the devices stay.
    while left() != [0, 1 + 8] {
        assert!(Instant::now() < deadline, "{:?} are left", left());
    }
    let after = (pids.map(descriptors), pids.map(memory));
    println!(
        "descriptors and anonymous KiB of daemon and holder: {before:?}, then {after:?}; {} mounts",
        mounts()
    );
    assert_eq!(before.0, after.0);
    for (before, after) in before.1.iter().zip(after.1) {
        assert!(after < before + 1024, "{before} KiB, then {after} KiB");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn whoever_looks_at_the_node_sees_devices_owners_and_holder() {
    let (setup, reports) = setup("status", &[]).await;
    reports.write("gpu-1", "health: unhealthy\nmessage: the fan stands still\n");
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&claim).await.unwrap();
    let status = || {
        let mut command = Command::new(support::driver::binary());
        command.arg("status").arg("--run-dir").arg(setup.machine.path("run"));
        let output = command.arg("--mount-point").arg(setup.machine.path("metadata")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let deadline = Instant::now() + support::DEADLINE;
    while !status().contains("unhealthy (the fan stands still)") {
        assert!(Instant::now() < deadline, "{}", status());
    }
    let (text, holder) = (status(), setup.machine.holders()[0]);
    assert!(text.contains(&format!("metadata: fuse, holder {holder}, ")), "{text}");
    assert!(
        text.contains(&format!(
            "gpu-0   gpu     healthy                           -     default/{}",
            claim.name
        )),
        "{text}"
    );
    assert!(text.ends_with(&format!("\n1 claim: default/{}\n", claim.name)), "{text}");
}
