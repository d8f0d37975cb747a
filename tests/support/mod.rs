//! What the integration tests stand on. Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod claims;
pub mod cluster;
pub mod driver;
pub mod kubelet;
pub mod plugin;
pub mod setup;

use std::time::Duration;

/// Far beyond what anything takes: a slow machine makes a test slow, not red.
pub const DEADLINE: Duration = Duration::from_secs(60);
