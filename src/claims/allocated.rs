//! What a claim gives to this driver on this node.

use std::fmt;

use k8s_openapi::api::resource::v1::{DeviceAllocationConfiguration, DeviceRequestAllocationResult};
use serde::{Deserialize, Serialize};

use super::{ClaimObject, ClaimRef, Parameters, ParametersError};
use crate::device::{DeviceName, DriverName, NameError, NodeName, PodClaimName, RequestName};

/// The annotation that tells what a claim from a template is called in its pod.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// A claim that can be prepared here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// The claim.
    pub claim: ClaimRef,
    /// Our devices, in the order of the allocation.
    pub allocations: Vec<Allocation>,
    /// What the claim is called in its pod, if it was made for one pod.
    pub pod_claim_name: Option<PodClaimName>,
    /// Who uses the claim, for the logs.
    pub consumers: Vec<Consumer>,
}

/// One device for one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// The request that it was allocated for.
    pub request: RequestName,
    /// Which of the request's alternatives it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subrequest: Option<RequestName>,
    /// The device.
    pub device: DeviceName,
    /// Which share of a shared device.
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareId>,
    /// Whether it is for an administrator, who does not own it.
    #[serde(default)]
    pub admin_access: bool,
    /// What class and claim ask of it.
    #[serde(default)]
    pub parameters: Parameters,
}

/// Which share of a shared device a claim has, as the scheduler numbered it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShareId(pub String);

/// A pod (or something else) that may use a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer(pub String);

impl fmt::Display for Consumer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Why a claim cannot be prepared here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its name belongs to another claim now.
    #[error("claim {claim} has the UID {found:?} now, not {}: it was deleted and made anew", .claim.uid)]
    Replaced {
        /// The claim that was asked for.
        claim: ClaimRef,
        /// The UID that its name has.
        found: String,
    },
    /// The scheduler has not allocated it.
    #[error("claim {claim} is not allocated")]
    NotAllocated {
        /// The claim.
        claim: ClaimRef,
    },
    /// A device is in another node's pool.
    #[error("claim {claim}: device {device} is in pool {pool:?}, and the pool of this node is {own}")]
    OtherPool {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// Our pool.
        own: NodeName,
    },
    /// A name in the allocation is none.
    #[error("claim {claim}: {source}")]
    Name {
        /// The claim.
        claim: ClaimRef,
        /// What is wrong.
        source: NameError,
    },
    /// The configuration for us cannot be used.
    #[error("claim {claim}: {source}")]
    Parameters {
        /// The claim.
        claim: ClaimRef,
        /// What is wrong.
        source: ParametersError,
    },
}

impl Allocated {
    /// Checks an object against what was asked for, and takes what is ours.
    pub fn check(
        object: &ClaimObject,
        claim: &ClaimRef,
        driver: &DriverName,
        pool: &NodeName,
    ) -> Result<Self, Refusal> {
        let found = &object.metadata.uid;
        if found != claim.uid.as_str() {
            return Err(Refusal::Replaced { claim: claim.clone(), found: found.clone() });
        }
        let devices = object
            .status
            .allocation
            .as_ref()
            .map(|allocation| allocation.devices.clone().unwrap_or_default());
        let Some(devices) = devices else {
            return Err(Refusal::NotAllocated { claim: claim.clone() });
        };
        let config = devices.config.unwrap_or_default();
        let results = devices.results.unwrap_or_default();
        let ours = results.iter().filter(|result| result.driver == driver.as_str());
        let allocations =
            ours.map(|result| allocation(result, &config, claim, driver, pool)).collect::<Result<_, _>>()?;
        let pod_claim_name = object.metadata.annotations.get(POD_CLAIM_NAME).map(|name| name.parse());
        let pod_claim_name =
            pod_claim_name.transpose().map_err(|source| Refusal::Name { claim: claim.clone(), source })?;
        let consumers = object.status.reserved_for.iter().flatten();
        let consumers =
            consumers.map(|consumer| Consumer(format!("{}/{}", consumer.resource, consumer.name)));
        Ok(Self { claim: claim.clone(), allocations, pod_claim_name, consumers: consumers.collect() })
    }
}

fn allocation(
    result: &DeviceRequestAllocationResult,
    config: &[DeviceAllocationConfiguration],
    claim: &ClaimRef,
    driver: &DriverName,
    pool: &NodeName,
) -> Result<Allocation, Refusal> {
    if result.pool != pool.as_str() {
        return Err(Refusal::OtherPool {
            claim: claim.clone(),
            device: result.device.clone(),
            pool: result.pool.clone(),
            own: pool.clone(),
        });
    }
    let name = |source| Refusal::Name { claim: claim.clone(), source };
    let (request, subrequest) = match result.request.split_once('/') {
        Some((request, subrequest)) => (request, Some(subrequest)),
        None => (result.request.as_str(), None),
    };
    Ok(Allocation {
        request: request.parse().map_err(name)?,
        subrequest: subrequest.map(str::parse).transpose().map_err(name)?,
        device: result.device.parse().map_err(name)?,
        share: result.share_id.clone().map(ShareId),
        admin_access: result.admin_access.unwrap_or_default(),
        parameters: parameters(result, request, config, driver)
            .map_err(|source| Refusal::Parameters { claim: claim.clone(), source })?,
    })
}

