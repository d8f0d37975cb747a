//! The vocabulary of devices: names, attributes, capacity, nodes.
//!
//! [`Device`] is what discovery produces and everything else reads. The limits of the
//! `resource.k8s.io` API hold by construction: a name, a text or a set of properties that the
//! API server would refuse cannot be made.

mod access;
mod attribute;
mod condition;
mod exposure;
mod name;
mod properties;
mod quantity;

use std::{num::NonZeroU32, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

pub(crate) use self::name::quoted;
pub use self::{
    access::{AbsolutePath, Access, EnvName, Hook, HookName, Mode, Mount, Permissions},
    attribute::{AttributeValue, Text, TextError, Version, VersionError},
    condition::{Condition, Health, NetworkData, Taint, TaintEffect, TaintKey, TaintValue},
    exposure::Exposure,
    name::{
        AttributeName, ClaimName, ClaimUid, DeviceName, DriverName, NameError, Namespace, NodeName,
        PodClaimName, PodUid, RequestName, SourceName,
    },
    properties::{Properties, PropertiesError},
    quantity::{Amount, AmountError, Format, Quantity, QuantityError},
};

/// One device, as it would be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Unique on this node, and the same for as long as its stable path leads to it.
    pub name: DeviceName,
    /// The part of the configuration that it comes from.
    pub source: SourceName,
    /// How it was found.
    pub kind: Kind,
    /// Who may hold it at the same time.
    pub sharing: Sharing,
    /// What selectors and workloads see of it.
    pub properties: Properties,
    /// What a container gets in its `/dev`; a simulated device has none.
    pub node: Option<Node>,
    /// How a container gets it.
    pub access: Arc<Access>,
    /// How it is at the moment.
    pub condition: Condition,
    /// What of it a container reads.
    pub exposure: Arc<Exposure>,
}

/// How a device was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Exists only by configuration.
    Simulated,
    /// A node in `/dev`.
    Dev,
}

impl Kind {
    /// The word that the configuration uses for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Dev => "dev",
        }
    }
}

/// How many claims can hold a device at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// One.
    #[default]
    Exclusive,
    /// Up to so many.
    Shared {
        /// The most claims at the same time.
        max: NonZeroU32,
    },
}

impl Sharing {
    /// The most claims at the same time.
    #[must_use]
    pub const fn claims(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Shared { max } => max.get(),
        }
    }

    /// The capacity that counts the claims of a shared device: each takes one of it.
    #[must_use]
    pub fn capacity_name() -> AttributeName {
        AttributeName::literal("shares")
    }
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where the node itself is now, e.g. `/dev/ttyUSB0`. Can differ after a reboot.
    pub path: PathBuf,
    /// The stable link that led to it, e.g. `/dev/serial/by-id/usb-FTDI_SN42-if00-port0`.
    pub link: Option<PathBuf>,
    /// Its numbers.
    pub id: NodeId,
    /// Who may open it on the host.
    pub mode: Mode,
}

impl Node {
    /// The path that stays the same across reboots, as far as there is one.
    #[must_use]
    pub fn stable_path(&self) -> &std::path::Path {
        self.link.as_deref().unwrap_or(&self.path)
    }
}

/// What the kernel knows a device node by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// Character or block.
    pub class: NodeClass,
    /// Selects the driver.
    pub major: u32,
    /// Selects the device within the driver.
    pub minor: u32,
}

/// The two classes of device nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeClass {
    /// Read and written as a stream, e.g. a terminal.
    Char,
    /// Read and written in blocks, e.g. a disk.
    Block,
}

impl NodeClass {
    /// The folder of this class under `/sys/dev`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Char => "char",
            Self::Block => "block",
        }
    }
}
