//! The small process that mounts the file system and keeps it alive while whoever serves it comes and goes.
//!
//! It needs privilege and no wits: it parses nothing but a handful of [`Request`]s from root, and never looks
//! into the file system that it holds (it would wait for a server that may be dead): a helper without
//! privilege does that for it. [`Holder`] is the process, [`Client`] the way to it.

mod anchors;
mod callers;
mod client;
mod detached;
mod holder;
mod keepers;
pub mod kernel;
mod manager;
mod message;
mod mounts;
mod opener;
mod swap;
mod unstarted;

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use self::mounts::{below as mounts_below, unmount_all};
pub use self::{
    client::Client,
    holder::Holder,
    message::{Answer, Request},
    opener::open_for_standard_input,
};

/// Where a run folder has the FIFOs of those who use a claim without a cluster.
pub const RUNS: &str = "runs";

/// Why the holder cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be used.
    #[error("the holder's socket {}: {source}", .path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something cannot be mounted.
    #[error("cannot mount {}: {source}", .path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the file system cannot be opened.
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A message cannot be read.
    #[error("the holder cannot read a message: {0}")]
    Message(String),
    /// The holder refused.
    #[error("the holder refuses: {0}")]
    Refused(String),
    /// There is none, and it is not ours to start one.
    #[error("no holder answers on {}: {source}; is `claimfs hold` running?", .path.display())]
    Missing {
        /// Where it should listen.
        path: PathBuf,
        /// Why.
        source: Box<Error>,
    },
    /// Another one runs.
    #[error("another holder has the lock {}", .path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
}

impl Error {
    /// What it is refused for, for whoever says by itself that it is refused.
    fn reason(&self) -> String {
        match self {
            Self::Refused(reason) => reason.clone(),
            other => other.to_string(),
        }
    }

    /// Whether it is not the holder's decision: nobody answers, or not any more.
    #[must_use]
    pub fn is_the_line(&self) -> bool {
        matches!(self, Self::Socket { .. } | Self::Message(_) | Self::Missing { .. })
    }
}

/// Who starts a holder when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// The daemon.
    Daemon,
    /// Whoever supervises it: systemd, or a `DaemonSet` of its own.
    Somebody,
}

/// Where everything of a holder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Where it listens.
    pub socket: PathBuf,
    /// Where the file system is mounted.
    pub mount_point: PathBuf,
    /// What containers mount: one file a request, each a mount of a file of the file system.
    pub anchors: PathBuf,
    /// Where versions are kept; what a server that does not come back has left.
    pub versions: PathBuf,
    /// The tree as plain files, where it is not served.
    pub tree: PathBuf,
    /// How long readers wait for a server that is gone.
    pub grace: Duration,
    /// Who starts it.
    pub starter: Starter,
}

impl Places {
    /// In a run folder. The paths are those of the mount table, which knows no links: `/var/run` is one.
    pub fn new(run_dir: &Path, mount_point: &Path, grace: Duration, starter: Starter) -> Result<Self, Error> {
        let error = |source| Error::Socket { path: run_dir.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(run_dir).map_err(error)?;
        let run_dir = run_dir.canonicalize().map_err(error)?;
        Ok(Self {
            socket: run_dir.join("hold.sock"),
            mount_point: resolve(mount_point)?,
            anchors: run_dir.join("anchors"),
            versions: run_dir.join("versions"),
            tree: run_dir.join("tree"),
            grace,
            starter,
        })
    }

    /// The run folder, which the mount is known by.
    fn run_dir(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }

    /// Refuses a mount point that another daemon has, before anything of that one is touched.
    pub fn refuse_others(&self) -> Result<(), Error> {
        holder::refuse_others(self)
    }

    /// What containers mount for a request.
    #[must_use]
    pub fn anchor(&self, claim: &crate::device::ClaimUid, request: &crate::device::RequestName) -> PathBuf {
        self.anchors.join(claim.as_str()).join(request.as_str())
    }
}

/// A path without links. Its last part is taken as it is: whoever is mounted there may not answer.
fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let error = |source| Error::Mount { path: path.to_owned(), source };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(error(io::Error::other("it has no folder above it")));
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    fs::create_dir_all(folder).map_err(error)?;
    Ok(folder.canonicalize().map_err(error)?.join(name))
}
