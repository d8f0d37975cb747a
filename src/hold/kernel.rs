//! What the kernel can do, by its version.

use nix::sys::utsname::uname;

/// Whether the kernel that runs is so new.
#[must_use]
pub fn is_at_least(major: u32, minor: u32) -> bool {
    uname().is_ok_and(|name| version(&name.release().to_string_lossy()) >= Some((major, minor)))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
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
}
