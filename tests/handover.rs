//! One daemon after another, as in a rolling update that starts the new pod first: both are registered, one has the
//! claims, and nobody who reads or calls notices.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::fs;

use support::{
    driver::{Daemon, names},
    metadata::{Counted, READER, counted, file, reader, setup},
    setup::Setup,
};

const PODS: [[&str; 2]; 3] = [["--pod-uid", "pod-a"], ["--pod-uid", "pod-b"], ["--pod-uid", "pod-c"]];

/// Starts another daemon beside those that run, and calls it from then on.
async fn start_another(setup: &mut Setup, flags: &[&'static str]) -> Daemon {
    setup.machine.flags = flags.to_vec();
    let daemon = setup.machine.start();
    daemon.wait_for("\"message\":\"ready\"");
    setup.plugin = setup.kubelet.registered().await;
    daemon
}

fn versions(setup: &Setup) -> Vec<String> {
    setup.slices().iter().map(|slice| slice["metadata"]["resourceVersion"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c14_c18_a_daemon_takes_over_from_one_that_runs_and_nobody_notices() {
    let (mut setup, reports) = setup("surge", &PODS[0]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let readers = [(); 2].map(|()| reader(&setup, &devices, &file(&claim, "r"), READER));
    let slices = versions(&setup);
    for round in 1..=10 {
        let old = setup.daemon.take().unwrap();
        let another = setup.claim(&format!("o{round}"), &[("r", "gpu-1")]);
        setup.prepare(&another).await.unwrap();
        let new = start_another(&mut setup, &PODS[round % 3]).await;
        old.wait_for("standing by");
        // What the old one has prepared, the new one knows and undoes.
        assert_eq!(setup.prepare(&claim).await.unwrap(), devices);
        setup.unprepare(&another).await.unwrap();
        reports.write("gpu-0", &format!("attributes: {{round: {{int: {round}}}}}\n"));
        let on_node =
            setup.machine.path(&format!("metadata/by-uid/{}/r/claimfs.dev-metadata.json", claim.uid));
        let seen =
            || fs::read_to_string(&on_node).unwrap().contains(&format!("\"round\":{{\"int\":{round}}}"));
        let deadline = std::time::Instant::now() + support::DEADLINE;
        while !seen() {
            assert!(std::time::Instant::now() < deadline, "an update goes on after round {round}");
        }
        drop(old);
        setup.daemon = Some(new);
    }
    assert_eq!(setup.machine.holders().len(), 1);
    assert_eq!(names(&setup.machine.kubelet().join("plugins_registry")).len(), 1);
    for reader in readers {
        let Counted { reads, errors, longest } = counted(reader);
        println!("{reads} reads, {errors} errors in 10 take-overs, the longest took {longest:?}");
        assert!(errors == 0 && reads > 100);
    }
    // The reports have changed the slices; the take-overs have not.
    reports.write("gpu-0", "");
    let settled = setup.slices_become(|found| !found[0].to_string().contains("\"round\"")).await;
    let generation = |slices: &[serde_json::Value]| slices[0]["spec"]["pool"]["generation"].to_string();
    assert_eq!((slices.len(), generation(&settled)), (versions(&setup).len(), String::from("1")));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c14_slices_stay_and_the_one_who_has_stepped_back_goes_on_when_the_other_dies() {
    let (mut setup, _reports) = setup("fallback", &PODS[0]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let devices = setup.prepare(&claim).await.unwrap();
    let slices = versions(&setup);
    let old = setup.daemon.take().unwrap();
    let new = start_another(&mut setup, &PODS[1]).await;
    old.wait_for("standing by");
    drop(new);
    old.wait_for("\"message\":\"ready\"");
    setup.plugin = setup.kubelet.registered().await;
    assert_eq!(setup.prepare(&claim).await.unwrap(), devices);
    setup.unprepare(&claim).await.unwrap();
    assert_eq!(versions(&setup), slices);
    // It has what it needs and nothing more: neither it nor its helper may do what root may.
    let capabilities = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let of =
            |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        (of("CapEff:").unwrap(), of("CapPrm:").unwrap())
    };
    let none = || (String::from("0000000000000000"), String::from("0000000000000000"));
    assert_eq!(capabilities(old.id()), none());
    let holder = u32::try_from(setup.machine.holders()[0].as_raw()).unwrap();
    let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).unwrap();
    let helpers: Vec<u32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(!helpers.is_empty() && helpers.iter().all(|helper| capabilities(*helper) == none()));
    assert_ne!(capabilities(holder), none());
    setup.daemon = Some(old);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c16_a_new_daemon_that_cannot_start_changes_nothing() {
    let (mut setup, _reports) = setup("fails", &PODS[0]).await;
    let config = setup.machine.path("config.yaml");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, "sources: 1").unwrap();
    setup.machine.flags = PODS[1].to_vec();
    assert_eq!(setup.machine.start().wait().code(), Some(2));
    // One that may not run beside another is refused, as ever.
    fs::write(&config, good).unwrap();
    setup.machine.flags = Vec::new();
    let refused = setup.machine.command().output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another claimfs"));
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&claim).await.unwrap();
    setup.unprepare(&claim).await.unwrap();
    // And one that stands by ends when it is asked to.
    let old = setup.daemon.take().unwrap();
    let new = start_another(&mut setup, &PODS[1]).await;
    old.wait_for("standing by");
    drop(old);
    new.stop();
}
