//! The one YAML file: what the devices of this machine are.
//!
//! [`Config::load`] reads it, [`Config::parse`] takes its text. Everything that can be wrong with
//! it is found here and answered with line, column and what is allowed; later rooms get data that
//! needs no further check.

mod error;
mod schema;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::error::{Error, Invalid};
use crate::device::{
    AbsolutePath, Access, AttributeName, Condition, DriverName, Exposure, Properties, Sharing, SourceName,
    Taint,
};

/// Where the file is looked for when nothing else is said.
pub const DEFAULT_PATH: &str = "/etc/claimfs/config.yaml";

/// No real configuration comes near it; whatever does is not one.
const MAX_BYTES: u64 = 1 << 20;

/// What the devices of this machine are, and under which driver they are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The driver's name.
    pub driver: DriverName,
    /// Where devices come from, in the order of the file. An earlier source wins a device that
    /// two of them find.
    pub sources: Vec<Source>,
    /// Where others report about devices, if anywhere.
    pub reports: Option<AbsolutePath>,
}

/// Where devices come from, and what all of them have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Unique in the file.
    pub name: SourceName,
    /// How its devices are found.
    pub discovery: Discovery,
    /// What the file adds to every device; it goes before what is found.
    pub properties: Properties,
    /// Who may hold one of its devices at the same time.
    pub sharing: Sharing,
    /// How a container gets one of its devices.
    pub access: Arc<Access>,
    /// What keeps claims away from its devices.
    pub taints: Vec<Taint>,
    /// What of its devices a container reads.
    pub exposure: Arc<Exposure>,
}

impl Source {
    /// How its devices are before anybody has reported anything.
    #[must_use]
    pub fn condition(&self) -> Condition {
        Condition { taints: self.taints.clone(), ..Condition::default() }
    }

    /// The attribute by which selectors find the devices of a source.
    #[must_use]
    pub fn attribute_name() -> AttributeName {
        AttributeName::literal("source")
    }
}

/// How the devices of a source are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovery {
    /// Made up, for tests and demonstrations.
    Simulated {
        /// How many.
        count: u32,
    },
    /// Nodes under `/dev`.
    Dev {
        /// In order: an earlier pattern wins a node that two of them find.
        paths: Vec<DevPattern>,
    },
}

/// A pattern of paths under `/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevPattern {
    /// One pattern for each part of the path below `/dev`; at least one.
    parts: Vec<glob::Pattern>,
}

impl DevPattern {
    /// One pattern for each part of the path below `/dev`; at least one.
    #[must_use]
    pub fn parts(&self) -> &[glob::Pattern] {
        &self.parts
    }
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read { path: path.to_owned(), source };
        let mut text = String::new();
        File::open(path).map_err(read)?.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(read)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(Error::Large { path: path.to_owned(), limit: MAX_BYTES });
        }
        Self::parse(path, &text)
    }

    /// Checks a text; `path` is for messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        schema::parse(text).map_err(|flaw| flaw.in_file(PathBuf::from(path), text).into())
    }
}
