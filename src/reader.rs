//! Reads device metadata as a workload does, whoever wrote them.
//!
//! A file is a stream with the same document once for each version of the API, the newest first;
//! [`Metadata::read`] takes the first that it knows. [`find`] tells where files are, in a container and on a
//! node; [`Watch`] waits for newer versions of them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use crate::{device::NetworkData, metadata::SUFFIX};

/// Where metadata are, in every container and on every node.
pub const PLACE: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// The versions that we know; they say the same.
const KNOWN: [&str; 2] = ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"];
/// No real file comes near it.
const MAX_BYTES: u64 = 16 << 20;
/// `claims/NAMESPACE/CLAIM/REQUEST/FILE`, and one to spare.
const MAX_DEPTH: usize = 5;
/// How often to look for what nobody tells.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why metadata cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or folder cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing about it.
    #[error("there are no metadata of a claim {claim} in {}: without its name all are shown; on a node it is NAMESPACE/NAME", .place.display())]
    NoClaim {
        /// The claim.
        claim: String,
        /// Where it was looked for.
        place: PathBuf,
    },
    /// It is not what it should be.
    #[error("{} is not device metadata: {reason}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It has no version that we know.
    #[error("{} has only versions that this claimfs does not know: {}", .path.display(), .found.join(", "))]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: Vec<String>,
    },
}

/// What a container is told about one request, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Which version of the API it was.
    pub api_version: String,
    /// The claim.
    pub metadata: Claim,
    /// What the claim is called in its pod, if it was made for one pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim_name: Option<String>,
    /// Its requests.
    #[serde(default)]
    pub requests: Vec<Request>,
}

/// The claim that metadata are about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Itself.
    #[serde(default)]
    pub uid: String,
    /// Which version of the metadata it is; later ones are higher.
    #[serde(default)]
    pub generation: u64,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its name, with that of the alternative behind a `/`.
    pub name: String,
    /// Its devices.
    #[serde(default)]
    pub devices: Vec<Device>,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Whose it is.
    pub driver: String,
    /// Where it is.
    pub pool: String,
    /// Its name there.
    pub name: String,
    /// What is known about it.
    #[serde(default)]
    pub attributes: BTreeMap<String, Value>,
    /// Where it is on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NetworkData>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    String(String),
    /// A semantic version.
    Version(String),
    /// Several of the first kind.
    Bools(Vec<bool>),
    /// Several whole numbers.
    Ints(Vec<i64>),
    /// Several texts.
    Strings(Vec<String>),
    /// Several versions.
    Versions(Vec<String>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => write!(formatter, "{value}"),
            Self::Int(value) => write!(formatter, "{value}"),
            Self::String(text) | Self::Version(text) => formatter.write_str(text),
            Self::Bools(values) => write!(formatter, "{values:?}"),
            Self::Ints(values) => write!(formatter, "{values:?}"),
            Self::Strings(texts) | Self::Versions(texts) => formatter.write_str(&texts.join(",")),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
}

impl Metadata {
    /// Reads a file as it is now.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_from(path, &open(path)?)
    }

    /// Reads one that is open; `path` is for messages only.
    fn read_from(path: &Path, file: &File) -> Result<Self, Error> {
        let mut text = String::new();
        let read = file.take(MAX_BYTES).read_to_string(&mut text);
        read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Takes the first version that it knows; `path` is for messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let invalid = |reason: String| Error::Invalid { path: path.to_owned(), reason };
        let mut found = Vec::new();
        for document in serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>() {
            let document = document.map_err(|error| invalid(error.to_string()))?;
            let head = Head::deserialize(&document).map_err(|error| invalid(error.to_string()))?;
            if head.kind == "DeviceMetadata" && KNOWN.contains(&head.api_version.as_str()) {
                return Self::deserialize(document).map_err(|error| invalid(error.to_string()));
            }
            found.push(format!("{} of {}", head.kind, head.api_version));
        }
        if found.is_empty() {
            return Err(invalid(String::from("it is empty")));
        }
        Err(Error::Unknown { path: path.to_owned(), found })
    }
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// The files of a claim, or of what it is called in its pod, and of all its requests or of one. On a node the claim is
/// `NAMESPACE/CLAIM`.
pub fn of_claim(place: &Path, claim: &str, request: Option<&str>) -> Result<Vec<PathBuf>, Error> {
    let on_node = if claim.contains('/') { "claims" } else { "claims/default" };
    let folders = ["resourceclaims", "resourceclaimtemplates", on_node];
    let mut folders = folders.into_iter().map(|folder| place.join(folder).join(claim));
    let Some(folder) = folders.find(|folder| folder.is_dir()) else {
        return Err(Error::NoClaim { claim: claim.to_owned(), place: place.to_owned() });
    };
    let mut files = Vec::new();
    match request {
        Some(request) => collect(&folder.join(request), 1, &mut files)?,
        None => collect(&folder, 2, &mut files)?,
    }
    Ok(files)
}

