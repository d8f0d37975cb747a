//! Why something is refused.

use crate::{
    claims::{ClaimRef, FolderError},
    prepare,
    standalone::{classes, decide, manifest, presence::RunId},
};

/// Why something that was asked for is not done. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The claim cannot be so.
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
    /// What was sent is no claim.
    #[error("what was sent is no ResourceClaim: {0}")]
    Message(String),
    /// The classes cannot be told.
    #[error("{0}\nfix: correct the file, or move it away")]
    Classes(#[from] classes::Error),
    /// A class is not there.
    #[error("{source}\nfix: name one of these, or write a DeviceClass into {}", .folder.display())]
    NoClass {
        /// Which.
        source: decide::Error,
        /// Where classes are.
        folder: std::path::PathBuf,
    },
    /// The allocator refuses.
    #[error(transparent)]
    Decide(decide::Error),
    /// There are not enough devices.
    #[error("{why}\nfix: --wait waits until they are free; claimfs status shows who has them")]
    Misfit {
        /// Why.
        why: String,
    },
    /// It asks for what cannot be decided, for example because an expression fails on a device.
    #[error("{why}")]
    Unfit {
        /// Why.
        why: String,
    },
    /// There never are enough devices.
    #[error("{why}\nIt would not fit if all devices were free.")]
    Never {
        /// Why.
        why: String,
    },
    /// Too many wait.
    #[error("{waiting} wait already, and no more can\nfix: try again later")]
    Crowded {
        /// How many.
        waiting: usize,
    },
    /// The name is another claim's.
    #[error(
        "claim {claim} exists already\nfix: share it with --claim {claim}, delete it, or let every run have its own: generateName in the place of name, or a ResourceClaimTemplate"
    )]
    Exists {
        /// The claim.
        claim: ClaimRef,
    },
    /// There is no such claim.
    #[error("there is no claim {name}\nfix: claimfs claim list shows those that there are")]
    NoClaim {
        /// What was asked for.
        name: String,
    },
    /// Somebody uses it.
    #[error(
        "claim {claim} is in use by {by}\nfix: end what uses it first; claimfs claim show tells what that is"
    )]
    InUse {
        /// The claim.
        claim: ClaimRef,
        /// By whom.
        by: String,
    },
    /// A container has it that is not known by a run.
    #[error(
        "claim {claim} is in use by a container that claimfs run has not started, or that was started again\nfix: end it first; podman ps, docker ps, nerdctl ps or ctr task ls shows it"
    )]
    Mounted {
        /// The claim.
        claim: ClaimRef,
    },
    /// The run is over.
    #[error("the run {run:?} is not there")]
    NoRun {
        /// Which.
        run: String,
    },
    /// It cannot be written down.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It cannot be prepared.
    #[error(transparent)]
    Prepare(#[from] prepare::Error),
    /// The kernel does not tell.
    #[error("cannot tell whether run {run} is there: {source}")]
    Presence {
        /// Which.
        run: RunId,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel gives no number.
    #[error("cannot name a claim: {0}")]
    Random(#[source] std::io::Error),
    /// The daemon ends.
    #[error("claimfs node is ending")]
    Ending,
}

/// Whose turn it is to do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Whoever has asked, with other words.
    Asked,
    /// Nobody; there is not enough of something, or not yet.
    Scarce,
    /// Whoever has asked, with another run.
    Run,
    /// Whoever comes next.
    Ending,
    /// The machine.
    Machine,
}

impl Refusal {
    /// Whose turn it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Manifest(_)
            | Self::Message(_)
            | Self::Classes(_)
            | Self::NoClass { .. }
            | Self::Unfit { .. }
            | Self::Decide(_) => Blame::Asked,
            Self::Misfit { .. }
            | Self::Never { .. }
            | Self::Crowded { .. }
            | Self::Exists { .. }
            | Self::NoClaim { .. }
            | Self::InUse { .. }
            | Self::Mounted { .. } => Blame::Scarce,
            Self::NoRun { .. } => Blame::Run,
            Self::Ending => Blame::Ending,
            Self::Folder(_) | Self::Prepare(_) | Self::Presence { .. } | Self::Random(_) => Blame::Machine,
        }
    }
}
