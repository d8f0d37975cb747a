//! How others see what the daemon does: logs, probes and events. Nothing here decides anything.

mod events;
mod http;
mod log;

pub use self::{
    events::Events,
    http::{Probes, Readiness},
    log::{LogError, log_to_stderr},
};
