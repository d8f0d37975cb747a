//! Claims from the API server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::resource::v1::ResourceClaimStatus;
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind, NotUsed, Object},
};
use tokio::{sync::Semaphore, time};

use super::{ClaimObject, ClaimRef, Claims, Error};

/// The kubelet waits 45 s for a whole batch.
const TIMEOUT: Duration = Duration::from_secs(15);
/// More requests than this at once only wait for each other in the API server.
const IN_FLIGHT: usize = 64;

/// A version of `resource.k8s.io` that we can speak. What is read of a claim is the same in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    /// Kubernetes 1.34 and newer.
    V1,
    /// Kubernetes 1.33.
    V1beta2,
    /// Kubernetes 1.32.
    V1beta1,
}

impl ApiVersion {
    /// All of them, the preferred first.
    pub const ALL: [Self; 3] = [Self::V1, Self::V1beta2, Self::V1beta1];

    /// As in `apiVersion`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta2 => "v1beta2",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// The resource of a kind in this version.
    #[must_use]
    pub fn resource(self, kind: &str, plural: &str) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("resource.k8s.io", self.as_str(), kind),
            plural,
        )
    }
}

/// Only the metadata and the status are decoded.
type Claim = Object<NotUsed, ResourceClaimStatus>;

/// Fetches claims from the API server, a bounded number at a time.
pub struct ApiServer {
    client: Client,
    resource: ApiResource,
    in_flight: Semaphore,
}

impl ApiServer {
    /// Uses a client and the version that its server speaks.
    #[must_use]
    pub fn new(client: Client, version: ApiVersion) -> Self {
        let resource = version.resource("ResourceClaim", "resourceclaims");
        Self { client, resource, in_flight: Semaphore::new(IN_FLIGHT) }
    }
}

impl Claims for ApiServer {
    async fn get(&self, claim: &ClaimRef) -> Result<ClaimObject, Error> {
        let fetch = async {
            // The semaphore is never closed; without a permit nothing worse happens than one request more.
            let _permit = self.in_flight.acquire().await.ok();
            let claims: Api<Claim> =
                Api::namespaced_with(self.client.clone(), claim.namespace.as_str(), &self.resource);
            claims.get(claim.name.as_str()).await
        };
        let answer = time::timeout(TIMEOUT, fetch).await;
        let answer =
            answer.map_err(|_| Error::Timeout { claim: claim.clone(), seconds: TIMEOUT.as_secs() })?;
        match answer {
            Ok(object) => {
                Ok(ClaimObject { metadata: object.metadata, status: object.status.unwrap_or_default() })
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(Error::NotFound { claim: claim.clone() })
            }
            Err(source) => Err(Error::Api { claim: claim.clone(), source: Arc::new(source) }),
        }
    }
}
