//! What `hack/install` puts below a folder.

use std::{env, path::Path, process::Command};

/// What cargo tells tests, and crates look at when they are built: with it everything would be built twice.
const OF_CARGO: [&str; 4] = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "OUT_DIR"];

pub fn install(root: &Path, arguments: &[&str]) {
    let mut script = Command::new("hack/install");
    script.args(arguments).env("DESTDIR", root).current_dir(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in env::vars().filter(|(name, _)| OF_CARGO.iter().any(|prefix| name.starts_with(prefix))) {
        script.env_remove(name);
    }
    assert!(script.status().unwrap().success());
}
