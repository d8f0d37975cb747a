//! Claims without a cluster: this machine allocates them by itself, and a folder stands for the API server.
//!
//! The core is pure: [`manifest`] makes a claim of what somebody has written, [`decide`] says which devices it
//! gets, [`queue`] who is next, and [`command`] what a runtime is told. [`books`] keep who has what; [`desk`] is
//! where it is asked for, [`service`] the socket before it, [`client`] the way to that socket, [`setup`] what a daemon
//! was started with, [`runner`] runs what uses a claim, and [`presence`] is how it is known who still does.

pub mod api;
pub mod books;
pub mod classes;
pub mod client;
pub mod command;
pub mod decide;
pub mod desk;
pub mod kernel;
pub mod manifest;
pub mod misfit;
pub mod presence;
pub mod queue;
pub mod refusal;
pub mod report;
pub mod runner;
pub mod service;
pub mod setup;
pub(crate) mod users;
