//! The demonstration, to its end, with a real container.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

use std::{fs, process::Command};

use tempfile::TempDir;

#[test]
#[ignore = "needs root and podman: hack/test runs it"]
fn every_step_does_what_it_says_and_nothing_is_left() {
    let temporary = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_claimfs"))
        .arg("demo")
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for expected in
        ["CLAIMFS_DEVICE_DEVICE_0=gpu-0", "seen in the container after", " reads, 0 errors", "CFS0111"]
    {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(temporary.path().to_str().unwrap()), "{mounts}");
}
