//! Looks at the machine: one file a kind of source.
//!
//! [`scan`] answers what is there now. It only reads, it never fails as a whole, and what it had to
//! leave out it says as a [`Notice`]. [`folders`] tells where a change can make the answer differ.

mod dev;
mod label;
mod reports;
mod simulated;
mod sysfs;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
};

use crate::{
    config::{Config, Discovery, Source},
    device::{AttributeName, Device, DeviceName, NodeId, PropertiesError, SourceName, TextError},
};

/// Where the machine's own folders are; tests and containers put them elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// In place of `/dev`.
    pub dev: PathBuf,
    /// In place of `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { dev: "/dev".into(), sys: "/sys".into() }
    }
}

/// Why a look at the machine would be in vain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no `/dev` to look at.
    #[error("{} is not a folder, and the configuration looks for devices in it", .dev.display())]
    NoDev {
        /// What should be it.
        dev: PathBuf,
    },
}

/// What a look at the machine found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// By name.
    pub devices: BTreeMap<DeviceName, Device>,
    /// What was left out, in the order in which it was met.
    pub notices: Vec<Notice>,
}

/// Something that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// Two sources find one node: a device has one name, so that it has one owner.
    #[error("source {source_name}: {} is device {owner} of source {owner_source} already; its first source keeps it", .path.display())]
    Taken {
        /// The source that comes later in the file.
        source_name: SourceName,
        /// What it found.
        path: PathBuf,
        /// The device that has the node.
        owner: DeviceName,
        /// The source of that device.
        owner_source: SourceName,
    },
    /// Two devices would have the same name.
    #[error(
        "source {source_name}: a device is left out, because its name {name} is that of a device of source {owner_source}; let a pattern find only one of them"
    )]
    SameName {
        /// The source that comes later in the file.
        source_name: SourceName,
        /// The name.
        name: DeviceName,
        /// The source of the device that keeps it.
        owner_source: SourceName,
    },
    /// A fact about a device cannot be an attribute.
    #[error("device {device}: attribute {attribute} is left out: {reason}")]
    Attribute {
        /// The device, which is published without it.
        device: DeviceName,
        /// The attribute.
        attribute: AttributeName,
        /// Why.
        reason: AttributeReason,
    },
    /// What is reported about a device cannot be used.
    #[error("device {device}: the report {} is left out: {reason}", .path.display())]
    Report {
        /// The device, whose health is unknown.
        device: DeviceName,
        /// The report.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A path cannot be looked at.
    #[error("source {source_name}: {} is left out: {reason}", .path.display())]
    Unreadable {
        /// The source.
        source_name: SourceName,
        /// The path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Why a fact cannot be an attribute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeReason {
    /// There are too many.
    #[error(transparent)]
    Many(#[from] PropertiesError),
    /// It is too long.
    #[error(transparent)]
    Long(#[from] TextError),
}

impl Notice {
    fn unreadable(source: &Source, path: PathBuf, error: &io::Error) -> Self {
        Self::Unreadable { source_name: source.name.clone(), path, reason: error.to_string() }
    }
}

/// Whether the machine's folders are where they are said to be.
pub fn check(config: &Config, roots: &Roots) -> Result<(), Error> {
    let needed = config.sources.iter().any(|source| matches!(source.discovery, Discovery::Dev { .. }));
    if needed && !roots.dev.is_dir() {
        return Err(Error::NoDev { dev: roots.dev.clone() });
    }
    Ok(())
}

/// What is there now. The answer depends only on the machine and the configuration, not on the order
/// in which the kernel lists things.
#[must_use]
pub fn scan(config: &Config, roots: &Roots) -> Found {
    let mut found = Collected::default();
    for source in &config.sources {
        match &source.discovery {
            Discovery::Simulated { count } => simulated::scan(source, *count, &mut found),
            Discovery::Dev { paths } => dev::scan(config, source, paths, roots, &mut found),
        }
    }
    let Collected { mut devices, mut notices, .. } = found;
    reports::apply(config, &mut devices, &mut notices);
    Found { devices, notices }
}

/// The folders in which a change can make [`scan`] answer differently; all of them exist.
#[must_use]
pub fn folders(config: &Config, roots: &Roots) -> BTreeSet<PathBuf> {
    let patterns = config.sources.iter().flat_map(|source| match &source.discovery {
        Discovery::Simulated { .. } => &[][..],
        Discovery::Dev { paths } => paths,
    });
    patterns.flat_map(|pattern| dev::folders(pattern, roots)).chain(reports::folders(config)).collect()
}

/// Devices while they are collected, with what keeps one node from becoming two devices.
#[derive(Default)]
struct Collected {
    devices: BTreeMap<DeviceName, Device>,
    owners: BTreeMap<NodeId, DeviceName>,
    notices: Vec<Notice>,
}

impl Collected {
    /// The device that has a node already.
    fn owner(&self, node: NodeId) -> Option<&Device> {
        self.devices.get(self.owners.get(&node)?)
    }

    /// Says something once, however many patterns meet it.
    fn notice(&mut self, notice: Notice) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    fn add(&mut self, device: Device) {
        if let Some(first) = self.devices.get(&device.name) {
            let owner_source = first.source.clone();
            self.notice(Notice::SameName { source_name: device.source, name: device.name, owner_source });
            return;
        }
        if let Some(node) = &device.node {
            self.owners.insert(node.id, device.name.clone());
        }
        self.devices.insert(device.name.clone(), device);
    }
}
