//! The document: its model, and the version that it needs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::device::DriverName;

/// The class of all our devices: `<driver>/device`.
const CLASS: &str = "device";

/// The full name of a device in CDI, `vendor/class=name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(String);

impl DeviceId {
    /// The name of a device of a driver. `name` is made of a claim's UID and names of ours, which CDI takes.
    #[must_use]
    pub fn new(driver: &DriverName, name: &str) -> Self {
        Self(format!("{driver}/{CLASS}={name}"))
    }

    /// The full name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A document with the devices of one claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
}

/// One device of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The part behind the `=`.
    pub name: String,
    /// What a container gets with it; never empty.
    pub container_edits: ContainerEdits,
}

/// What a container gets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of the CDI specification")]
pub struct ContainerEdits {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    #[serde(rename = "additionalGids", default, skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A node in the container's `/dev`. Type and numbers are given, so that the runtime need not look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of the CDI specification")]
pub struct DeviceNode {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub major: u32,
    pub minor: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    pub permissions: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A bind mount; without `bind` among its options runc takes it for a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of the CDI specification")]
pub struct Mount {
    pub host_path: String,
    pub container_path: String,
    pub options: Vec<String>,
}

/// A program that the runtime calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of the CDI specification")]
pub struct Hook {
    pub hook_name: crate::device::HookName,
    pub path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

impl Spec {
    /// The document of a driver's devices.
    #[must_use]
    pub fn new(driver: &DriverName, devices: Vec<Device>) -> Self {
        let cdi_version = minimum_version(&devices).to_owned();
        Self { cdi_version, kind: format!("{driver}/{CLASS}"), devices }
    }

    /// The full names of its devices, in order.
    pub fn ids(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.iter().map(|device| DeviceId(format!("{}={}", self.kind, device.name)))
    }
}

/// The lowest version that has everything that is used.
fn minimum_version(devices: &[Device]) -> &'static str {
    let edits = || devices.iter().map(|device| &device.container_edits);
    if edits().any(|edits| !edits.additional_gids.is_empty()) {
        "0.7.0"
    } else if edits().flat_map(|edits| &edits.device_nodes).any(|node| node.host_path.is_some())
        || devices.iter().any(|device| device.name.starts_with(|first: char| first.is_ascii_digit()))
    {
        "0.5.0"
    } else {
        "0.3.0"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, container_edits: ContainerEdits) -> Spec {
        Spec::new(&DriverName::default(), vec![Device { name: name.to_owned(), container_edits }])
    }

    #[test]
    fn a_spec_states_the_lowest_version_that_it_needs() {
        let env = ContainerEdits { env: vec![String::from("A=b")], ..ContainerEdits::default() };
        assert_eq!(spec("abc", env.clone()).cdi_version, "0.3.0");
        assert_eq!(spec("0abc", env.clone()).cdi_version, "0.5.0");
        let gids = ContainerEdits { additional_gids: vec![5], ..env };
        assert_eq!(spec("abc", gids).cdi_version, "0.7.0");
    }

    #[test]
    fn ids_are_qualified() {
        let spec = spec("u-gpu-0", ContainerEdits::default());
        assert_eq!(spec.ids().map(|id| id.to_string()).collect::<Vec<_>>(), ["claimfs.dev/device=u-gpu-0"]);
        assert_eq!(DeviceId::new(&DriverName::default(), "u-gpu-0"), spec.ids().next().unwrap());
    }
}
