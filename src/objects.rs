//! Objects of the Kubernetes API in files, as kubectl prints and takes them.
//!
//! [`Objects::read`] takes YAML of several documents and JSON, single objects and lists, in every served version
//! of `resource.k8s.io`. What it has no use for is passed over, so that whole manifests can be given.

mod cluster;
mod unknown;

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

pub use self::cluster::{ClusterError, claims_of_pod};

/// The namespace of a claim that names none.
pub const NAMESPACE: &str = "default";
/// The group whose versions differ.
const GROUP: &str = "resource.k8s.io/";
/// What stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Why a file has no objects.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is neither YAML nor JSON.
    #[error("{}: {reason}", .path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An object in it is not what it says that it is.
    #[error("{}: {kind} {name:?}: {reason}", .path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// What it says that it is.
        kind: String,
        /// What it is called.
        name: String,
        /// Why.
        reason: String,
    },
}

/// NAMESPACE/NAME, where the namespace may have been left out.
#[must_use]
pub fn qualified(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{NAMESPACE}/{name}") }
}

/// Everything that an allocation can depend on.
#[derive(Debug, Default)]
pub struct Objects {
    /// Claims, allocated or not.
    pub claims: Vec<ResourceClaim>,
    /// What claims are made of.
    pub templates: Vec<ResourceClaimTemplate>,
    /// Classes.
    pub classes: Vec<DeviceClass>,
    /// Slices.
    pub slices: Vec<ResourceSlice>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Taints for devices of slices.
    pub rules: Vec<DeviceTaintRule>,
    /// Kinds, and fields of claims, templates and classes, that are not known: usually typos.
    pub unknown: Vec<Error>,
}

impl Objects {
    /// Adds what is in a file; `-` is standard input.
    pub fn read(&mut self, path: &Path) -> Result<(), Error> {
        let mut text = String::new();
        let read = if path == Path::new(STANDARD_INPUT) {
            io::stdin().read_to_string(&mut text).map(drop)
        } else {
            fs::read_to_string(path).map(|read| text = read)
        };
        read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        self.parse(path, &text)
    }

    /// Adds what a text says; `path` is for messages only.
    pub fn parse(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        let refused = |reason: String| Error::Text { path: path.to_owned(), reason };
        let documents: Vec<Value> = if text.trim_start().starts_with(['{', '[']) {
            let stream = serde_json::Deserializer::from_str(text).into_iter();
            stream.collect::<Result<_, _>>().map_err(|error| refused(error.to_string()))?
        } else {
            let options = budget(text);
            serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
                // It does not know where the text is from, and that it is an error is said before.
                let reason = error.to_string().replace("<input>", &path.display().to_string());
                refused(reason.trim_start_matches("error: ").to_owned())
            })?
        };
        documents.into_iter().try_for_each(|document| self.add(path, document))
    }

    fn add(&mut self, path: &Path, mut object: Value) -> Result<(), Error> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
            let items = std::mem::take(items);
            let kind = text(object.get("kind")).strip_suffix("List").unwrap_or_default().to_owned();
            let version = text(object.get("apiVersion"));
            return items.into_iter().try_for_each(|mut item| {
                // What a list of one kind says once holds for all in it.
                if !kind.is_empty()
                    && let Some(item) = item.as_object_mut()
                {
                    item.entry("kind").or_insert_with(|| Value::from(kind.as_str()));
                    item.entry("apiVersion").or_insert_with(|| Value::from(version.as_str()));
                }
                self.add(path, item)
            });
        }
        let (kind, version) = (text(object.get("kind")), text(object.get("apiVersion")));
        if let Some(version) = version.strip_prefix(GROUP) {
            raise(&kind, version, &mut object);
        }
        let name = text(object.pointer("/metadata/name"));
        let refused = |reason: String| Error::Object {
            path: path.to_owned(),
            kind: if kind.is_empty() { String::from("something without a kind") } else { kind.clone() },
            name: name.clone(),
            reason,
        };
        let mut unknown = Vec::new();
        match kind.as_str() {
            "ResourceClaim" => self.claims.push(strict(&object, &mut unknown).map_err(refused)?),
            "ResourceClaimTemplate" => self.templates.push(strict(&object, &mut unknown).map_err(refused)?),
            "DeviceClass" => self.classes.push(strict(&object, &mut unknown).map_err(refused)?),
            "ResourceSlice" => self.slices.push(typed(object).map_err(refused)?),
            "DeviceTaintRule" => self.rules.push(typed(object).map_err(refused)?),
            "Node" => self.nodes.push(typed(object).map_err(refused)?),
            "" => return Err(refused(String::from("an object has a kind and an apiVersion"))),
            // Of other groups there may be anything in a file.
            _ if version.starts_with(GROUP) => {
                self.unknown.push(refused(format!("claimfs knows no such kind of {version}")));
            }
            _ => {}
        }
        let no_such = |field: String| refused(format!("{field}: there is no such field"));
        self.unknown.extend(unknown.into_iter().map(no_such));
        Ok(())
    }

    /// Refuses what is not known.
    pub fn only_known(&mut self) -> Result<(), Error> {
        self.unknown.drain(..).next().map_or(Ok(()), Err)
    }
}

/// The slices of a cluster are long, and a text has never more in it than it has bytes; what would repeat a part of
/// it is kept to the usual bounds.
fn budget(text: &str) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: text.len().max(1_000_000),
            max_nodes: text.len().max(250_000),
            max_documents: text.len().max(1_000),
            max_total_scalar_bytes: text.len().max(1_000_000),
        },
    }
}

