//! What only the kernel knows: numbers that nobody else has, and the time since the machine was started.

use std::{fs, io};

use nix::time::{ClockId, clock_gettime};

use super::queue::Ticket;

/// A UUID of its own.
pub(super) fn uuid() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/uuid").map(|text| text.trim().to_owned())
}

/// A place behind everybody who has one.
pub fn ticket() -> io::Result<Ticket> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    let nanoseconds = now.tv_sec().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec());
    Ok(Ticket { since: nanoseconds.unsigned_abs(), process: std::process::id() })
}
