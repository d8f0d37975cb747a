//! The documents that containers read about their devices: pure functions from what is known to bytes.
//!
//! [`request_document`] is `DeviceMetadata` as upstream's readers take it: the same document once for each
//! version of the API, the newest first. [`device_document`] is what node agents read about one device.
//! The configuration decides which attributes of a device are shown.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    claims::{Allocation, ClaimRef},
    device::{
        AttributeName, AttributeValue, Device, DriverName, NetworkData, NodeName, PodClaimName, Properties,
        Quantity, Taint, Text,
    },
};

/// Newest first: a reader takes the first version that it knows.
const VERSIONS: [&str; 2] = ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"];
/// A document is filled up to a multiple of this. The size of a file is that of its newest version, and a
/// reader of an older one may trust it: so it should seldom change.
const ROUND: usize = 256;

/// What the names of documents end with; upstream's readers take everything that does.
pub const SUFFIX: &str = "-metadata.json";

/// What the document of a request is called; a container has one of each driver.
#[must_use]
pub fn file_name(driver: &DriverName) -> String {
    format!("{driver}{SUFFIX}")
}

/// What the documents of a claim have in common.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The claim.
    pub claim: &'a ClaimRef,
    /// What the claim is called in its pod, if it was made for one pod.
    pub pod_claim_name: Option<&'a PodClaimName>,
    /// Whose devices they are.
    pub driver: &'a DriverName,
    /// The pool that they are in.
    pub pool: &'a NodeName,
}

/// One allocated device; it can be gone from the machine.
pub type Shown<'a> = (&'a Allocation, Option<&'a Device>);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceMetadata<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ObjectMetadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_claim_name: Option<&'a str>,
    requests: &'a [Request<'a>],
}

#[derive(Serialize)]
struct ObjectMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    generation: u64,
}

#[derive(Serialize)]
struct Request<'a> {
    name: String,
    devices: Vec<RequestDevice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestDevice<'a> {
    driver: &'a str,
    pool: &'a str,
    name: &'a str,
    attributes: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_data: Option<&'a NetworkData>,
}

/// An attribute as the API writes it, lists included.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Value {
    Bool(bool),
    Int(i64),
    String(String),
    Version(String),
    Strings(Vec<String>),
}

impl From<&AttributeValue> for Value {
    fn from(value: &AttributeValue) -> Self {
        match value {
            AttributeValue::Bool(value) => Self::Bool(*value),
            AttributeValue::Int(value) => Self::Int(*value),
            AttributeValue::String(text) => Self::String(text.as_str().to_owned()),
            AttributeValue::Version(version) => Self::Version(version.as_str().to_owned()),
        }
    }
}

/// What a container reads about one request.
#[must_use]
pub fn request_document(about: About<'_>, devices: &[Shown<'_>], generation: u64) -> Vec<u8> {
    let mut requests: Vec<Request<'_>> = Vec::new();
    for (allocation, device) in devices {
        let name = match &allocation.subrequest {
            Some(subrequest) => format!("{}/{subrequest}", allocation.request),
            None => allocation.request.to_string(),
        };
        let shown = RequestDevice {
            driver: about.driver.as_str(),
            pool: about.pool.as_str(),
            name: allocation.device.as_str(),
            attributes: attributes(*device),
            network_data: device.and_then(|device| device.condition.network.as_ref()),
        };
        match requests.iter_mut().find(|request| request.name == name) {
            Some(request) => request.devices.push(shown),
            None => requests.push(Request { name, devices: vec![shown] }),
        }
    }
    let mut bytes = Vec::with_capacity(2 * ROUND);
    for api_version in VERSIONS {
        let document = DeviceMetadata {
            kind: "DeviceMetadata",
            api_version,
            metadata: ObjectMetadata {
                name: about.claim.name.as_str(),
                namespace: about.claim.namespace.as_str(),
                uid: about.claim.uid.as_str(),
                generation,
            },
            pod_claim_name: about.pod_claim_name.map(PodClaimName::as_str),
            requests: &requests,
        };
        write(&mut bytes, &document);
    }
    round_up(bytes)
}

/// How the device is comes first, then what the source exposes, by name, as far as there is room.
fn attributes(device: Option<&Device>) -> BTreeMap<String, Value> {
    let Some(device) = device else {
        return [health_attribute("unhealthy"), message_attribute("the device is gone from this node")]
            .into();
    };
    let condition = &device.condition;
    let mut all = vec![health_attribute(condition.health.as_str())];
    if !condition.health.message().is_empty() {
        all.push(message_attribute(condition.health.message()));
    }
    if !condition.taints.is_empty() {
        all.push((
            String::from("taints"),
            Value::Strings(condition.taints.iter().map(Taint::to_string).collect()),
        ));
    }
    let found =
        device.properties.attributes().iter().map(|(name, value)| (name.to_string(), Value::from(value)));
    all.extend(found);
    let exposed = all.into_iter().filter(|(name, _)| device.exposure.shows(name));
    exposed.take(Properties::MAX).collect()
}

fn health_attribute(word: &str) -> (String, Value) {
    (String::from("health"), Value::String(word.to_owned()))
}

/// As much of it as fits into an attribute.
fn message_attribute(message: &str) -> (String, Value) {
    let mut short = message.to_owned();
    while short.len() > Text::MAX {
        short.pop();
    }
    (String::from("healthMessage"), Value::String(short))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceDocument<'a> {
    driver: &'a DriverName,
    pool: &'a NodeName,
    name: &'a str,
    generation: u64,
    source: &'a str,
    kind: &'static str,
    health: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    taints: &'a [Taint],
    attributes: &'a BTreeMap<AttributeName, AttributeValue>,
    capacity: &'a BTreeMap<AttributeName, Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_data: Option<&'a NetworkData>,
    /// The claims that have it.
    owners: &'a [ClaimRef],
}

