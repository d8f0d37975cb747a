//! Logs on standard error: for people on a terminal, JSON otherwise.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, filter::ParseError};

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
#[error("log filter {filter:?}: {source}; it is like info or claimfs=debug,kube=warn")]
pub struct LogError {
    filter: String,
    source: ParseError,
}

/// Logs what the filter lets through.
pub fn log_to_stderr(filter: &str) -> Result<(), LogError> {
    let env_filter =
        EnvFilter::try_new(filter).map_err(|source| LogError { filter: filter.to_owned(), source })?;
    // A log that cannot be written must not end what it is about.
    let log = tracing_subscriber::fmt()
        .with_env_filter(env_filter)
        .log_internal_errors(false)
        .with_writer(io::stderr);
    if io::stderr().is_terminal() {
        log.with_target(false).init();
    } else {
        log.json().flatten_event(true).with_current_span(true).with_span_list(false).init();
    }
    Ok(())
}
