//! What there is, for people and programs.

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::{Deserialize, Serialize};

/// A node without a cluster, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Which claimfs serves.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// The driver.
    pub driver: String,
    /// The node.
    pub node: String,
    /// How containers read about their devices: `fuse`, `files` or `off`.
    pub metadata: String,
    /// All devices.
    pub devices: Vec<DeviceReport>,
    /// All claims.
    pub claims: Vec<ClaimReport>,
    /// The claims that wait for devices, in order.
    pub waiting: Vec<WaitingReport>,
}

/// A claim that waits for devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingReport {
    /// Its namespace and name.
    pub name: String,
    /// The run that it is for; there is none where it is to stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunReport>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// The part of the configuration that it comes from.
    pub source: String,
    /// What a container gets in its `/dev`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether it works.
    pub health: String,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What keeps claims away that do not tolerate it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// How many claims can have it at the same time.
    pub most_claims: u32,
    /// The claims that have it.
    pub owners: Vec<String>,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReport {
    /// Its namespace and name.
    pub name: String,
    /// Whether it goes with the last run that uses it.
    pub goes_with_its_runs: bool,
    /// The runs that use it.
    pub runs: Vec<RunReport>,
    /// What runtimes are told, once it is prepared.
    pub devices: Vec<GrantedDevice>,
    /// All of it.
    pub object: ResourceClaim,
}

/// A run that uses a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// Its process, and what tells it from others of that number.
    pub name: String,
    /// Who uses the claim.
    pub by: UsedBy,
    /// What it runs, or the beginning of it.
    #[serde(default)]
    pub command: String,
}

/// Who uses a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UsedBy {
    /// The run, or what it has started.
    Run,
    /// A container of it, which has been left alone.
    Container,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedDevice {
    /// The request that it is for.
    pub request: String,
    /// The device.
    pub device: String,
    /// What runtimes call it.
    pub cdi_device_id: String,
}
