//! What the kernel can do, by its version.

use std::{fs, path::Path};

use nix::sys::utsname::uname;

/// Where the kernel's settings of FUSE are.
const SETTINGS: &str = "/proc/sys/fs/fuse";

/// Whether the kernel that runs is so new.
#[must_use]
pub fn is_at_least(major: u32, minor: u32) -> bool {
    uname().is_ok_and(|name| version(&name.release().to_string_lossy()) >= Some((major, minor)))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// After how many seconds without an answer the kernel ends a file system, where it does.
#[must_use]
pub fn request_timeout() -> Option<u32> {
    request_timeout_in(Path::new(SETTINGS))
}

/// What is the default for all, and what none may exceed; zero is none.
fn request_timeout_in(settings: &Path) -> Option<u32> {
    let seconds = |name: &str| fs::read_to_string(settings.join(name)).ok()?.trim().parse().ok();
    let all = ["default_request_timeout", "max_request_timeout"].into_iter().filter_map(seconds);
    all.filter(|seconds| *seconds > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        for (release, expected) in [
            ("6.18.5", Some((6, 18))),
            ("5.14.0-427.el9.x86_64", Some((5, 14))),
            ("6.8-rc1", Some((6, 8))),
            ("6", None),
            ("", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(is_at_least(3, 0) && !is_at_least(99, 0));
    }
    #[test]
    fn the_shortest_timeout_counts_and_zero_is_none() {
        let settings = tempfile::TempDir::new().unwrap();
        assert_eq!(request_timeout_in(settings.path()), None);
        for (default, most, expected) in
            [("0\n", "0\n", None), ("0\n", "60\n", Some(60)), ("20\n", "60\n", Some(20))]
        {
            fs::write(settings.path().join("default_request_timeout"), default).unwrap();
            fs::write(settings.path().join("max_request_timeout"), most).unwrap();
            assert_eq!(request_timeout_in(settings.path()), expected);
        }
    }
}
