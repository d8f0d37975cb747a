//! From what somebody has written to a claim that can be allocated: what the API server does in a cluster.
//!
//! [`read`] and [`quick`] are for whoever asks; [`complete`] fills in what may be left out, and refuses what the
//! API server would refuse.

mod check;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use k8s_openapi::{
    api::resource::v1::{
        CELDeviceSelector, DeviceClaim, DeviceRequest, DeviceSelector, ExactDeviceRequest, ResourceClaim,
        ResourceClaimSpec, ResourceClaimTemplate,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use self::check::Check;
use crate::{
    allocate::Release,
    cel::CompileError,
    claims::Stored,
    device::{ClaimUid, DriverName, NameError, PodClaimName},
    objects::{self, NAMESPACE, Objects},
};

/// Whose rules hold.
pub(super) const RELEASE: Release = Release::V1_37;
/// Says how long a claim stays.
const LIFETIME: &str = "claimfs.dev/lifetime";
/// The value for a claim that goes with the last run that uses it.
const RUN: &str = "run";
/// What a claim from a template is called in its containers.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The request of a claim that was asked for in a few words, and what that claim is called in its containers.
const QUICK_REQUEST: &str = "device";
const QUICK_NAME: &str = "run";

/// What is wrong with a claim that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    Objects(#[from] objects::Error),
    /// A file has no claim.
    #[error("{}: there is no ResourceClaim and no ResourceClaimTemplate in it", .path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
    },
    /// A name is none.
    #[error("claim {claim}: {source}")]
    Name {
        /// The claim, as far as it has a name.
        claim: String,
        /// Why.
        source: NameError,
    },
    /// A field cannot be so.
    #[error("claim {claim}: {field}: {reason}")]
    Field {
        /// The claim.
        claim: String,
        /// The field.
        field: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// An expression is none.
    #[error("claim {claim}: {field}: {source}")]
    Expression {
        /// The claim.
        claim: String,
        /// The field.
        field: String,
        /// Why.
        source: CompileError,
    },
}

/// How long a claim stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until somebody deletes it.
    Kept,
    /// Until the last run that uses it has ended.
    Run,
}

impl Lifetime {
    /// As a claim says it.
    #[must_use]
    pub fn of(claim: &ResourceClaim) -> Self {
        let annotations = claim.metadata.annotations.as_ref();
        match annotations.and_then(|annotations| annotations.get(LIFETIME)).map(String::as_str) {
            Some(RUN) => Self::Run,
            _ => Self::Kept,
        }
    }
}

/// The claims of a file, with those that its templates stand for. `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<ResourceClaim>, Error> {
    let mut objects = Objects::default();
    objects.read(path)?;
    objects.only_known()?;
    let mut claims = objects.claims;
    claims.extend(objects.templates.into_iter().map(from_template));
    if claims.is_empty() {
        return Err(Error::Nothing { path: path.to_owned() });
    }
    Ok(claims)
}

/// A claim in a few words: so many devices of a class that all expressions select.
#[must_use]
pub fn quick(class: &str, select: &[String], count: u32) -> ResourceClaim {
    let selector = |expression: &String| DeviceSelector {
        cel: Some(CELDeviceSelector { expression: expression.clone() }),
    };
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        count: Some(i64::from(count)),
        selectors: Some(select.iter().map(selector).collect()),
        ..ExactDeviceRequest::default()
    };
    let request =
        DeviceRequest { name: String::from(QUICK_REQUEST), exactly: Some(exactly), first_available: None };
    let devices = DeviceClaim { requests: Some(vec![request]), ..DeviceClaim::default() };
    let metadata = named_inside(ObjectMeta::default(), QUICK_NAME);
    ResourceClaim { metadata, spec: Some(ResourceClaimSpec { devices: Some(devices) }), status: None }
}

