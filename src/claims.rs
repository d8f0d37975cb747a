//! Claims: where they come from, and what one of them gives to this node.
//!
//! [`Claims`] fetches an object; [`ApiServer`] does so from a cluster, and [`Folder`] where there is none.
//! [`Allocated::check`] is pure: it takes the object that was fetched and answers with what of it concerns this
//! driver on this node, or why it cannot be used. Nothing of a claim is trusted before it has passed here.

mod allocated;
mod api_server;
mod folder;
mod parameters;

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc};

use k8s_openapi::api::resource::v1::ResourceClaimStatus;
use serde::{Deserialize, Serialize};

pub use self::{
    allocated::{Allocated, Allocation, Consumer, Refusal, ShareId},
    api_server::ApiServer,
    folder::{Folder, FolderError, Stored},
    parameters::{Parameters, ParametersError},
};
use crate::{
    api_version::VersionError,
    device::{ClaimName, ClaimUid, Namespace, NodeName},
};

/// A claim, by everything that identifies it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name, which another claim may have had before.
    pub name: ClaimName,
    /// Itself.
    pub uid: ClaimUid,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// As much of a claim's object as is looked at: most of it is about who wrote which field, and is not decoded.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct ClaimObject {
    /// Which claim it is.
    pub metadata: ClaimMetadata,
    /// What was allocated, and for whom.
    #[serde(default)]
    pub status: ResourceClaimStatus,
}

/// As much of a claim's metadata as is looked at.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct ClaimMetadata {
    /// The claim itself.
    #[serde(default)]
    pub uid: String,
    /// What others noted on it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// Why a claim could not be fetched.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no such claim.
    #[error("claim {claim} does not exist")]
    NotFound {
        /// The claim.
        claim: ClaimRef,
    },
    /// The API server did not answer in time.
    #[error("claim {claim}: the API server did not answer within {seconds} s")]
    Timeout {
        /// The claim.
        claim: ClaimRef,
        /// How long was waited.
        seconds: u64,
    },
    /// The API server does not speak of claims as we do.
    #[error("claim {claim}: {source}")]
    Version {
        /// The claim.
        claim: ClaimRef,
        /// Why.
        source: Arc<VersionError>,
    },
    /// The API server refused, or could not be reached.
    #[error("claim {claim}: {source}")]
    Api {
        /// The claim.
        claim: ClaimRef,
        /// Why.
        source: Arc<kube::Error>,
    },
}

/// Where claims come from.
pub trait Claims: Send + Sync + 'static {
    /// The object that has the claim's name now; its UID is for the caller to check.
    fn get(&self, claim: &ClaimRef) -> impl Future<Output = Result<ClaimObject, Error>> + Send;

    /// Whether anything on a node names this claim, be it the claim itself or another of its name.
    fn is_named(&self, claim: &ClaimRef, node: &NodeName)
    -> impl Future<Output = Result<bool, Error>> + Send;
}
