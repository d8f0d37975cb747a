//! The API server, and what we are allowed to do there.

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::{Code, Line};
use crate::api_version::ApiVersion;

/// Everything that the daemon does: verb, group, resource. `deploy/claimfs.yaml` allows it.
const NEEDED: [(&str, &str, &str); 11] = [
    ("get", "resource.k8s.io", "resourceslices"),
    ("list", "resource.k8s.io", "resourceslices"),
    ("watch", "resource.k8s.io", "resourceslices"),
    ("create", "resource.k8s.io", "resourceslices"),
    ("update", "resource.k8s.io", "resourceslices"),
    ("delete", "resource.k8s.io", "resourceslices"),
    ("get", "resource.k8s.io", "resourceclaims"),
    ("get", "", "nodes"),
    ("list", "", "pods"),
    ("create", "events.k8s.io", "events"),
    ("patch", "events.k8s.io", "events"),
];

/// Looks at a cluster.
pub async fn cluster(client: &Client) -> Vec<Line> {
    let version = match ApiVersion::discover(client).await {
        Ok(version) => version,
        Err(error) => {
            let fix = "is the address right, and DRA on (Kubernetes 1.34 or newer has it on)?";
            return vec![Line::fail(Code::Cluster, error.to_string(), fix)];
        }
    };
    let mut refused = Vec::new();
    for (verb, group, resource) in NEEDED {
        match is_allowed(client, verb, group, resource).await {
            Ok(true) => {}
            Ok(false) => refused.push(format!("{verb} {resource}")),
            Err(error) => {
                let text = format!("cannot ask what is allowed: {error}");
                return vec![
                    served(version),
                    Line::warn(Code::Permissions, text, "look at the API server's logs"),
                ];
            }
        }
    }
    let permissions = if refused.is_empty() {
        Line::ok(Code::Permissions, "everything that claimfs does is allowed")
    } else {
        let text = format!("not allowed: {}", refused.join(", "));
        Line::fail(Code::Permissions, text, "bind the ClusterRole of deploy/claimfs.yaml to this user")
    };
    vec![served(version), permissions]
}

fn served(version: ApiVersion) -> Line {
    Line::ok(Code::Cluster, format!("the API server has resource.k8s.io/{}", version.as_str()))
}

async fn is_allowed(client: &Client, verb: &str, group: &str, resource: &str) -> Result<bool, kube::Error> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": verb, "group": group, "resource": resource } },
    });
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header("Content-Type", "application/json")
        .body(review.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    let answer: Value = client.request(request).await?;
    Ok(answer["status"]["allowed"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_allows_what_is_needed() {
        let manifest = include_str!("../../deploy/claimfs.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
        let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        for (verb, group, resource) in NEEDED {
            let allows = |rule: &&Value| {
                let has = |field: &str, wanted: &str| {
                    rule[field].as_array().unwrap().iter().any(|one| one == wanted)
                };
                has("verbs", verb) && has("apiGroups", group) && has("resources", resource)
            };
            assert!(role["rules"].as_array().unwrap().iter().any(|rule| allows(&rule)), "{verb} {resource}");
        }
    }
}