/// All configuration for us that concerns a result. Later goes before earlier: the API server puts the
/// class's before the claim's.
fn parameters(
    result: &DeviceRequestAllocationResult,
    request: &str,
    config: &[DeviceAllocationConfiguration],
    driver: &DriverName,
) -> Result<Parameters, ParametersError> {
    let mut parameters = Parameters::default();
    for entry in config {
        let requests = entry.requests.as_deref().unwrap_or_default();
        let concerns =
            requests.is_empty() || requests.iter().any(|one| *one == result.request || one == request);
        match &entry.opaque {
            Some(opaque) if concerns && opaque.driver == driver.as_str() => {
                parameters.merge(Parameters::parse(&opaque.parameters.0)?);
            }
            _ => {}
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "0f9e8d7c-1234-4abc-9def-001122334455";

    fn check(status: Value) -> Result<Allocated, String> {
        let mut object =
            ClaimObject { status: serde_json::from_value(status).unwrap(), ..ClaimObject::default() };
        object.metadata.uid = UID.to_owned();
        let claim = ClaimRef {
            namespace: "default".parse().unwrap(),
            name: "c".parse().unwrap(),
            uid: UID.parse().unwrap(),
        };
        Allocated::check(&object, &claim, &DriverName::default(), &"n1".parse().unwrap())
            .map_err(|refusal| refusal.to_string())
    }

    fn result(request: &str, driver: &str, pool: &str, device: &str) -> Value {
        json!({"request": request, "driver": driver, "pool": pool, "device": device})
    }

    #[test]
    fn only_our_results_are_taken_and_subrequests_are_told_apart() {
        let allocated = check(json!({
            "allocation": {"devices": {"results": [
                result("a", "claimfs.dev", "n1", "gpu-0"),
                result("a", "other.dev", "elsewhere", "Not A Name"),
                result("b/large", "claimfs.dev", "n1", "gpu-1"),
            ]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        }))
        .unwrap();
        let named: Vec<String> = allocated
            .allocations
            .iter()
            .map(|one| {
                format!(
                    "{} {:?} {}",
                    one.request,
                    one.subrequest.as_ref().map(RequestName::as_str),
                    one.device
                )
            })
            .collect();
        assert_eq!(named, ["a None gpu-0", "b Some(\"large\") gpu-1"]);
        assert_eq!(allocated.consumers, [Consumer(String::from("pods/p"))]);
    }

    #[test]
    fn parameters_concern_their_requests() {
        let opaque = |env: &str, requests: Value| {
            let parameters =
                json!({"apiVersion": "claimfs.dev/v1alpha1", "kind": "DeviceParameters", "env": {"A": env}});
            json!({"source": "FromClaim", "requests": requests, "opaque": {"driver": "claimfs.dev", "parameters": parameters}})
        };
        let foreign =
            json!({"source": "FromClass", "opaque": {"driver": "other.dev", "parameters": {"x": 1}}});
        let allocated = check(json!({"allocation": {"devices": {
            "results": [result("a", "claimfs.dev", "n1", "d0"), result("b/s", "claimfs.dev", "n1", "d1"), result("c", "claimfs.dev", "n1", "d2")],
            "config": [foreign, opaque("all", json!([])), opaque("a", json!(["a"])), opaque("b", json!(["b/s"]))],
        }}}))
        .unwrap();
        let env: Vec<&String> =
            allocated.allocations.iter().flat_map(|one| one.parameters.env.values()).collect();
        assert_eq!(env, ["a", "b", "all"]);
    }

    #[test]
    fn what_cannot_be_prepared_is_refused_with_the_reason() {
        assert_eq!(check(json!({})).unwrap_err(), "claim default/c is not allocated");
        let refused =
            |results: Value| check(json!({"allocation": {"devices": {"results": results}}})).unwrap_err();
        assert_eq!(
            refused(json!([result("a", "claimfs.dev", "n2", "gpu-0")])),
            "claim default/c: device gpu-0 is in pool \"n2\", and the pool of this node is n1"
        );
        assert!(refused(json!([result("a", "claimfs.dev", "n1", "../x")])).contains("device name \"../x\""));
        assert!(refused(json!([result("../a", "claimfs.dev", "n1", "x")])).contains("request name \"..\""));
        let mut object = ClaimObject::default();
        object.metadata.uid = String::from("another");
        let claim = ClaimRef {
            namespace: "default".parse().unwrap(),
            name: "c".parse().unwrap(),
            uid: UID.parse().unwrap(),
        };
        let replaced = Allocated::check(&object, &claim, &DriverName::default(), &"n1".parse().unwrap());
        assert!(
            replaced
                .unwrap_err()
                .to_string()
                .starts_with("claim default/c has the UID \"another\" now, not 0f9e")
        );
    }
}
