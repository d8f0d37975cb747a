//! Compiles `proto/` without protoc.

use std::{env, path::Path};

/// Proto packages of different files share names (`v1`), so each file gets a folder of its own.
const FILES: [&str; 6] =
    ["registration_v1", "dra_v1", "dra_v1beta1", "dra_health_v1", "dra_health_v1alpha1", "control_v1"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    for file in FILES {
        let folder = Path::new(&out).join(file);
        std::fs::create_dir_all(&folder)?;
        let descriptors = protox::compile([format!("{file}.proto")], ["proto"])?;
        tonic_prost_build::configure().out_dir(folder).compile_fds(descriptors)?;
    }
    Ok(())
}
