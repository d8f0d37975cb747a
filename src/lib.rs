//! claimfs: devices of a node for Kubernetes Dynamic Resource Allocation, and without a cluster.
//!
//! A map of the rooms, in the order in which a device passes through them:
//!
//! - [`config`]: the one YAML file, checked once.
//! - [`device`]: the vocabulary that every other room speaks.
//! - [`discover`]: looks at the machine, one file a kind of source.
//! - [`inventory`]: what is there now, as whole snapshots on a channel.
//! - [`publish`]: the inventory as `ResourceSlice` objects.
//! - [`kubelet`]: the kubelet's gRPC interfaces.
//! - [`cli`]: one file a subcommand.
//!
//! Arrows point one way: a room never calls back into the one that called it.

pub mod cli;
pub mod config;
pub mod device;
pub mod discover;
pub mod inventory;
pub mod kubelet;
pub mod publish;
