//! Claims without a cluster: this machine allocates them by itself, and a folder stands for the API server.
//!
//! The core is pure: [`manifest`] makes a claim of what somebody has written, [`decide`] says which devices it
//! gets, [`queue`] who is next. [`books`] keep who has what; [`desk`] is where it is asked for, [`service`] the
//! socket before it, [`client`] the way to that socket, and [`presence`] how it is known who still uses a claim.

pub mod api;
pub mod books;
pub mod classes;
pub mod client;
pub mod decide;
pub mod desk;
pub mod kernel;
pub mod manifest;
pub mod misfit;
pub mod presence;
pub mod queue;
pub mod refusal;
pub mod report;
pub mod service;
