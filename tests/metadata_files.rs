//! Device metadata from plain files, for machines whose kernel cannot hand the live file system over: the same
//! promises, in real containers.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::signal::{Signal, kill};
use support::{
    driver::{Daemon, names},
    metadata::{Counted, Reports, counted, file, reader, replace_holder, setup},
    podman::Container,
};

const FILES: [&str; 2] = ["--metadata", "files"];

/// Reads until it is told to stop; both documents must be of one version, which never falls.
const CHECKER: &str = r#"
    newest=0 n=0 e=0
    echo started
    while [ ! -e /shared/stop ]; do
        set -- $(sed -n 's/.*"generation":\([0-9]*\)}.*/\1/p' "$FILE")
        if [ "$#" = 2 ] && [ "$1" = "$2" ] && [ "$1" -ge "$newest" ]; then newest=$1 n=$((n+1)); else e=$((e+1)); fi
    done
    echo "$n $e"
"#;

/// Waits until a container sees a version.
fn watcher(setup: &support::setup::Setup, devices: &[String], file: &str) -> Container {
    let script = format!(
        "last=; until [ -e /shared/stop ]; do \
         now=$(sed -n 's/.*\"round\":{{\"int\":\\([0-9]*\\)}}.*/\\1/p' {file} | head -n 1); \
         [ \"$now\" = \"$last\" ] || {{ last=$now; echo \"$now\"; }}; done"
    );
    Container::start(&setup.machine, devices, &[], &script)
}

/// Passes over those in between.
fn sees(container: &mut Container, round: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while container.line() != round.to_string() {
        assert!(Instant::now() < deadline, "round {round} is not seen");
    }
}

fn report(reports: &Reports, round: usize) {
    reports.write("gpu-0", &format!("attributes: {{round: {{int: {round}}}}}\n"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn files_follow_in_every_container_whenever_it_was_started() {
    let (mut setup, reports) = setup("late", &FILES).await;
    report(&reports, 1);
    let claim = setup.claim("a", &[("r", "gpu-0"), ("other", "gpu-1")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let path = file(&claim, "r");
    let mut containers = Vec::new();
    for round in 1..=12 {
        report(&reports, round);
        if round % 3 == 1 {
            containers.push(watcher(&setup, &devices[..1], &path));
        }
        match round {
            5 => replace_holder(&setup),
            8 => setup.restart(drop).await,
            _ => {}
        }
        for container in &mut containers {
            sees(container, round);
        }
    }
    // Those who look around on the node see the same.
    let on_node =
        setup.machine.path(&format!("metadata/claims/default/{}/r/claimfs.dev-metadata.json", claim.name));
    assert!(fs::read_to_string(&on_node).unwrap().contains("\"round\":{\"int\":12}"));
    assert!(fs::write(&on_node, "").is_err(), "it can only be read");
    let bases = setup.machine.path(&format!("run/anchors/{}/.r", claim.uid));
    // What no container follows any more is dropped, but for what a runtime may just have taken.
    containers.truncate(1);
    for round in 13..200 {
        report(&reports, round);
        sees(&mut containers[0], round);
    }
    let left = names(&bases).len();
    println!("{left} versions of 200 are kept for containers");
    assert!(left < 100);
    containers.clear();
    setup.unprepare(&claim).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let anchors = setup.machine.path("real-run/anchors");
    let below = format!("{}/", anchors.display());
    let is_mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&below);
    while is_mounted() || !names(&anchors).is_empty() {
        assert!(Instant::now() < deadline, "{:?} are left", names(&anchors));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn files_are_whole_under_a_storm_and_whatever_is_killed() {
    let (mut setup, reports) = setup("files-storm", &FILES).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let path = file(&claim, "r");
    let readers = [(); 2].map(|()| reader(&setup, &devices, &path, CHECKER));
    let mut round = 0;
    let mut storm = |duration: Duration| {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            round += 1;
            report(&reports, round);
        }
    };
    storm(Duration::from_secs(5));
    for turn in 0..20 {
        for _ in 0..3 {
            setup.restart(drop).await;
            storm(Duration::from_millis(20));
        }
        replace_holder(&setup);
        if turn % 4 == 3 {
            // Both at once.
            let holders = setup.machine.holders();
            let end = |daemon: Daemon| {
                for holder in holders {
                    kill(holder, Signal::SIGKILL).unwrap();
                }
                drop(daemon);
            };
            setup.restart(end).await;
        }
    }
    let on_node = setup.machine.path(&format!("run/anchors/{}/r", claim.uid));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string(&on_node).unwrap().contains(&format!("\"int\":{round}}}")) {
        assert!(Instant::now() < deadline);
    }
    println!("{round} reports, {} versions", generation(&on_node));
    for reader in readers {
        let Counted { reads, errors, .. } = counted(reader);
        println!("{reads} reads, {errors} torn, old or failed");
        assert!(errors == 0 && reads > 1000, "{errors} of {reads}");
    }
}

fn generation(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let document: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    document["metadata"]["generation"].to_string()
}