/// All files there are. On a node each claim is there by its name and by its UID; the former is taken.
pub fn find(place: &Path) -> Result<Vec<PathBuf>, Error> {
    let on_node = place.join("claims");
    let mut files = Vec::new();
    collect(if on_node.is_dir() { &on_node } else { place }, MAX_DEPTH, &mut files)?;
    Ok(files)
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let error = |source| Error::Read { path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(error)?;
    let mut entries = entries.collect::<io::Result<Vec<_>>>().map_err(error)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            if depth > 1 {
                collect(&path, depth - 1, files)?;
            }
        } else if entry.file_name().to_string_lossy().ends_with(SUFFIX) && !is_empty(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// What runtimes mount a file over, in the root of a container that has had other claims.
fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() == 0)
}

/// Waits for newer versions of files.
pub struct Watch {
    files: Vec<(PathBuf, File)>,
}

impl Watch {
    /// Opens the files; answers with what they say now, too.
    pub fn new(paths: Vec<PathBuf>) -> Result<(Self, Vec<Metadata>), Error> {
        let mut files = Vec::new();
        let mut now = Vec::new();
        for path in paths {
            let file = open(&path)?;
            now.push(Metadata::read_from(&path, &file)?);
            files.push((path, file));
        }
        Ok((Self { files }, now))
    }

    /// Waits until a file has another version than the one that was read last; answers with it.
    pub fn wait(&mut self) -> Result<Metadata, Error> {
        loop {
            let mut polled: Vec<PollFd<'_>> =
                self.files.iter().map(|(_, file)| PollFd::new(file.as_fd(), PollFlags::POLLPRI)).collect();
            match poll(&mut polled, PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => {
                    let path = self.files.first().map(|(path, _)| path.clone()).unwrap_or_default();
                    return Err(Error::Read { path, source: errno.into() });
                }
            }
            let is_new = |polled: &PollFd<'_>| polled.revents().is_some_and(|it| !it.is_empty());
            let woken = polled.iter().position(is_new);
            // A plain file wakes nobody: another one is in its place.
            let is_other = |(path, file): &(PathBuf, File)| match (fs::metadata(path), file.metadata()) {
                (Ok(now), Ok(then)) => (now.dev(), now.ino()) != (then.dev(), then.ino()),
                _ => true,
            };
            if let Some(index) = woken.or_else(|| self.files.iter().position(is_other)) {
                let (path, file) = &mut self.files[index];
                *file = open(path)?;
                return Metadata::read_from(path, file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Metadata, Error> {
        Metadata::parse(Path::new("f"), text)
    }

    #[test]
    fn the_first_known_version_is_taken() {
        let document = |version: &str, name: &str| {
            format!(
                "{{\"kind\":\"DeviceMetadata\",\"apiVersion\":\"metadata.resource.k8s.io/{version}\",\
                 \"metadata\":{{\"name\":\"{name}\",\"generation\":3}},\"requests\":[],\"later\":1}}\n"
            )
        };
        let read =
            parse(&(document("v2", "new") + &document("v1beta1", "ours") + &document("v1alpha1", "old")));
        assert_eq!(read.unwrap().metadata.name, "ours");
        let error = parse(&document("v2", "new")).unwrap_err().to_string();
        assert!(error.contains("does not know: DeviceMetadata of metadata.resource.k8s.io/v2"), "{error}");
        for (text, expected) in
            [("", "it is empty"), ("  \n", "it is empty"), ("{", "EOF"), ("[]", "does not know")]
        {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