/// One claim of its own for everybody who asks, and one name for it in all containers.
fn from_template(template: ResourceClaimTemplate) -> ResourceClaim {
    let name = template.metadata.name.unwrap_or_default();
    let spec = template.spec.unwrap_or_default();
    let metadata = named_inside(spec.metadata.unwrap_or_default(), &name);
    let metadata = ObjectMeta { namespace: template.metadata.namespace, ..metadata };
    ResourceClaim { metadata, spec: spec.spec, status: None }
}

/// Another name for every claim, and always the same one in its containers.
fn named_inside(mut metadata: ObjectMeta, name: &str) -> ObjectMeta {
    metadata.generate_name = Some(format!("{name}-"));
    metadata.annotations.get_or_insert_default().insert(POD_CLAIM_NAME.to_owned(), name.to_owned());
    metadata
}

/// Fills in what was left out and refuses what cannot be.
pub fn complete(
    claim: ResourceClaim,
    uid: &ClaimUid,
    lifetime: Lifetime,
    driver: &DriverName,
) -> Result<Stored, Error> {
    let metadata = metadata(claim.metadata, uid, lifetime);
    let name = format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or(NAMESPACE),
        metadata.name.as_deref().unwrap_or_default()
    );
    let named = |source: NameError| Error::Name { claim: name.clone(), source };
    let annotations = metadata.annotations.iter().flatten();
    for (_, pod_claim_name) in annotations.filter(|(key, _)| *key == POD_CLAIM_NAME) {
        pod_claim_name.parse::<PodClaimName>().map_err(named)?;
    }
    let mut spec = claim.spec.unwrap_or_default();
    let devices = spec.devices.get_or_insert_default();
    let mut requests = devices.requests.take().unwrap_or_default();
    let check = Check { claim: &name };
    check.requests(&mut requests)?;
    check.constraints(devices.constraints.as_deref().unwrap_or_default(), &requests)?;
    check.config(devices.config.as_deref().unwrap_or_default(), &requests, driver)?;
    devices.requests = Some(requests);
    let stored = Stored::new(ResourceClaim { metadata, spec: Some(spec), status: None });
    stored.map_err(named)
}

