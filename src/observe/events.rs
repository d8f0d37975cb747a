//! Events in the cluster, for what an operator should know.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tracing::warn;

use crate::{
    claims::ClaimRef,
    device::{DriverName, NodeName},
    exhibit::Mode,
};

/// Tells of this node.
pub struct Events {
    recorder: Recorder,
    node: ObjectReference,
}

impl Events {
    /// Speaks for a driver on a node.
    #[must_use]
    pub fn new(client: Client, driver: &DriverName, node: &NodeName) -> Self {
        let reporter = Reporter { controller: driver.to_string(), instance: Some(node.to_string()) };
        let node = ObjectReference {
            api_version: Some(String::from("v1")),
            kind: Some(String::from("Node")),
            name: Some(node.to_string()),
            ..ObjectReference::default()
        };
        Self { recorder: Recorder::new(client, reporter), node }
    }

    /// A claim was released that the kubelet never asked to release.
    pub async fn released(&self, claim: &ClaimRef) {
        let note = format!(
            "Released the devices of claim {claim} ({}): it is gone, and nothing on this node names it",
            claim.uid
        );
        self.publish(EventType::Warning, "ClaimReleased", "Release", note).await;
    }

    /// This is how containers read about their devices.
    pub async fn metadata(&self, mode: Mode) {
        let note = match mode {
            Mode::Fuse => "Containers read about their devices from the live file system",
            Mode::Files => "Containers read about their devices from plain files",
        };
        self.publish(EventType::Normal, "DeviceMetadata", "Serve", note.to_owned()).await;
    }

    async fn publish(&self, type_: EventType, reason: &str, action: &str, note: String) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &self.node).await {
            warn!(%error, "cannot publish an event");
        }
    }
}
