//! The kubelet's gRPC interfaces to plugins.

pub mod api;
