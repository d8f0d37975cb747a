//! Daemons of runtimes: they go on with what a client has asked for that was killed meanwhile.

use std::{fs, path::Path, time::Duration};

/// What those are called that are nothing else.
const NAMES: [&str; 2] = ["dockerd", "containerd"];
/// What is one if it is told this.
const PODMAN: (&str, &str) = ("podman", "service");
/// The process that is always there.
const FIRST: &str = "1";
/// How long one may take to start a container, on a machine that has much to do.
const SLOWEST: Duration = Duration::from_secs(5);

/// How long something may still come that nobody waits for any more.
pub(super) fn settle_within() -> Duration {
    if are_running(Path::new("/proc")) { SLOWEST } else { Duration::ZERO }
}

fn are_running(processes: &Path) -> bool {
    // Where others are hidden from us, nobody knows.
    let is_hidden = !processes.join(FIRST).join("comm").exists();
    let mut all = fs::read_dir(processes).into_iter().flatten().flatten();
    is_hidden || all.any(|process| is_engine(&process.path()))
}

/// Most of what is asked about is no process, and some end while we ask.
fn is_engine(process: &Path) -> bool {
    let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
    let name = read("comm");
    let (podman, service) = PODMAN;
    match name.trim() {
        name if name == podman => read("cmdline").split('\0').any(|word| word == service),
        name => NAMES.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_known_by_what_they_are_called_or_told() {
        let folder = tempfile::TempDir::new().unwrap();
        assert!(are_running(folder.path()), "nobody can be seen");
        for (name, words, expected) in [
            ("podman", "podman\0run\0image\0", false),
            ("containerd-shim", "containerd-shim\0", false),
            ("dockerd", "dockerd\0", true),
            ("podman", "/usr/bin/podman\0system\0service\0", true),
        ] {
            let process = folder.path().join(FIRST);
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
            fs::write(process.join("cmdline"), words).unwrap();
            assert_eq!(are_running(folder.path()), expected, "{words:?}");
        }
    }
}
