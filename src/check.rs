//! Whether this machine has what claimfs needs: one line a thing, each with a code and, where it is not as it should
//! be, what to do about it.

mod cluster;
mod machine;
mod runtimes;

use std::{fmt, path::PathBuf};

use serde::{Serialize, Serializer};

pub use self::{
    cluster::cluster,
    machine::machine,
    runtimes::{runtime, runtimes},
};

/// Where things are looked for.
#[derive(Debug, Clone)]
pub struct Places {
    /// The configuration.
    pub config: PathBuf,
    /// The host's /dev.
    pub dev: PathBuf,
    /// The host's /sys.
    pub sys: PathBuf,
    /// For the lock and the journal.
    pub run: PathBuf,
    /// Where container runtimes look for CDI specs.
    pub cdi: PathBuf,
    /// The kubelet's folder.
    pub kubelet: PathBuf,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// What.
    pub code: Code,
    /// How it is.
    pub verdict: Verdict,
    /// What was seen.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Something will not work, and the rest will.
    Warn,
    /// claimfs cannot work.
    Fail,
}

/// What was looked at. A code is never given a new meaning; `docs/codes.md` lists them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Whether it may do what it has to.
    Privilege = 201,
    /// What the kernel can do.
    Kernel = 202,
    /// /dev/fuse.
    Fuse = 203,
    /// Whether mounts reach other namespaces.
    Propagation = 204,
    /// The folder for the lock and the journal.
    RunFolder = 205,
    /// The folder for CDI specs.
    CdiFolder = 206,
    /// The configuration, and the devices that it finds.
    Configuration = 207,
    /// The kubelet's folders.
    Kubelet = 208,
    /// How long the kernel lets a file system go unanswered.
    RequestTimeout = 209,
    /// podman.
    Podman = 210,
    /// Docker.
    Docker = 211,
    /// containerd.
    Containerd = 212,
    /// CRI-O.
    Crio = 213,
    /// Whether there is any of them.
    Runtime = 214,
    /// nerdctl.
    Nerdctl = 215,
    /// What guards containers beyond their users.
    SeLinux = 216,
    /// The API server.
    Cluster = 220,
    /// What we are allowed to do there.
    Permissions = 221,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Privilege,
        Self::Kernel,
        Self::Fuse,
        Self::Propagation,
        Self::RunFolder,
        Self::CdiFolder,
        Self::Configuration,
        Self::Kubelet,
        Self::RequestTimeout,
        Self::Podman,
        Self::Docker,
        Self::Containerd,
        Self::Crio,
        Self::Runtime,
        Self::Nerdctl,
        Self::SeLinux,
        Self::Cluster,
        Self::Permissions,
    ];
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CFS{:04}", *self as u16)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Verdict {
    /// As it is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl Line {
    fn ok(code: Code, text: impl Into<String>) -> Self {
        Self { code, verdict: Verdict::Ok, text: text.into(), fix: None }
    }

    fn warn(code: Code, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { code, verdict: Verdict::Warn, text: text.into(), fix: Some(fix.into()) }
    }

    fn fail(code: Code, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { code, verdict: Verdict::Fail, text: text.into(), fix: Some(fix.into()) }
    }
}
