//! claimfs: devices of a node for Kubernetes Dynamic Resource Allocation.
//!
//! A map of the modules, in the order in which a device passes through them:
//!
//! - [`config`]: the one YAML file, checked once.
//! - [`device`]: the vocabulary that every other module speaks.
//! - [`discover`]: looks at the machine, one file a kind of source.
//! - [`inventory`]: what is there now, as whole snapshots on a channel.
//! - [`publish`]: the inventory as `ResourceSlice` objects.
//! - [`cluster`]: the way to a cluster's API server.
//! - [`api_version`]: which version of the API a cluster speaks.
//! - [`allocate`]: which devices a claim would get, as the scheduler decides it.
//! - [`objects`]: claims, classes and slices from files.
//! - [`question`]: what the allocator is asked.
//! - [`explain`]: why a claim gets its devices, or none.
//! - [`claims`]: where claims come from, and what one of them gives to this node.
//! - [`prepare`]: the life of a claim on this node, and its journal.
//! - [`metadata`]: the documents that containers read about their devices.
//! - [`fs`]: the live file system that they are read from.
//! - [`hold`]: the small process that mounts it and keeps it alive.
//! - [`exhibit`]: what is prepared, shown.
//! - [`reader`]: reads device metadata as a workload does.
//! - [`cdi`]: how a device reaches a container.
//! - [`cel`]: the expressions that choose devices.
//! - [`kubelet`]: the kubelet's gRPC interfaces.
//! - [`observe`]: logs, probes.
//! - [`runtime`]: the programs that make containers.
//! - [`check`]: whether a machine has what all of these need.
//! - [`standalone`]: claims without a cluster.
//! - [`node`]: the daemon that all of these make up.
//! - [`demo`]: all of it, shown.
//! - [`cli`]: one file a subcommand.
//!
//! Arrows point one way: a module never calls back into the one that called it.

pub mod allocate;
pub mod api_version;
pub mod cdi;
pub mod cel;
pub mod check;
pub mod claims;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod device;
pub mod discover;
pub mod exhibit;
pub mod explain;
pub mod fs;
pub mod hold;
pub mod inventory;
pub mod kubelet;
mod lock;
mod memory;
pub mod metadata;
pub mod node;
pub mod objects;
pub mod observe;
pub mod prepare;
mod privilege;
mod program;
pub mod publish;
pub mod question;
pub mod reader;
#[cfg(test)]
mod recorded;
pub mod runtime;
pub mod standalone;
