//! An installation for one machine, into a folder.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use support::{driver::names, installed::install};
use tempfile::TempDir;

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = names(folder).into_iter().map(|name| folder.join(name));
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
#[ignore = "builds the release: hack/test runs it"]
fn what_is_installed_works_and_can_be_removed() {
    let root = TempDir::new().unwrap();
    install(root.path(), &[]);
    let program = root.path().join("usr/local/bin/claimfs");
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert_eq!(
        String::from_utf8(version.stdout).unwrap(),
        format!("claimfs {}\n", env!("CARGO_PKG_VERSION"))
    );
    for file in [
        "etc/claimfs/config.yaml",
        "etc/systemd/system/claimfs.service",
        "etc/systemd/system/claimfs-hold.service",
        "usr/local/share/man/man1/claimfs-node.1",
        "usr/local/share/bash-completion/completions/claimfs",
        "usr/local/share/zsh/site-functions/_claimfs",
        "usr/local/share/fish/vendor_completions.d/claimfs.fish",
    ] {
        assert!(root.path().join(file).metadata().unwrap().len() > 0, "{file}");
    }
    // What systemd itself would say about the units; those that they depend on are the machine's.
    let has_systemd = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if let Some(system) = fs::canonicalize("/usr/lib/systemd/system").ok().filter(|_| has_systemd) {
        let lib = root.path().join("usr/lib/systemd");
        fs::create_dir_all(&lib).unwrap();
        let copied = Command::new("cp").arg("-r").arg(system).arg(&lib).status().unwrap();
        assert!(copied.success());
        let units = ["claimfs.service", "claimfs-hold.service"];
        let mut verify = Command::new("systemd-analyze");
        verify.arg("verify").arg("--man=no").arg(format!("--root={}", root.path().display())).args(units);
        let said = verify.output().unwrap();
        let complaints = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && !complaints.contains("claimfs"), "{complaints}");
        fs::remove_dir_all(root.path().join("usr/lib")).unwrap();
    }
    install(root.path(), &["--remove"]);
    assert_eq!(files(root.path()), [root.path().join("etc/claimfs/config.yaml")]);
}
