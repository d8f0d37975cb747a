//! The live file system: what is opened is one whole version, what is opened next is the newest.
//!
//! [`Live`] is what the rest of the daemon uses: it publishes documents under paths and removes them. Behind
//! it the [`Tree`] is pure data, and the [`Store`] keeps versions as small files, so that whoever takes over
//! can go on with what was opened before. [`Server`] answers the kernel.

mod adapter;
mod live;
mod mirror;
mod server;
mod store;
mod tree;
mod waiting;

use std::{io, path::PathBuf};

pub use self::{
    live::{Live, Released},
    mirror::Mirror,
    server::{Connection, Server},
    store::{Store, VersionName},
    tree::{Entry, Handle, Inode, Kind, Step, Tree, Version},
};

/// Why something cannot be read. Each has one number that the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing has this name or number.
    #[error("there is no such file")]
    NotFound,
    /// A file was taken for a folder.
    #[error("it is not a folder")]
    NotAFolder,
    /// A folder was taken for a file.
    #[error("it is a folder")]
    IsAFolder,
    /// A link was taken for a file.
    #[error("it is a link")]
    IsALink,
    /// A file was taken for a link.
    #[error("it is not a link")]
    NotALink,
    /// Nothing can be changed here.
    #[error("it can only be read")]
    ReadOnly,
    /// What was opened is not kept any more.
    #[error("the version that was opened is not kept any more")]
    Stale,
    /// The kernel wants to keep what it reads, for whoever has the file open, whichever version of it.
    #[error("it cannot be copied by the kernel or mapped, only read")]
    Shared,
    /// There is no such extended attribute.
    #[error("there is no such attribute")]
    NoAttribute,
    /// The room for an answer is too small.
    #[error("there is not enough room for the answer")]
    Range,
}

/// Why the file system cannot be served or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A version cannot be kept.
    #[error("cannot keep a version of the metadata in {}: {source}", .path.display())]
    Store {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel's side of it failed.
    #[error("cannot serve the file system: {0}")]
    Serve(#[source] io::Error),
}
