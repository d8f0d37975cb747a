//! Device names: DNS labels that follow from what a device is, never from what else is there.
//!
//! A name is a function of the device's own path. So a device keeps its name when others come and go,
//! when the kernel lists them in another order, and after a reboot. Where a path is not a DNS label as
//! it stands, what was lost is kept as six digits of its hash: `ttyS0` and `ttys0` can both exist (the
//! second is an old pseudo-terminal) and must never be mistaken for each other.

use std::{ffi::OsStr, fmt::Write as _, os::unix::ffi::OsStrExt, path::Path};

use sha2::{Digest, Sha256};

use crate::{
    config::{Config, Discovery},
    device::{DeviceName, SourceName},
};

/// Digits of the hash, and the `-` before them.
const HASH: usize = 7;
/// The longest DNS label.
const MAX: usize = 63;

/// The name of a simulated device.
pub(super) fn simulated(source: &SourceName, index: u32) -> DeviceName {
    // Invariant: a source's name is a label of at most 40 bytes, an index has at most 10.
    #[expect(clippy::expect_used)]
    format!("{source}-{index}").parse().expect("a label and a number are a label")
}

/// The name of a device node by its path below `/dev`.
pub(super) fn dev(config: &Config, below_dev: &Path) -> DeviceName {
    match below_dev.to_str().map(str::parse::<DeviceName>) {
        Some(Ok(name)) if !is_simulated(config, &name) && !looks_hashed(&name) => name,
        _ => hashed(below_dev),
    }
}

/// Whether a simulated source of the configuration can make this name.
fn is_simulated(config: &Config, name: &DeviceName) -> bool {
    config.sources.iter().any(|source| {
        matches!(source.discovery, Discovery::Simulated { .. })
            && name
                .as_str()
                .strip_prefix(source.name.as_str())
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Whether a name could be that of another path: `ttys0-45b831` is how `ttyS0` is called.
fn looks_hashed(name: &DeviceName) -> bool {
    let digits = name.as_str().rsplit_once('-').map_or("", |(_, digits)| digits);
    digits.len() == HASH - 1 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A readable part and a hash of the whole path.
fn hashed(below_dev: &Path) -> DeviceName {
    let mut name = readable(below_dev);
    let hash = Sha256::digest(below_dev.as_os_str().as_bytes());
    for byte in &hash[..HASH / 2] {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    // Invariant: letters, digits and inner dashes, at most 63 bytes, ending in a digit of the hash.
    #[expect(clippy::expect_used)]
    name.parse().expect("a readable part and a hash are a label")
}

/// The path in the letters of a label, ending in `-`; empty when none is left. Of a link in a `by-…`
/// folder the file name says enough.
fn readable(below_dev: &Path) -> String {
    let in_by_folder = below_dev
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|folder| folder.as_bytes().starts_with(b"by-"));
    let text: &OsStr = match below_dev.file_name() {
        Some(file) if in_by_folder => file,
        _ => below_dev.as_os_str(),
    };
    let mut name = String::with_capacity(MAX);
    for byte in text.as_bytes() {
        match byte.to_ascii_lowercase() {
            byte @ (b'a'..=b'z' | b'0'..=b'9') => name.push(char::from(byte)),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(MAX - HASH);
    let end = name.trim_end_matches('-').len();
    name.truncate(end);
    if name.is_empty() { String::from("device-") } else { name + "-" }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

    use proptest::{prelude::*, test_runner::RngSeed};

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("test"), text).unwrap()
    }

    fn name(path: &str) -> String {
        dev(&config("sources: []"), Path::new(path)).to_string()
    }

    #[test]
    fn a_label_is_kept_and_all_else_is_told_apart() {
        assert_eq!(name("kvm"), "kvm");
        assert_eq!(name("video0"), "video0");
        assert_eq!(name("ttys0"), "ttys0");
        assert_eq!(name("ttyS0"), "ttys0-45b831");
        assert_eq!(name("ttys0-45b831"), "ttys0-45b831-49a699");
        assert_eq!(name("net/tun"), "net-tun-097969");
        assert_eq!(name("serial/by-id/usb-FTDI_SN42-if00-port0"), "usb-ftdi-sn42-if00-port0-b690e6");
        assert!(name("---").starts_with("device-"));
        assert_eq!(name(&"x".repeat(63)), "x".repeat(63));
        assert_eq!(name(&"x".repeat(64)).len(), 63);
    }

    #[test]
    fn a_node_never_takes_the_name_of_a_simulated_device() {
        let config = config("sources: [{name: gpu, simulated: {count: 2}}]");
        for path in ["gpu-0", "gpu-7"] {
            let name = dev(&config, Path::new(path));
            assert!(name.as_str().starts_with(path) && name.as_str() != path, "{name}");
        }
        assert_eq!(dev(&config, Path::new("gpu-0x")).as_str(), "gpu-0x");
        assert_eq!(simulated(&config.sources[0].name, 1).as_str(), "gpu-1");
    }

    /// Any file name that a file system can hold.
    fn part() -> impl Strategy<Value = OsString> {
        let alike = prop::sample::select(vec![b'a', b'A', b'-', b'_', b'.', b' ', b'0', 0xff]);
        let any_byte = any::<u8>().prop_filter("not in a file name", |byte| !matches!(byte, 0 | b'/'));
        prop_oneof![prop::collection::vec(alike, 1..8), prop::collection::vec(any_byte, 1..255)]
            .prop_filter("not a file name", |bytes| !matches!(bytes.as_slice(), b"." | b".."))
            .prop_map(OsString::from_vec)
    }

    fn path() -> impl Strategy<Value = PathBuf> {
        prop::collection::vec(part(), 1..4).prop_map(|parts| parts.iter().collect())
    }

    proptest! {
        // A fixed seed: a rare meeting of two hashes is no news.
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        // Six digits tell apart what looks alike: two of a set meet once in 16 million likenesses.
        #[test]
        fn any_set_of_paths_gives_labels_that_are_unique(paths in prop::collection::btree_set(path(), 0..40)) {
            let config = config("sources: [{name: a, simulated: {count: 2}}]");
            let names: BTreeSet<DeviceName> = paths.iter().map(|path| dev(&config, path)).collect();
            prop_assert_eq!(names.len(), paths.len());
        }

        #[test]
        fn any_source_and_index_give_a_label(source in "[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", index in any::<u32>()) {
            let source: SourceName = source.parse().unwrap();
            prop_assert!(simulated(&source, index).as_str().len() <= MAX);
        }
    }
}
