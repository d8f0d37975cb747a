//! What a daemon shows of itself to whoever looks around on its node: read from its files, and nothing is asked.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{device::Taint, standalone::report::DeviceReport};

/// Why nothing is seen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {source}", .path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// A node of a cluster, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The process that serves.
    pub process: u32,
    /// All devices.
    pub devices: Vec<DeviceReport>,
    /// The claims that have some of them, as namespace and name.
    pub claims: Vec<String>,
    /// Who keeps the metadata mounted, and what.
    pub holder: Held,
}

/// What is kept for readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The process that keeps it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// How containers read: `fuse`, `files` or `off`.
    pub metadata: &'static str,
    /// How many versions of documents there are, those that somebody may still read included.
    pub versions: usize,
}

impl Held {
    /// Looks into a run folder, and at what is mounted.
    #[must_use]
    pub fn look(run_dir: &Path, mount_point: &Path) -> Self {
        let is_there = |process: &u32| Path::new("/proc").join(process.to_string()).exists();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let point = mount_point.canonicalize().unwrap_or_else(|_| mount_point.to_owned());
        let at_point = |line: &&str| line.split(' ').nth(4).map(Path::new) == Some(point.as_path());
        let metadata = match mounts.lines().rfind(at_point) {
            Some(line) if line.contains(" - fuse.claimfs ") => "fuse",
            Some(_) => "files",
            None => "off",
        };
        Self {
            process: number(&run_dir.join("hold.lock")).filter(is_there),
            metadata,
            versions: files(&run_dir.join("versions")),
        }
    }
}

impl Seen {
    /// Looks at the daemon of a run folder, whose metadata are seen at a mount point.
    pub fn look(run_dir: &Path, mount_point: &Path) -> Result<Self, Error> {
        let mut devices = Vec::new();
        for pool in entries(&mount_point.join("devices"))? {
            for path in entries(&pool)? {
                devices.extend(device(&path)?);
            }
        }
        let claims: BTreeSet<String> = devices.iter().flat_map(|device| device.owners.clone()).collect();
        Ok(Self {
            process: number(&run_dir.join("lock")).unwrap_or_default(),
            devices,
            claims: claims.into_iter().collect(),
            holder: Held::look(run_dir, mount_point),
        })
    }
}

/// What an agent on the node reads about a device.
#[derive(Deserialize)]
struct Document {
    name: String,
    source: String,
    health: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    taints: Vec<Taint>,
    owners: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    namespace: String,
    name: String,
}

/// Nothing, if it has just vanished.
fn device(path: &Path) -> Result<Option<DeviceReport>, Error> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
    };
    let Document { name, source, health, message, taints, owners } =
        serde_json::from_slice(&text).map_err(|source| Error::Document { path: path.to_owned(), source })?;
    let owners: Vec<String> =
        owners.into_iter().map(|Owner { namespace, name }| format!("{namespace}/{name}")).collect();
    // How many can have it is not told; nobody has to know to see who has it.
    let most_claims = u32::try_from(owners.len().max(1)).unwrap_or(u32::MAX);
    let taints = taints.iter().map(ToString::to_string).collect();
    Ok(Some(DeviceReport { name, source, path: None, health, message, taints, most_claims, owners }))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let error = |source| Error::Read { path: folder.to_owned(), source };
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
        })
        .map_err(error)?;
    paths.sort();
    Ok(paths)
}

/// The process that has left its number, on the first line.
fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.lines().next()?.trim().parse().ok()
}

fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}
