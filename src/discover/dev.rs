//! Device nodes under `/dev`, by patterns.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use nix::sys::stat::{major, minor};

use super::{AttributeReason, Collected, Notice, Roots, label, sysfs};
use crate::{
    config::{Config, DevPattern, Source},
    device::{Device, Kind, Node, NodeClass, NodeId},
};

/// Adds the nodes that the patterns find. Of two paths to one node the earlier pattern wins, then the
/// first in the alphabet.
pub(super) fn scan(
    config: &Config,
    source: &Source,
    patterns: &[DevPattern],
    roots: &Roots,
    found: &mut Collected,
) {
    for pattern in patterns {
        let (matches, failed) = matches(pattern, roots);
        for (path, error) in failed {
            found.notice(Notice::unreadable(source, path, &error));
        }
        for path in matches {
            match node(&path, roots) {
                Ok(Some(node)) => add(config, source, node, roots, found),
                Ok(None) => {}
                Err(error) => found.notice(Notice::unreadable(source, path, &error)),
            }
        }
    }
}

/// Every folder on the way of a pattern that exists, `/dev` first: an entry that appears in one of them
/// can make a match.
pub(super) fn folders(pattern: &DevPattern, roots: &Roots) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let parts = pattern.parts();
    // What the last part matches is a node, not a folder.
    walk(&roots.dev, &parts[..parts.len() - 1], &mut |path, _| {
        if path.is_dir() {
            folders.insert(path.to_owned());
        }
    });
    folders
}

type Failures = Vec<(PathBuf, io::Error)>;

/// The paths that match a whole pattern, sorted, and the folders that could not be read.
fn matches(pattern: &DevPattern, roots: &Roots) -> (BTreeSet<PathBuf>, Failures) {
    let mut matches = BTreeSet::new();
    let failed = walk(&roots.dev, pattern.parts(), &mut |path, rest| {
        if rest.is_empty() {
            matches.insert(path.to_owned());
        }
    });
    (matches, failed)
}

/// Calls `visit` with every path that matches the first parts, and with the parts that are left.
fn walk(path: &Path, parts: &[glob::Pattern], visit: &mut dyn FnMut(&Path, &[glob::Pattern])) -> Failures {
    visit(path, parts);
    let Some((part, rest)) = parts.split_first() else {
        return Vec::new();
    };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        // It is not there now, or not a folder: nothing matches.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Vec::new();
        }
        Err(error) => return vec![(path.to_owned(), error)],
    };
    let mut failed = Vec::new();
    let mut below = Vec::new();
    for entry in entries {
        match entry {
            // A name that is not UTF-8 is matched by what can be read of it.
            Ok(entry) if part.matches(&entry.file_name().to_string_lossy()) => below.push(entry.path()),
            Ok(_) => {}
            Err(error) => failed.push((path.to_owned(), error)),
        }
    }
    below.sort();
    failed.extend(below.iter().flat_map(|path| walk(path, rest, visit)));
    failed
}

/// The device node behind a path; none when it is something else, or gone.
fn node(path: &Path, roots: &Roots) -> io::Result<Option<Node>> {
    let resolved = match path.canonicalize() {
        Ok(resolved) => resolved,
        // A link to a node that is not there (any more) becomes a device when it is.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = fs::symlink_metadata(&resolved)?;
    let class = match metadata.file_type() {
        kind if kind.is_char_device() => NodeClass::Char,
        kind if kind.is_block_device() => NodeClass::Block,
        _ => return Ok(None),
    };
    let id = NodeId { class, major: number(major(metadata.rdev())), minor: number(minor(metadata.rdev())) };
    // A folder on the way can be a link, too; only a link to the node itself is a name for it.
    let is_link = fs::symlink_metadata(path)?.file_type().is_symlink();
    let link = is_link.then(|| on_host(path, &roots.dev));
    let real_root = roots.dev.canonicalize()?;
    Ok(Some(Node { path: on_host(&resolved, &real_root), link, id }))
}

/// The path as everything else on the machine knows it, wherever we see its `/dev`.
fn on_host(path: &Path, root: &Path) -> PathBuf {
    path.strip_prefix(root).map_or_else(|_| path.to_owned(), |below| Path::new("/dev").join(below))
}

/// Linux has 12 bits of major and 20 bits of minor numbers.
fn number(part: u64) -> u32 {
    u32::try_from(part).unwrap_or(u32::MAX)
}

fn add(config: &Config, source: &Source, node: Node, roots: &Roots, found: &mut Collected) {
    if let Some(owner) = found.owner(node.id) {
        // Within a source that is how links and nodes are meant to be listed together.
        if owner.source != source.name {
            let (owner, owner_source) = (owner.name.clone(), owner.source.clone());
            let path = node.stable_path().to_owned();
            found.notice(Notice::Taken { source_name: source.name.clone(), path, owner, owner_source });
        }
        return;
    }
    let stable = node.stable_path();
    let name = label::dev(config, stable.strip_prefix("/dev").unwrap_or(stable));
    let mut properties = source.properties.clone();
    for (attribute, fact) in sysfs::facts(&roots.sys, &node) {
        // What the configuration says goes before what is found.
        if properties.attributes().contains_key(&attribute) {
            continue;
        }
        let outcome = fact
            .map_err(AttributeReason::from)
            .and_then(|value| Ok(properties.set_attribute(attribute.clone(), value)?));
        if let Err(reason) = outcome {
            found.notice(Notice::Attribute { device: name.clone(), attribute, reason });
        }
    }
    found.add(Device {
        name,
        source: source.name.clone(),
        kind: Kind::Dev,
        sharing: source.sharing,
        properties,
        node: Some(node),
    });
}

#[cfg(test)]
mod tests;
