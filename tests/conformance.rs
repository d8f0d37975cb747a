//! The kubelet's contract with a driver, point by point: the real daemon and a real API server, and a
//! stand-in for the kubelet that can do on demand what a real one does only in bad hours.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use claimfs::kubelet::api::{dra::v1::Claim, health::v1::HealthStatus};
use futures::future::join_all;
use support::{
    DEADLINE,
    claims::{self, Allocation},
    cluster::Cluster,
    driver::{Daemon, Machine, READ_ONLY_ROOT, names},
    kubelet::{Behaviour, DraVersion, Event, Kubelet},
    link_to_node,
    setup::{CONFIG, Setup},
};
use tempfile::TempDir;
use tokio_stream::StreamExt;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c01_get_info_has_all_fields_and_the_newest_version_first() {
    let setup = Setup::new("c01").await;
    let info = &setup.plugin.info;
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "claimfs.dev"));
    assert_eq!(
        info.supported_versions,
        ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    );
    assert_eq!(Path::new(&info.endpoint), setup.machine.kubelet().join("plugins/claimfs.dev/dra.sock"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c02_a_kubelet_that_restarts_registers_us_again() {
    let Setup { machine, kubelet, daemon, .. } = Setup::new("c02").await;
    kubelet.stop().await;
    let mut kubelet = Kubelet::start(&machine.kubelet(), Behaviour::default());
    assert_eq!(kubelet.registered().await.info.name, "claimfs.dev");
    daemon.unwrap().wait_for("registered with the kubelet");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c03_a_daemon_that_restarts_or_is_killed_is_registered_again() {
    let mut setup = Setup::new("c03").await;
    setup.restart(Daemon::stop).await;
    setup.restart(drop).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c04_c05_a_refused_registration_is_told_and_recovers() {
    let plane = Cluster::shared_control_plane();
    let machine = Machine::new(plane, "c04", CONFIG);
    let daemon = machine.start();
    let refusing =
        Kubelet::start(&machine.kubelet(), Behaviour { refuse: Some("not today"), ..Behaviour::default() });
    assert!(daemon.wait_for("the kubelet refuses the registration").contains("not today"));
    refusing.stop().await;
    let mut kubelet = Kubelet::start(&machine.kubelet(), Behaviour::default());
    kubelet.registered().await;
    daemon.wait_for("\"message\":\"ready\"");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c06_sockets_replace_stale_ones_are_roots_alone_and_go_with_the_daemon() {
    let mut setup = Setup::new("c06").await;
    let registration = setup.machine.kubelet().join("plugins_registry/claimfs.dev@reg.sock");
    let service = Path::new(&setup.plugin.info.endpoint).to_owned();
    for socket in [&registration, &service] {
        let metadata = fs::metadata(socket).unwrap();
        assert!(metadata.file_type().is_socket() && metadata.permissions().mode() & 0o777 == 0o600);
    }
    // A killed daemon leaves its sockets; the next one takes their place.
    let stale = fs::metadata(&registration).unwrap().ino();
    setup.restart(drop).await;
    assert_ne!(fs::metadata(&registration).unwrap().ino(), stale);
    setup.daemon.take().unwrap().stop();
    assert_eq!(names(registration.parent().unwrap()), [""; 0]);
    assert_eq!(names(service.parent().unwrap()), [""; 0]);
    assert!(matches!(setup.kubelet.event().await, Event::Deregistered { .. }));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c08_c10_c19_c50_one_connection_carries_every_version_and_the_health() {
    for (node, versions) in [("c19v1", &[DraVersion::V1][..]), ("c19beta", &[DraVersion::V1beta1])] {
        let setup = Setup::with(node, CONFIG, Behaviour { versions, refuse: None }).await;
        assert_eq!(setup.plugin.version, versions[0]);
        let claim = setup.claim("a", &[("r", "gpu-0")]);
        assert_eq!(setup.prepare(&claim).await.unwrap(), [format!("claimfs.dev/device={}-gpu-0", claim.uid)]);
        setup.unprepare(&claim).await.unwrap();
        let health = setup.plugin.health().await.unwrap().next().await.unwrap().unwrap();
        assert!(health.devices.iter().all(|device| device.health() == HealthStatus::Healthy));
        assert_eq!(health.devices.len(), 41);
        let older = setup.plugin.older_health().await.unwrap().next().await.unwrap().unwrap();
        assert_eq!(older.devices.len(), 41);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c07_c09_c11_the_service_answers_from_the_first_moment_and_on_every_connection() {
    let machine = Machine::new(Cluster::shared_control_plane(), "c09", CONFIG);
    let mut setup = Setup::on(machine, Behaviour::default()).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    for _ in 0..3 {
        setup.prepare(&claim).await.unwrap();
        setup.plugin = setup.plugin.reconnect().await;
    }
    setup.unprepare(&claim).await.unwrap();
    // At the moment when the registration appears, the service is there already.
    let registry = setup.machine.kubelet().join("plugins_registry");
    let service = Path::new(&setup.plugin.info.endpoint).to_owned();
    setup.daemon.take().unwrap().stop();
    let mut inotify = inotify::Inotify::init().unwrap();
    inotify.watches().add(&registry, inotify::WatchMask::MOVED_TO).unwrap();
    let _daemon = setup.machine.start();
    inotify.read_events_blocking(&mut [0; 4096]).unwrap();
    std::os::unix::net::UnixStream::connect(service).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c12_a_socket_that_cannot_be_served_ends_the_daemon() {
    let mut setup = Setup::new("c12").await;
    let daemon = setup.daemon.take().unwrap();
    let mut strace = std::process::Command::new("strace")
        .args(["--quiet=all", "--follow-forks", "--trace=accept4", "--inject=accept4:error=EINVAL"])
        .args(["--attach", &daemon.id().to_string(), "--output=/dev/null"])
        .spawn()
        .unwrap();
    // The error is met by whoever connects next, as soon as strace has attached.
    let endpoint = Path::new(&setup.plugin.info.endpoint).to_owned();
    let meet = tokio::spawn(async move {
        while std::os::unix::net::UnixStream::connect(&endpoint).is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    daemon.wait_for("Invalid argument");
    assert_eq!(daemon.wait().code(), Some(1));
    strace.wait().unwrap();
    meet.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c15_the_longest_driver_name_is_registered() {
    let driver = format!("{}.{}", "a".repeat(31), "b".repeat(31));
    let config = format!("driver: {driver}\n{CONFIG}");
    let setup = Setup::with("c15", &config, Behaviour::default()).await;
    assert_eq!(setup.plugin.info.name, driver);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_second_daemon_is_refused_with_the_number_of_the_first() {
    let setup = Setup::new("second").await;
    let second = setup.machine.command().output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&second.stderr);
    assert!(errors.contains(&format!("another claimfs (process {})", setup.daemon().id())), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c20_c26_a_claim_that_cannot_be_prepared_says_why_and_can_be_later() {
    let setup = Setup::new("c26").await;
    let unallocated = setup.claim("a", &[]);
    assert!(setup.prepare(&unallocated).await.unwrap_err().ends_with("is not allocated"));
    let allocated = setup.claim("a", &[("r", "gpu-0")]);
    assert_eq!(allocated.uid, unallocated.uid);
    let other = Claim { uid: String::from("0f9e8d7c-1234-4abc-9def-001122334455"), ..allocated.clone() };
    assert!(setup.prepare(&other).await.unwrap_err().contains("it was deleted and made anew"));
    let absent = Claim { name: String::from("nobody"), ..allocated.clone() };
    assert!(setup.prepare(&absent).await.unwrap_err().ends_with("does not exist"));
    assert_eq!((setup.machine.specs(), setup.machine.journal()), (vec![], vec![]));
    setup.prepare(&allocated).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c21_a_call_that_is_given_up_is_finished_or_undone() {
    let setup = Setup::new("c21").await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    for patience in [0, 1, 2, 5, 10, 20] {
        // The kubelet gives up in the middle and unprepares at once.
        let call = setup.plugin.prepare(std::slice::from_ref(&claim));
        let _ = tokio::time::timeout(Duration::from_millis(patience), call).await;
        setup.unprepare(&claim).await.unwrap();
    }
    // A call that had not reached the daemon when it was given up may still come; the answer to a last pair
    // of calls comes after it.
    setup.prepare(&claim).await.unwrap();
    setup.unprepare(&claim).await.unwrap();
    assert_eq!((setup.machine.specs(), setup.machine.journal()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c27_c28_c29_repeats_have_the_same_answer_and_every_claim_gets_one() {
    let mut setup = Setup::new("c27").await;
    let claims = [setup.claim("a", &[("r", "gpu-0"), ("r", "gpu-1")]), setup.claim("b", &[("r", "gpu-2")])];
    let first = setup.plugin.prepare(&claims).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(setup.plugin.prepare(&claims).await.unwrap(), first);
    setup.restart(drop).await;
    assert_eq!(setup.plugin.prepare(&claims).await.unwrap(), first);
    let unknown = Claim { namespace: "x".into(), name: "y".into(), uid: "z".into() };
    let all = [&claims[..], &[unknown]].concat();
    let unprepared = setup.plugin.unprepare(&all).await.unwrap();
    assert!(unprepared.len() == 3 && unprepared.values().all(Result::is_ok), "{unprepared:?}");
    // One bad claim among good ones.
    let bad = Claim { uid: "other".into(), ..claims[1].clone() };
    let answer = setup.plugin.prepare(&[claims[0].clone(), bad]).await.unwrap();
    assert!(answer[&claims[0].uid].is_ok() && answer["other"].is_err());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c34_c35_requests_lose_their_alternatives_and_shares_are_told() {
    let setup = Setup::new("c34").await;
    let shares = ["0f9e8d7c-1234-4abc-9def-00112233445", "0f9e8d7c-1234-4abc-9def-10112233445"]
        .map(|id| id.to_owned() + "5");
    let share = |request, share| Allocation { share: Some(share), ..Allocation::of(request, "c34", "kvm-0") };
    let allocations =
        [Allocation::of("first/best", "c34", "gpu-0"), share("one", &shares[0]), share("two", &shares[1])];
    let claim = claims::create(setup.plane(), "c34-a", &allocations);
    let answer = setup.plugin.prepare(std::slice::from_ref(&claim)).await.unwrap();
    let devices = answer[&claim.uid].as_ref().unwrap();
    let told: Vec<(&str, Option<&str>)> =
        devices.iter().map(|device| (device.request_names[0].as_str(), device.share_id.as_deref())).collect();
    assert_eq!(told, [("first", None), ("one", Some(shares[0].as_str())), ("two", Some(shares[1].as_str()))]);
    let ids: std::collections::BTreeSet<&String> =
        devices.iter().flat_map(|device| &device.cdi_device_ids).collect();
    assert_eq!(ids.len(), 3, "each with a name of its own");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c36_a_new_claim_of_the_same_name_is_another_claim() {
    let setup = Setup::new("c36").await;
    let old = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&old).await.unwrap();
    claims::delete(setup.plane(), &old);
    let new = setup.claim("a", &[("r", "gpu-0")]);
    let refused = setup.prepare(&new).await.unwrap_err();
    assert!(
        refused.contains(&format!("device gpu-0 is in use by claim default/c36-a ({})", old.uid)),
        "{refused}"
    );
    // The late unprepare concerns the old one alone.
    setup.unprepare(&old).await.unwrap();
    setup.prepare(&new).await.unwrap();
    setup.unprepare(&old).await.unwrap();
    assert_eq!(setup.machine.specs(), [format!("claimfs.dev-{}.json", new.uid)]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c37_c38_c49_slices_are_whole_and_not_written_again() {
    let config = "sources: [{name: gpu, simulated: {count: 500}}]";
    let mut setup = Setup::with("c37", config, Behaviour::default()).await;
    let slices = setup.slices();
    assert_eq!(slices.len(), 4);
    for slice in &slices {
        assert_eq!(slice["spec"]["pool"]["generation"], 1);
        assert_eq!(slice["spec"]["pool"]["resourceSliceCount"], 4);
        let owner = &slice["metadata"]["ownerReferences"][0];
        assert_eq!((owner["kind"].as_str(), owner["name"].as_str()), (Some("Node"), Some("c37")));
        assert_eq!(owner["controller"], true);
    }
    setup.restart(Daemon::stop).await;
    setup.restart(drop).await;
    assert_eq!(setup.slices(), slices);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c40_c41_c42_c48_what_others_do_to_the_slices_is_put_right() {
    let setup = Setup::new("c42").await;
    let before = setup.slices();
    // The kubelet's wipe.
    setup.plane().kubectl(&["delete", "resourceslices", "--field-selector=spec.nodeName=c42"]);
    let after = setup.slices_become(|slices| slices.len() == before.len()).await;
    assert_eq!(after[0]["spec"]["devices"], before[0]["spec"]["devices"]);
    // A slice that somebody else made for us.
    let foreign = "{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: foreign-c42}, spec: \
                   {driver: claimfs.dev, nodeName: c42, pool: {name: c42, generation: 0, resourceSliceCount: 1}}}";
    setup.plane().apply("create", foreign);
    setup
        .slices_become(|slices| {
            slices.len() == before.len() && slices[0]["metadata"]["name"] != "foreign-c42"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c39_a_device_that_comes_or_goes_is_published_and_its_health_told() {
    let setup = Setup::new("c39").await;
    let plug = setup.machine.path("dev/plug0");
    let has_plug =
        |slices: &[serde_json::Value]| slices[0]["spec"]["devices"].to_string().contains("\"plug0\"");
    let mut health = setup.plugin.health().await.unwrap();
    let plugged = std::time::Instant::now();
    link_to_node(&setup.machine.path("dev"), "plug0", "null");
    let slices = setup.slices_become(has_plug).await;
    assert!(plugged.elapsed() < Duration::from_secs(2), "published after {:?}", plugged.elapsed());
    assert_eq!(slices[0]["spec"]["pool"]["generation"], 1, "one changed slice keeps the generation");
    let claim = setup.claim("a", &[("r", "plug0")]);
    setup.prepare(&claim).await.unwrap();
    let unplugged = std::time::Instant::now();
    fs::remove_file(&plug).unwrap();
    setup.slices_become(|slices| !has_plug(slices)).await;
    assert!(unplugged.elapsed() < Duration::from_secs(2), "published after {:?}", unplugged.elapsed());
    let gone = tokio::time::timeout(DEADLINE, async {
        loop {
            let told = health.next().await.unwrap().unwrap();
            let plug = told.devices.iter().find(|one| one.device.as_ref().unwrap().device_name == "plug0");
            if let Some(plug) = plug.filter(|plug| plug.health() == HealthStatus::Unhealthy) {
                return plug.message.clone();
            }
        }
    });
    assert_eq!(gone.await.unwrap(), "the device is gone from this node");
    // Neither the device nor the claim is needed to take it down.
    claims::delete(setup.plane(), &claim);
    setup.unprepare(&claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c44_c50_what_is_reported_is_published_and_a_taint_keeps_its_time() {
    let reports = TempDir::new().unwrap();
    let config =
        format!("reports: {}\nsources: [{{name: gpu, simulated: {{count: 2}}}}]", reports.path().display());
    let setup = Setup::with("c44", &config, Behaviour::default()).await;
    let mut health = setup.plugin.health().await.unwrap();
    let report = |text: &str| fs::write(reports.path().join("gpu-1.yaml"), text).unwrap();
    let tainted = "health: unhealthy\nmessage: the fan stands still\ntaints: [{key: claimfs.dev/fan, effect: NoSchedule}]\n";
    report(tainted);
    let gpu = |slices: &[serde_json::Value]| slices[0]["spec"]["devices"][1].clone();
    let slices = setup.slices_become(|slices| gpu(slices)["taints"][0]["effect"] == "NoSchedule").await;
    assert!(gpu(&slices)["taints"][0]["timeAdded"].is_string());
    let told = tokio::time::timeout(DEADLINE, async {
        loop {
            let told = health.next().await.unwrap().unwrap();
            if let Some(sick) = told.devices.iter().find(|device| device.health() == HealthStatus::Unhealthy)
            {
                return sick.message.clone();
            }
        }
    });
    assert_eq!(told.await.unwrap(), "the fan stands still");
    // Somebody has set another time. It is neither put back nor lost with the next change.
    let long_ago = "2020-01-02T03:04:05Z";
    let name = slices[0]["metadata"]["name"].as_str().unwrap();
    let path = "/spec/devices/1/taints/0/timeAdded";
    let patch = format!("[{{\"op\": \"replace\", \"path\": \"{path}\", \"value\": \"{long_ago}\"}}]");
    setup.plane().kubectl(&["patch", "resourceslice", name, "--type=json", "--patch", &patch]);
    report(&format!("{tainted}attributes: {{speed: {{int: 7}}}}\n"));
    let slices = setup.slices_become(|slices| gpu(slices)["attributes"]["speed"]["int"] == 7).await;
    assert_eq!(gpu(&slices)["taints"][0]["timeAdded"], long_ago);
    assert_eq!(slices[0]["spec"]["pool"]["generation"], 1);
    report("healht: sick\n");
    assert!(setup.daemon().wait_for("something is left out").contains("healht"));
    fs::remove_file(reports.path().join("gpu-1.yaml")).unwrap();
    setup.slices_become(|slices| gpu(slices)["taints"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_hundred_claims_at_once_and_one_of_thirty_two_devices() {
    let setup =
        Setup::with("many", "sources: [{name: gpu, simulated: {count: 200}}]", Behaviour::default()).await;
    let devices: Vec<String> = (0..132).map(|index| format!("gpu-{index}")).collect();
    let single: Vec<[Allocation<'_>; 1]> =
        devices[..100].iter().map(|one| [Allocation::of("r", "many", one)]).collect();
    let large: Vec<Allocation<'_>> =
        devices[100..].iter().map(|one| Allocation::of("r", "many", one)).collect();
    let mut all: Vec<(String, &[Allocation<'_>])> =
        single.iter().enumerate().map(|(index, one)| (format!("many-{index}"), &one[..])).collect();
    all.push((String::from("many-large"), &large));
    let claims = claims::create_all(setup.plane(), &all);
    let calls = claims.iter().map(|claim| setup.prepare(claim));
    let answers: Vec<usize> = join_all(calls).await.into_iter().map(|ids| ids.unwrap().len()).collect();
    assert_eq!((answers.len(), answers.iter().sum::<usize>()), (101, 132));
    assert_eq!(setup.machine.specs().len(), 101);
    let calls = claims.iter().map(|claim| setup.unprepare(claim));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!((setup.machine.specs(), setup.machine.journal()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn hostile_names_are_refused_and_touch_nothing() {
    let mut machine = Machine::new(Cluster::shared_control_plane(), "hostile", CONFIG);
    machine.before = Some(READ_ONLY_ROOT);
    let setup = Setup::on(machine, Behaviour::default()).await;
    let good = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&good).await.unwrap();
    let before = (setup.machine.specs(), setup.machine.journal());
    let long = "a".repeat(300);
    for text in ["../../../tmp/x", "..", "", "*", "a/b", "a\0b", "é", long.as_str()] {
        for claim in [
            Claim { uid: text.to_owned(), ..good.clone() },
            Claim { name: text.to_owned(), ..good.clone() },
            Claim { namespace: text.to_owned(), ..good.clone() },
        ] {
            let answer = setup.plugin.prepare(std::slice::from_ref(&claim)).await.unwrap();
            assert!(
                answer[&claim.uid].as_ref().is_err_and(|error| error.len() < 500),
                "{text:?}: {answer:?}"
            );
        }
        let unknown = Claim { uid: text.to_owned(), ..good.clone() };
        let answer = setup.plugin.unprepare(std::slice::from_ref(&unknown)).await.unwrap();
        assert!(answer[text].is_err(), "{text:?}");
    }
    assert_eq!((setup.machine.specs(), setup.machine.journal()), before);
    setup.unprepare(&good).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn hostile_parameters_are_refused_by_name() {
    let setup = Setup::new("opaque").await;
    let allocations = [Allocation::of("r", "opaque", "gpu-0")];
    let ours = |fields: serde_json::Value| {
        let mut parameters =
            serde_json::json!({"apiVersion": "claimfs.dev/v1alpha1", "kind": "DeviceParameters"});
        parameters.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        parameters
    };
    let long = "x".repeat(9_000);
    let cases = [
        (
            serde_json::json!({"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig"}),
            "parameters of kind \"GpuConfig\"",
        ),
        (ours(serde_json::json!({"privileged": true})), "privileged: unknown field"),
        (ours(serde_json::json!({"env": {"A=B": "x"}})), "environment variable \"A=B\""),
        (ours(serde_json::json!({ &long[..900]: 1 })), "unknown field"),
        (ours(serde_json::json!({"mode": long})), "mode \"xxx"),
    ];
    for (index, (parameters, expected)) in cases.into_iter().enumerate() {
        let claim = setup.claim(&format!("bad-{index}"), &[]);
        claims::configure(setup.plane(), &claim, &allocations, &parameters);
        let refused = setup.prepare(&claim).await.unwrap_err();
        assert!(
            refused.contains(expected) && refused.len() < 1_000,
            "{} bytes: {refused:.300}",
            refused.len()
        );
    }
    assert_eq!((setup.machine.specs(), setup.machine.journal()), (vec![], vec![]));
    let claim = setup.claim("good", &[]);
    let parameters = ours(serde_json::json!({"env": {"MODE": "fast"}}));
    claims::configure(setup.plane(), &claim, &allocations, &parameters);
    setup.prepare(&claim).await.unwrap();
    let spec =
        fs::read_to_string(setup.machine.path(&format!("cdi/claimfs.dev-{}.json", claim.uid))).unwrap();
    assert!(spec.contains("MODE=fast"), "{spec}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_folder_that_is_full_or_read_only_fails_the_call_and_nothing_else() {
    let full = "mkdir cdi && mount -t tmpfs -o size=16k tmpfs cdi && head -c 16k /dev/zero >cdi/filler";
    let read_only = "mkdir -p cdi && mount -t tmpfs tmpfs cdi && mount -o remount,ro cdi";
    for (node, before, mend, expected) in [
        ("full", full, "rm cdi/filler", "No space left on device"),
        ("readonly", read_only, "mount -o remount,rw cdi", "Read-only file system"),
    ] {
        let mut machine = Machine::new(Cluster::shared_control_plane(), node, CONFIG);
        machine.before = Some(before);
        let setup = Setup::on(machine, Behaviour::default()).await;
        let claim = setup.claim("a", &[("r", "gpu-0")]);
        let refused = setup.prepare(&claim).await.unwrap_err();
        assert!(refused.contains(expected), "{refused}");
        setup.inside(mend);
        setup.prepare(&claim).await.unwrap();
        setup.unprepare(&claim).await.unwrap();
        assert_eq!(setup.machine.journal(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c22_an_unprepare_that_fails_can_be_repeated() {
    let mut machine = Machine::new(Cluster::shared_control_plane(), "c22", CONFIG);
    machine.before = Some("mkdir cdi && mount -t tmpfs tmpfs cdi");
    let setup = Setup::on(machine, Behaviour::default()).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&claim).await.unwrap();
    setup.inside("mount -o remount,ro cdi");
    let refused = setup.unprepare(&claim).await.unwrap_err();
    assert!(refused.contains("Read-only file system"), "{refused}");
    // Nothing is released by half: the device still has its owner.
    let other = setup.claim("b", &[("r", "gpu-0")]);
    assert!(setup.prepare(&other).await.unwrap_err().contains("is in use by claim"));
    setup.inside("mount -o remount,rw cdi");
    setup.unprepare(&claim).await.unwrap();
    setup.prepare(&other).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c51_the_health_stream_ends_with_the_daemon_and_can_be_opened_again() {
    let mut setup = Setup::new("c51").await;
    let mut health = setup.plugin.health().await.unwrap();
    health.next().await.unwrap().unwrap();
    setup.restart(Daemon::stop).await;
    let rest: Vec<_> = tokio::time::timeout(DEADLINE, health.collect()).await.unwrap();
    assert!(rest.len() <= 1, "it ends: {rest:?}");
    setup.plugin.health().await.unwrap().next().await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_broken_journal_is_kept_aside_and_the_rest_goes_on() {
    let mut setup = Setup::new("journal").await;
    let [broken, whole] = [setup.claim("broken", &[("r", "gpu-0")]), setup.claim("whole", &[("r", "gpu-1")])];
    for claim in [&broken, &whole] {
        setup.prepare(claim).await.unwrap();
    }
    let file = setup.machine.path(&format!("run/claims/{}.json", broken.uid));
    let text = fs::read(&file).unwrap();
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    setup.restart(drop).await;
    assert!(setup.machine.journal().contains(&format!("{}.corrupt", broken.uid)));
    assert_eq!(setup.machine.specs().len(), 2, "containers of both can still be started again");
    setup.prepare(&broken).await.unwrap();
    for claim in [&broken, &whole] {
        setup.unprepare(claim).await.unwrap();
    }
    assert_eq!((setup.machine.specs(), setup.machine.journal()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn at_rest_nothing_is_written() {
    let setup = Setup::new("rest").await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&claim).await.unwrap();
    let stamp = |path: &str| fs::metadata(setup.machine.path(path)).unwrap().modified().unwrap();
    let before = (setup.slices(), stamp("cdi"), stamp("run/claims"));
    // A minute is what is promised, and longer than anything that is repeated.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((setup.slices(), stamp("cdi"), stamp("run/claims")), before);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_claim_that_everybody_has_forgotten_is_released_with_an_event() {
    let mut machine = Machine::new(Cluster::shared_control_plane(), "forgotten", CONFIG);
    machine.flags = vec!["--collect-every", "1"];
    let setup = Setup::on(machine, Behaviour::default()).await;
    let [used, forgotten] = [setup.claim("used", &[("r", "gpu-0")]), setup.claim("gone", &[("r", "gpu-1")])];
    for claim in [&used, &forgotten] {
        setup.prepare(claim).await.unwrap();
    }
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: forgotten}}, spec: {{nodeName: forgotten, \
         automountServiceAccountToken: false, containers: [{{name: c, image: i}}], \
         resourceClaims: [{{name: c, resourceClaimName: {}}}]}}}}",
        used.name
    );
    setup.plane().apply("create", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}");
    setup.plane().apply("create", &pod);
    for claim in [&used, &forgotten] {
        claims::delete(setup.plane(), claim);
    }
    setup.daemon().wait_for("releasing a claim that is gone");
    let deadline = std::time::Instant::now() + DEADLINE;
    while setup.machine.journal().len() > 1 {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(setup.machine.journal(), [format!("{}.json", used.uid)]);
    let told = || {
        setup.plane().kubectl(&[
            "get",
            "events",
            "-A",
            "-o",
            "jsonpath={.items[*].reason} {.items[*].message}",
        ])
    };
    while !told().contains("ClaimReleased") {
        assert!(std::time::Instant::now() < deadline, "{}", told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
