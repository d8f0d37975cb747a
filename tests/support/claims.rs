//! Claims in a control plane without a scheduler: the test allocates.

use claimfs::kubelet::api::dra::v1::Claim;
use serde_json::{Value, json};

use super::cluster::Cluster;

/// One device for one request (`request` or `request/subrequest`).
pub struct Allocation<'a> {
    pub request: &'a str,
    pub pool: &'a str,
    pub device: &'a str,
    pub share: Option<&'a str>,
    pub driver: &'a str,
}

impl<'a> Allocation<'a> {
    pub fn of(request: &'a str, pool: &'a str, device: &'a str) -> Self {
        Self { request, pool, device, share: None, driver: "claimfs.dev" }
    }
}

/// Makes a claim with a name that nobody else has.
pub fn create(plane: &Cluster, name: &str, allocations: &[Allocation<'_>]) -> Claim {
    create_all(plane, &[(name.to_owned(), allocations)]).remove(0)
}

/// Gives an allocated claim an opaque configuration for us.
pub fn configure(plane: &Cluster, claim: &Claim, allocations: &[Allocation<'_>], parameters: &Value) {
    let mut object = object(&claim.name, allocations);
    object["status"] = status(allocations);
    object["status"]["allocation"]["devices"]["config"] =
        json!([{"source": "FromClaim", "opaque": {"driver": "claimfs.dev", "parameters": parameters}}]);
    plane.apply_status(&list(&[object]));
}

/// Makes claims, allocates them, and answers with how the kubelet would name them.
pub fn create_all(plane: &Cluster, claims: &[(String, &[Allocation<'_>])]) -> Vec<Claim> {
    let names: Vec<String> = claims.iter().map(|(name, _)| name.clone()).collect();
    let specs: Vec<Value> = claims.iter().map(|(name, allocations)| object(name, allocations)).collect();
    plane.apply("apply", &list(&specs));
    let statuses: Vec<Value> = claims
        .iter()
        .filter(|(_, allocations)| !allocations.is_empty())
        .map(|(name, allocations)| {
            let mut object = object(name, allocations);
            object["status"] = status(allocations);
            object
        })
        .collect();
    if !statuses.is_empty() {
        plane.apply_status(&list(&statuses));
    }
    let stored: Value =
        serde_json::from_str(&plane.kubectl(&["get", "resourceclaims", "-o", "json"])).unwrap();
    let uid_of = |name: &String| {
        let items = stored["items"].as_array().unwrap().iter();
        let item = items.clone().find(|item| item["metadata"]["name"] == **name).unwrap();
        item["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let claim =
        |name: &String| Claim { namespace: String::from("default"), uid: uid_of(name), name: name.clone() };
    names.iter().map(claim).collect()
}

pub fn delete(plane: &Cluster, claim: &Claim) {
    plane.kubectl(&["delete", "resourceclaim", &claim.name, "--wait=true"]);
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn object(name: &str, allocations: &[Allocation<'_>]) -> Value {
    // What is requested does not matter here, but every result has to belong to a request.
    let mut requests: Vec<Value> = Vec::new();
    for allocation in allocations {
        let (request, alternative) = allocation.request.split_once('/').unwrap_or((allocation.request, ""));
        if requests.iter().any(|one| one["name"] == request) {
            continue;
        }
        requests.push(if alternative.is_empty() {
            json!({"name": request, "exactly": {"deviceClassName": "any", "allocationMode": "All"}})
        } else {
            json!({"name": request, "firstAvailable": [{"name": alternative, "deviceClassName": "any"}]})
        });
    }
    if requests.is_empty() {
        requests.push(json!({"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All"}}));
    }
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": requests}},
    })
}

fn status(allocations: &[Allocation<'_>]) -> Value {
    let results: Vec<Value> = allocations
        .iter()
        .map(|one| {
            let mut result =
                json!({"request": one.request, "driver": one.driver, "pool": one.pool, "device": one.device});
            if let Some(share) = one.share {
                result["shareID"] = json!(share);
                result["consumedCapacity"] = json!({"shares": "1"});
            }
            result
        })
        .collect();
    json!({"allocation": {"devices": {"results": results}}})
}
