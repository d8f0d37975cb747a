//! What the integration tests stand on. Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod alone;
pub mod claims;
pub mod cluster;
pub mod driver;
pub mod engines;
pub mod installed;
pub mod keeper;
pub mod kubelet;
pub mod metadata;
pub mod plugin;
pub mod podman;
pub mod setup;

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

/// Far beyond what anything takes: a slow machine makes a test slow, not red.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A link in a `/dev` of ours to a node of the real one. Relative, because an absolute target would be looked for in
/// ours; so no test needs root to have device nodes.
pub fn link_to_node(dev: &Path, path: &str, node: &str) {
    let path = dev.join(path);
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    let up = folder.canonicalize().unwrap().components().count() - 1;
    symlink(format!("{}dev/{node}", "../".repeat(up)), path).unwrap();
}