/// For what people write, and not drivers: with the places of fields that are not known.
fn strict<T: DeserializeOwned + Serialize>(object: &Value, unknown: &mut Vec<String>) -> Result<T, String> {
    let known: T = typed(object.clone())?;
    let written = serde_json::to_value(&known).map_err(|error| error.to_string())?;
    unknown.extend(unknown::fields(object, &written));
    Ok(known)
}

fn typed<T: DeserializeOwned>(mut object: Value) -> Result<T, String> {
    // What it is called is decided; the types insist on one version.
    if let Some(members) = object.as_object_mut() {
        let version =
            if members.get("kind").is_some_and(|kind| kind == "Node") { "v1" } else { "resource.k8s.io/v1" };
        members.insert(String::from("apiVersion"), Value::from(version));
    }
    serde_path_to_error::deserialize(object).map_err(|error| error.to_string())
}

/// Makes an object of an older version one of `v1`.
fn raise(kind: &str, version: &str, object: &mut Value) {
    match (kind, version) {
        ("ResourceSlice", "v1beta1") => each(object, "/spec/devices", flatten),
        ("ResourceClaim", "v1beta1") => each(object, "/spec/devices/requests", nest),
        ("ResourceClaimTemplate", "v1beta1") => each(object, "/spec/spec/devices/requests", nest),
        _ => {}
    }
}

fn each(object: &mut Value, path: &str, change: fn(&mut Map<String, Value>)) {
    let elements = object.pointer_mut(path).and_then(Value::as_array_mut);
    elements.into_iter().flatten().filter_map(Value::as_object_mut).for_each(change);
}

/// A device had its properties in `basic`.
fn flatten(device: &mut Map<String, Value>) {
    if let Some(Value::Object(basic)) = device.remove("basic") {
        device.extend(basic);
    }
}

/// A request had what it asks for beside its name.
fn nest(request: &mut Map<String, Value>) {
    if request.contains_key("firstAvailable") {
        return;
    }
    let name = request.remove("name").unwrap_or_default();
    let exactly = std::mem::take(request);
    request.insert(String::from("name"), name);
    request.insert(String::from("exactly"), Value::Object(exactly));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Objects, String> {
        let mut objects = Objects::default();
        objects.parse(Path::new("f.yaml"), text).map_err(|error| error.to_string()).map(|()| objects)
    }

    #[test]
    fn documents_lists_and_older_versions_are_taken() {
        let objects = parse(
            "
apiVersion: v1
kind: List
items:
- {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: c}, spec: {}}
- {apiVersion: v1, kind: Pod, metadata: {name: p}}
---
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: a}
spec: {devices: {requests: [{name: r, deviceClassName: c, count: 2}, {name: f, firstAvailable: [{name: s, deviceClassName: c}]}]}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: d.example.com
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  devices: [{name: one, basic: {attributes: {model: {string: x}}}}]
",
        )
        .unwrap();
        assert_eq!((objects.classes.len(), objects.claims.len(), objects.slices.len()), (1, 1, 1));
        let devices = objects.claims[0].spec.as_ref().unwrap().devices.as_ref();
        let requests = devices.unwrap().requests.as_ref().unwrap();
        assert_eq!(requests[0].exactly.as_ref().unwrap().count, Some(2));
        assert!(requests[1].first_available.is_some());
        let devices = objects.slices[0].spec.devices.as_ref().unwrap();
        assert!(devices[0].attributes.as_ref().unwrap().contains_key("model"));
        let json = r#"{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClassList", "items": [{"metadata": {"name": "c"}, "spec": {}}]}"#;
        assert_eq!(parse(json).unwrap().classes.len(), 1);
    }

    #[test]
    fn what_is_not_known_is_named_with_its_place() {
        let claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a, labels: {x: z}}\n\
            spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, cuont: 2, allocationMode: null}}], \
            config: [{opaque: {driver: d, parameters: {any: {thing: 1}}}}]}}";
        let mut objects = parse(claim).unwrap();
        let unknown = objects.only_known().unwrap_err().to_string();
        let expected =
            "f.yaml: ResourceClaim \"a\": spec.devices.requests[0].exactly.cuont: there is no such field";
        assert_eq!(unknown, expected);
        assert!(objects.only_known().is_ok());
        let class = "apiVersion: resource.k8s.io/v1\nkind: DeviceClas\nmetadata: {name: c}";
        let unknown = parse(class).unwrap().only_known().unwrap_err().to_string();
        assert_eq!(unknown, "f.yaml: DeviceClas \"c\": claimfs knows no such kind of resource.k8s.io/v1");
    }

    #[test]
    fn the_slices_of_a_large_cluster_are_taken_and_a_bomb_is_not() {
        let device =
            "  - {name: d, attributes: {a: {string: x}, b: {int: 1}, c: {bool: true}}}\n".repeat(128);
        let slice = format!(
            "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec:\n  driver: d.example.com\n  \
             pool: {{name: p, generation: 1, resourceSliceCount: 1}}\n  devices:\n{device}"
        );
        assert_eq!(parse(&slice.repeat(200)).unwrap().slices.len(), 200);
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let before = format!("*a{}, ", level - 1).repeat(10);
            bomb += &format!("a{level}: &a{level} [{before}]\n");
        }
        assert!(parse(&bomb).is_err());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("{", "f.yaml: EOF"),
            ("a: [", "f.yaml: "),
            ("apiVersion: v1\n", "something without a kind"),
            ("kind: ResourceClaim\n spec: 1\n", "f.yaml: line 2"),
            (
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: {requests: 1}}",
                "f.yaml: ResourceClaim \"a\": spec.devices.requests: invalid type",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
