//! Claims from the API server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaimStatus};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, NotUsed, Object},
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time,
};

use super::{ClaimObject, ClaimRef, Claims, Error};
use crate::{
    api_version::{ApiVersion, VersionError},
    device::NodeName,
};

/// The kubelet waits 45 s for a whole batch.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Each has a connection of its own; more of them only wait for each other in the API server.
const IN_FLIGHT: usize = 16;

/// Only the metadata and the status are decoded.
type Claim = Object<NotUsed, ResourceClaimStatus>;

/// Fetches claims from the API server, a bounded number at a time.
pub struct ApiServer {
    client: Client,
    /// Asked for when the first claim is: a start does not need the server.
    resource: OnceCell<ApiResource>,
    in_flight: Semaphore,
}

impl ApiServer {
    /// Uses a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, resource: OnceCell::new(), in_flight: Semaphore::new(IN_FLIGHT) }
    }

    async fn resource(&self) -> Result<&ApiResource, VersionError> {
        let discover = || async {
            Ok(ApiVersion::discover(&self.client).await?.resource("ResourceClaim", "resourceclaims"))
        };
        self.resource.get_or_try_init(discover).await
    }

    async fn fetch(&self, claim: &ClaimRef) -> Result<ClaimObject, Error> {
        // The semaphore is never closed; without a permit nothing worse happens than one request more.
        let _permit = self.in_flight.acquire().await.ok();
        let version = |source| Error::Version { claim: claim.clone(), source: Arc::new(source) };
        let resource = self.resource().await.map_err(version)?;
        let claims: Api<Claim> =
            Api::namespaced_with(self.client.clone(), claim.namespace.as_str(), resource);
        match claims.get(claim.name.as_str()).await {
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

impl Claims for ApiServer {
    async fn get(&self, claim: &ClaimRef) -> Result<ClaimObject, Error> {
        let answer = time::timeout(TIMEOUT, self.fetch(claim)).await;
        answer.map_err(|_| Error::Timeout { claim: claim.clone(), seconds: TIMEOUT.as_secs() })?
    }

    async fn is_named(&self, claim: &ClaimRef, node: &NodeName) -> Result<bool, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), claim.namespace.as_str());
        let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let answer = time::timeout(TIMEOUT, pods.list(&here)).await;
        let answer =
            answer.map_err(|_| Error::Timeout { claim: claim.clone(), seconds: TIMEOUT.as_secs() })?;
        let pods = answer.map_err(|source| Error::Api { claim: claim.clone(), source: Arc::new(source) })?;
        Ok(pods.items.iter().any(|pod| names(pod, claim.name.as_str())))
    }
}

/// Whether a pod names a claim, directly or as the one that was made for it from a template.
fn names(pod: &Pod, claim: &str) -> bool {
    let direct = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let direct = direct.filter_map(|claim| claim.resource_claim_name.as_deref());
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let made = made.filter_map(|status| status.resource_claim_name.as_deref());
    direct.chain(made).any(|name| name == claim)
}