/// What an agent on the node reads about a device.
#[must_use]
pub fn device_document(
    driver: &DriverName,
    pool: &NodeName,
    device: &Device,
    owners: &[ClaimRef],
    generation: u64,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ROUND);
    let document = DeviceDocument {
        driver,
        pool,
        name: device.name.as_str(),
        generation,
        source: device.source.as_str(),
        kind: device.kind.as_str(),
        health: device.condition.health.as_str(),
        message: device.condition.health.message(),
        taints: &device.condition.taints,
        attributes: device.properties.attributes(),
        capacity: device.properties.capacity(),
        network_data: device.condition.network.as_ref(),
        owners,
    };
    write(&mut bytes, &document);
    round_up(bytes)
}

/// Invariant: the types above have text keys and no serializer of their own that could fail.
#[expect(clippy::expect_used)]
fn write(bytes: &mut Vec<u8>, document: &impl Serialize) {
    serde_json::to_writer(&mut *bytes, document).expect("plain data is JSON");
    bytes.push(b'\n');
}

/// White space after the last document is no document. On a terminal it is a line or two.
fn round_up(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize((bytes.len() + 1).next_multiple_of(ROUND) - 1, b' ');
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::{
        config::Config,
        device::Health,
        discover::{self, Roots},
    };

    fn devices(source: &str) -> BTreeMap<crate::device::DeviceName, Device> {
        let config = format!("sources: [{{name: gpu, simulated: {{count: 2}}, {source}}}]");
        discover::scan(&Config::parse("test".as_ref(), &config).unwrap(), &Roots::default()).devices
    }

    fn claim() -> ClaimRef {
        ClaimRef {
            namespace: "default".parse().unwrap(),
            name: "train".parse().unwrap(),
            uid: "u1".parse().unwrap(),
        }
    }

    fn allocation(request: &str, device: &str) -> Allocation {
        serde_json::from_value(json!({"request": request, "device": device})).unwrap()
    }

    fn documents(shown: &[Shown<'_>]) -> Vec<Json> {
        let (claim, driver, pool) = (claim(), DriverName::default(), "n1".parse().unwrap());
        let about = About { claim: &claim, pod_claim_name: None, driver: &driver, pool: &pool };
        let bytes = request_document(about, shown, 7);
        assert_eq!(bytes.len() % ROUND, 0);
        serde_json::Deserializer::from_slice(&bytes).into_iter().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn the_same_document_once_for_each_version() {
        let devices =
            devices("attributes: {model: {string: a}, v: {version: 1.0.0}, i: {int: 1}, b: {bool: true}}");
        let mut first = allocation("gpu", "gpu-0");
        first.subrequest = Some("best".parse().unwrap());
        let mut documents = documents(&[(&first, devices.values().next())]);
        let versions = documents.iter_mut().map(|document| document["apiVersion"].take()).collect::<Vec<_>>();
        assert_eq!(versions, VERSIONS);
        assert_eq!(documents[0], documents[1]);
        assert_eq!(
            documents[0],
            json!({
                "kind": "DeviceMetadata", "apiVersion": null,
                "metadata": {"name": "train", "namespace": "default", "uid": "u1", "generation": 7},
                "requests": [{"name": "gpu/best", "devices": [{
                    "driver": "claimfs.dev", "pool": "n1", "name": "gpu-0",
                    "attributes": {"b": {"bool": true}, "health": {"string": "healthy"}, "i": {"int": 1},
                        "model": {"string": "a"}, "source": {"string": "gpu"}, "v": {"version": "1.0.0"}},
                }]}],
            })
        );
    }

    #[test]
    fn there_are_at_most_32_attributes_and_how_a_device_is_comes_first() {
        let many = (0..31).map(|index| format!("a{index}: {{int: 1}}")).collect::<Vec<_>>().join(", ");
        let mut devices = devices(&format!("attributes: {{{many}}}"));
        let device = devices.values_mut().next().unwrap();
        device.condition.health = Health::Unhealthy { message: "ü".repeat(100) };
        let allocation = allocation("gpu", "gpu-0");
        let document = &documents(&[(&allocation, Some(device))])[0];
        let attributes = document["requests"][0]["devices"][0]["attributes"].as_object().unwrap();
        assert_eq!(attributes.len(), 32);
        assert_eq!(attributes["health"], json!({"string": "unhealthy"}));
        assert_eq!(attributes["healthMessage"]["string"].as_str().unwrap().len(), 64);
        assert!(!attributes.contains_key("source"), "the last by name has no room");
    }

    #[test]
    fn what_is_not_exposed_is_not_shown_and_what_is_gone_is_said_so() {
        let redacted = devices("attributes: {serial: {string: secret}}, metadata: {redact: [serial]}");
        let allocations = [allocation("gpu", "gpu-0"), allocation("gpu", "gpu-1")];
        let text =
            documents(&[(&allocations[0], redacted.values().next()), (&allocations[1], None)])[0].to_string();
        assert!(!text.contains("secret") && text.contains("gone from this node"), "{text}");
        let chosen = devices("attributes: {a: {int: 1}, b: {int: 2}}, metadata: {expose: [b, health]}");
        let document = &documents(&[(&allocations[0], chosen.values().next())])[0];
        let attributes = document["requests"][0]["devices"][0]["attributes"].as_object().unwrap();
        assert_eq!(attributes.keys().collect::<Vec<_>>(), ["b", "health"]);
    }
}
