//! Device nodes under `/dev`, by patterns.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::sys::stat::{major, minor};

use super::{AttributeReason, Collected, Notice, Roots, label, sysfs};
use crate::{
    config::{Config, DevPattern, Source},
    device::{Device, Kind, Mode, Node, NodeClass, NodeId},
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

/// Every folder in which something can appear or vanish that makes a match: those on the way of the pattern,
/// `/dev` first, and those that the matches link to.
pub(super) fn folders(pattern: &DevPattern, roots: &Roots) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    walk(&roots.dev, pattern.parts(), &mut |path, rest| {
        let folder = if rest.is_empty() {
            // Nothing leads to a target whose folder is not there; when it comes, the link's own folder or
            // one above it has changed.
            target(path, roots).and_then(|target| target.parent().map(Path::to_owned))
        } else {
            Some(path.to_owned())
        };
        folders.extend(folder.filter(|folder| folder.is_dir()));
    });
    folders
}

/// Where a link leads, whether there is something or not.
fn target(path: &Path, roots: &Roots) -> Option<PathBuf> {
    let target = fs::read_link(path).ok()?;
    let below_dev = target.strip_prefix("/dev").map(|below| roots.dev.join(below));
    let target = below_dev.unwrap_or_else(|_| path.parent().unwrap_or(path).join(&target));
    // The kernel's view of our own process is nobody's device.
    let folder = target.parent()?.canonicalize().ok()?;
    (!folder.starts_with("/proc")).then(|| folder.join(target.file_name().unwrap_or_default()))
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
    match inspect(path, roots) {
        // A link to a node that is not there (any more) becomes a device when it is.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other,
    }
}

fn inspect(path: &Path, roots: &Roots) -> io::Result<Option<Node>> {
    // A folder on the way can be a link, too; only a link to the node itself is a name for it.
    let is_link = fs::symlink_metadata(path)?.file_type().is_symlink();
    let Some(resolved) = resolve(path, roots)? else {
        return Ok(None);
    };
    let metadata = fs::symlink_metadata(&resolved)?;
    let class = match metadata.file_type() {
        kind if kind.is_char_device() => NodeClass::Char,
        kind if kind.is_block_device() => NodeClass::Block,
        _ => return Ok(None),
    };
    let id = NodeId { class, major: number(major(metadata.rdev())), minor: number(minor(metadata.rdev())) };
    let link = is_link.then(|| on_host(path, &roots.dev));
    let mode = Mode::of_file(metadata.mode());
    Ok(Some(Node { path: on_host(&resolved, &roots.dev.canonicalize()?), link, id, mode }))
}

/// Follows links as the host does, also where we see its `/dev` elsewhere; none for what leads through
/// `/proc`, which is different for every process.
fn resolve(path: &Path, roots: &Roots) -> io::Result<Option<PathBuf>> {
    // As many as the kernel follows.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if !fs::symlink_metadata(&path)?.file_type().is_symlink() {
            let resolved = path.canonicalize()?;
            return Ok((!resolved.starts_with("/proc")).then_some(resolved));
        }
        match target(&path, roots) {
            Some(target) => path = target,
            None => return Ok(None),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
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
        access: Arc::clone(&source.access),
        condition: source.condition(),
        exposure: Arc::clone(&source.exposure),
    });
}

#[cfg(test)]
mod tests;
