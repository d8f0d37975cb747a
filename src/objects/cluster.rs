//! The same objects from a cluster, as whole lists in the version that it has.

use std::path::Path;

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use super::Objects;
use crate::api_version::{ApiVersion, VersionError};

/// Why a cluster's objects cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It has none.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// It refuses them, or is not there.
    #[error("cannot read {what}: {source}")]
    Read {
        /// Which.
        what: String,
        /// Why.
        source: kube::Error,
    },
    /// They are not what they are called.
    #[error(transparent)]
    Object(#[from] super::Error),
}

impl Objects {
    /// Everything of a cluster that an allocation can depend on.
    pub async fn of_cluster(client: &Client) -> Result<Self, ClusterError> {
        let group = format!("/apis/resource.k8s.io/{}", ApiVersion::discover(client).await?.as_str());
        let mut objects = Self::default();
        for path in ["resourceslices", "deviceclasses", "resourceclaims"] {
            objects.list(client, &format!("{group}/{path}")).await?;
        }
        objects.list(client, "/api/v1/nodes").await?;
        // Not every cluster that has the others has these.
        match objects.list(client, &format!("{group}/devicetaintrules")).await {
            Err(ClusterError::Read { source: kube::Error::Api(status), .. }) if status.code == 404 => {
                Ok(objects)
            }
            other => other.map(|()| objects),
        }
    }

    async fn list(&mut self, client: &Client, path: &str) -> Result<(), ClusterError> {
        let text = get(client, path).await?;
        Ok(self.parse(Path::new(path), &text)?)
    }
}

/// The claims of a pod, as namespace and name, and the node that it is bound to.
pub async fn claims_of_pod(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(Vec<String>, Option<String>), ClusterError> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let text = get(client, &path).await?;
    let refused = |error: serde_json::Error| super::Error::Text {
        path: path.clone().into(),
        reason: error.to_string(),
    };
    let pod: Pod = serde_json::from_str(&text).map_err(refused)?;
    let spec = pod.spec.unwrap_or_default();
    let made = pod.status.and_then(|status| status.resource_claim_statuses).unwrap_or_default();
    let claims = spec.resource_claims.unwrap_or_default().into_iter().filter_map(|claim| {
        let made = || made.iter().find(|made| made.name == claim.name)?.resource_claim_name.clone();
        let name = claim.resource_claim_name.clone().or_else(made)?;
        Some(format!("{namespace}/{name}"))
    });
    Ok((claims.collect(), spec.node_name.filter(|name| !name.is_empty())))
}

async fn get(client: &Client, path: &str) -> Result<String, ClusterError> {
    let failed = |source| ClusterError::Read { what: path.to_owned(), source };
    let request =
        Request::get(path).body(Vec::new()).map_err(|error| failed(kube::Error::HttpError(error)))?;
    client.request_text(request).await.map_err(failed)
}
