//! Claims without a cluster: this machine allocates them by itself, and a folder stands for the API server.
//!
//! The core is pure: [`manifest`] makes a claim of what somebody has written, [`decide`] says which devices it
//! gets, [`queue`] who is next.

pub mod classes;
pub mod decide;
pub mod manifest;
pub mod misfit;
pub mod queue;
