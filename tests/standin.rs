//! The stand-in for the kubelet does on the sockets what the real one does.
//! (`cluster.rs` shows the real one doing it with the same plugin.)
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use claimfs::kubelet::api::dra::v1::Claim;
use support::{
    kubelet::{Behaviour, DraVersion, Event, Kubelet},
    plugin::RunningPlugin,
};
use tempfile::TempDir;

const DRIVER: &str = "standin.example.com";
const SOCKET: &str = "standin.example.com@reg.sock";

fn claim(uid: &str) -> Claim {
    Claim { namespace: String::from("default"), name: format!("claim-{uid}"), uid: uid.to_owned() }
}

#[tokio::test]
async fn a_socket_that_appears_is_registered_and_called() {
    let folder = TempDir::new().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), Behaviour::default());
    let mut plugin = RunningPlugin::start(folder.path(), DRIVER, SOCKET);
    let registered = kubelet.registered().await;
    assert_eq!(registered.info.name, DRIVER);
    assert!(plugin.verdict().await.plugin_registered);
    let prepared = registered.prepare(&[claim("1"), claim("2")]).await.unwrap();
    assert_eq!(prepared.into_keys().collect::<Vec<_>>(), ["1", "2"]);
    let unprepared = registered.unprepare(&[claim("1")]).await.unwrap();
    assert_eq!(unprepared.into_values().collect::<Vec<_>>(), [Ok(())]);
    // A plugin without the health service says so, and nothing else breaks.
    assert_eq!(registered.health().await.unwrap_err().code(), tonic::Code::Unimplemented);
    assert_eq!(registered.older_health().await.unwrap_err().code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn a_plugin_is_registered_again_when_either_side_restarts() {
    let folder = TempDir::new().unwrap();
    let mut plugin = RunningPlugin::start(folder.path(), DRIVER, SOCKET);
    for _ in 0..2 {
        let mut kubelet = Kubelet::start(folder.path(), Behaviour::default());
        kubelet.registered().await;
        assert!(plugin.verdict().await.plugin_registered);
        kubelet.stop().await;
    }
    let mut kubelet = Kubelet::start(folder.path(), Behaviour::default());
    kubelet.registered().await;
    drop(plugin);
    assert!(matches!(kubelet.event().await, Event::Deregistered { .. }));
    let _plugin = RunningPlugin::start(folder.path(), DRIVER, SOCKET);
    kubelet.registered().await;
}

#[tokio::test]
async fn a_refusal_is_told_and_tried_again() {
    let folder = TempDir::new().unwrap();
    let mut kubelet =
        Kubelet::start(folder.path(), Behaviour { refuse: Some("not today"), ..Behaviour::default() });
    let mut plugin = RunningPlugin::start(folder.path(), DRIVER, SOCKET);
    for _ in 0..2 {
        let verdict = plugin.verdict().await;
        assert_eq!((verdict.plugin_registered, verdict.error.as_str()), (false, "not today"));
        // Between bind and listen a socket refuses the dial, which is a failed attempt, too.
        while !matches!(kubelet.event().await, Event::Failed { reason, .. } if reason == "not today") {}
    }
}

#[tokio::test]
async fn a_kubelet_that_speaks_no_common_version_refuses() {
    let folder = TempDir::new().unwrap();
    let older = Behaviour { versions: &[DraVersion::V1beta1], refuse: None };
    let _kubelet = Kubelet::start(folder.path(), older);
    let mut plugin = RunningPlugin::start(folder.path(), DRIVER, SOCKET);
    let verdict = plugin.verdict().await;
    assert!(verdict.error.contains("none of the versions is supported"), "{}", verdict.error);
}

#[tokio::test]
async fn a_socket_name_that_makes_no_authority_is_never_reached() {
    let folder = TempDir::new().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), Behaviour::default());
    let _plugin = RunningPlugin::start(folder.path(), DRIVER, "standin.example.com-reg.sock");
    match kubelet.event().await {
        Event::Failed { reason, .. } => assert!(reason.starts_with("PROTOCOL_ERROR"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn hidden_files_and_plain_files_are_no_plugins() {
    let folder = TempDir::new().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), Behaviour::default());
    std::fs::write(folder.path().join("plugins_registry/file"), "").unwrap();
    let _hidden = RunningPlugin::start(folder.path(), "hidden.example.com", ".hidden@reg.sock");
    let _plugin = RunningPlugin::start(folder.path(), DRIVER, SOCKET);
    // Events come in order: the first one is about the last that appeared.
    assert_eq!(kubelet.registered().await.info.name, DRIVER);
}
