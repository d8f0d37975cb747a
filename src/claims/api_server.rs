//! Claims from the API server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
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
/// More of them only wait for each other in the API server.
const IN_FLIGHT: usize = 32;

/// Fetches claims from the API server, a bounded number at a time.
pub struct ApiServer {
    client: Client,
    /// Asked for when the first claim is: a start does not need the server.
    version: OnceCell<ApiVersion>,
    in_flight: Semaphore,
}

impl ApiServer {
    /// Uses a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, version: OnceCell::new(), in_flight: Semaphore::new(IN_FLIGHT) }
    }

    async fn version(&self) -> Result<&ApiVersion, VersionError> {
        self.version.get_or_try_init(|| ApiVersion::discover(&self.client)).await
    }

    async fn fetch(&self, claim: &ClaimRef) -> Result<ClaimObject, Error> {
        // The semaphore is never closed; without a permit nothing worse happens than one request more.
        let _permit = self.in_flight.acquire().await.ok();
        let version = self.version().await;
        let version =
            version.map_err(|source| Error::Version { claim: claim.clone(), source: Arc::new(source) })?;
        let api = |source: kube::Error| Error::Api { claim: claim.clone(), source: Arc::new(source) };
        // Names of claims and namespaces have no letter that would have to be written otherwise in a path.
        let path = format!(
            "/apis/resource.k8s.io/{}/namespaces/{}/resourceclaims/{}",
            version.as_str(),
            claim.namespace,
            claim.name
        );
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|source| api(kube::Error::HttpError(source)))?;
        match self.client.request(request).await {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(Error::NotFound { claim: claim.clone() })
            }
            Err(source) => Err(api(source)),
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