/// What somebody may choose of it; the rest is ours.
fn metadata(given: ObjectMeta, uid: &ClaimUid, lifetime: Lifetime) -> ObjectMeta {
    let is_given = |text: &String| !text.is_empty();
    let random = &uid.as_str()[..uid.as_str().len().min(8)];
    let prefix = given.generate_name.filter(is_given).unwrap_or_else(|| String::from("run-"));
    let name = given.name.filter(is_given).unwrap_or_else(|| format!("{prefix}{random}"));
    let mut annotations: BTreeMap<String, String> = given.annotations.unwrap_or_default();
    annotations.remove(LIFETIME);
    if lifetime == Lifetime::Run {
        annotations.insert(String::from(LIFETIME), String::from(RUN));
    }
    ObjectMeta {
        name: Some(name),
        namespace: Some(given.namespace.filter(is_given).unwrap_or_else(|| String::from(NAMESPACE))),
        uid: Some(uid.to_string()),
        labels: given.labels,
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "0f9e8d7c-1234-4abc-9def-001122334455";

    fn complete(claim: ResourceClaim) -> Result<Stored, String> {
        super::complete(claim, &UID.parse().unwrap(), Lifetime::Run, &DriverName::default())
            .map_err(|error| error.to_string())
    }

    fn with_requests(requests: &Value) -> Result<Stored, String> {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}});
        complete(serde_json::from_value(with_kind(claim)).unwrap())
    }

    #[test]
    fn what_nothing_answers_to_is_refused() {
        let refused = |field: &str, value: Value| {
            let mut claim = json!({"spec": {"devices": {"requests": [
                {"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}]}}});
            claim["spec"]["devices"][field] = json!([value]);
            complete(serde_json::from_value(with_kind(claim)).unwrap()).err()
        };
        let constraint = |request: &str| json!({"requests": [request], "matchAttribute": "claimfs.dev/x"});
        assert_eq!(refused("constraints", constraint("a/x")), None);
        let error = refused("constraints", constraint("a/y")).unwrap();
        let expected =
            "spec.devices.constraints[0].requests[0]: there is no request \"a/y\"; there are: a, a/x";
        assert!(error.contains(expected), "{error}");
        let config = |driver: &str| json!({"opaque": {"driver": driver, "parameters": {"kind": "Other"}}});
        assert_eq!(refused("config", config("other.dev")), None);
        let error = refused("config", config("claimfs.dev")).unwrap();
        assert!(error.contains("spec.devices.config[0].opaque: "), "{error}");
    }

    fn with_kind(mut claim: Value) -> Value {
        claim["apiVersion"] = json!("resource.k8s.io/v1");
        claim["kind"] = json!("ResourceClaim");
        claim
    }

    #[test]
    fn what_was_left_out_is_filled_in() {
        let stored = complete(quick("c", &[String::from("device.driver == 'x'")], 2)).unwrap();
        assert_eq!(stored.claim.to_string(), "default/run-0f9e8d7c");
        assert_eq!(Lifetime::of(&stored.object), Lifetime::Run);
        let stored = with_requests(&json!([{"name": "a", "firstAvailable": [
            {"name": "x", "deviceClassName": "c", "tolerations": [{"key": "k"}]}]}]))
        .unwrap();
        let devices = stored.object.spec.unwrap().devices.unwrap();
        let requests = devices.requests.unwrap();
        let want = &requests[0].first_available.as_ref().unwrap()[0];
        assert_eq!((want.allocation_mode.as_deref(), want.count), (Some("ExactCount"), Some(1)));
        assert_eq!(want.tolerations.as_ref().unwrap()[0].operator.as_deref(), Some("Equal"));
    }

    #[test]
    fn a_template_gives_everybody_a_claim_with_the_same_name_inside() {
        let template = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [
                {"name": "a", "exactly": {"deviceClassName": "c"}}]}}}});
        let stored = complete(from_template(serde_json::from_value(template).unwrap())).unwrap();
        assert_eq!(stored.claim.name.as_str(), "gpu-0f9e8d7c");
        assert_eq!(stored.object.metadata.annotations.unwrap()[POD_CLAIM_NAME], "gpu");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        let exactly = |fields: Value| json!([{"name": "a", "exactly": fields}]);
        for (requests, expected) in [
            (json!([]), "spec.devices.requests: it asks for nothing"),
            (json!([{"name": "a"}]), "requests[0]: there must be either exactly or firstAvailable"),
            (
                json!([{"name": "A", "exactly": {"deviceClassName": "c"}}]),
                "requests[0].name: request name \"A\"",
            ),
            (
                exactly(json!({"deviceClassName": ""})),
                "requests[0].exactly.deviceClassName: a class is needed",
            ),
            (exactly(json!({"deviceClassName": "c", "count": 0})), "exactly.count: it must be at least 1"),
            (exactly(json!({"deviceClassName": "c", "allocationMode": "Some"})), "allowed: ExactCount, All"),
            (
                exactly(json!({"deviceClassName": "c", "selectors": [{}]})),
                "selectors[0]: there must be a cel.expression",
            ),
            (
                exactly(
                    json!({"deviceClassName": "c", "selectors": [{"cel": {"expression": "device.nothing"}}]}),
                ),
                "selectors[0]: compilation failed",
            ),
        ] {
            let error = with_requests(&requests).unwrap_err();
            assert!(
                error.starts_with("claim default/c: ") && error.contains(expected),
                "{requests}: {error}"
            );
        }
        let twice = json!([{"name": "a", "exactly": {"deviceClassName": "c"}}, {"name": "a", "exactly": {"deviceClassName": "c"}}]);
        assert!(with_requests(&twice).unwrap_err().contains("requests[1].name: \"a\" is there already"));
    }
}
