//! How others see what the daemon does: logs and probes. Nothing here decides anything.

mod http;
mod log;

pub use self::{
    http::{Probes, Readiness},
    log::{LogError, log_to_stderr},
};
