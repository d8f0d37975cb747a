//! What a claim or a class can ask of this driver in its opaque configuration.
//!
//! ```yaml
//! apiVersion: claimfs.dev/v1alpha1
//! kind: DeviceParameters
//! env: {MODE: fast}
//! uid: 1000
//! gid: 20
//! mode: "0660"
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::{EnvName, Mode, quoted};

/// The parameters of one device, merged from class and claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// Variables for the containers that get the device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<EnvName, String>,
    /// Owner of the node in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group of the node in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Mode of the node in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// Why a configuration is not one of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParametersError {
    /// Another kind of object.
    #[error(
        "parameters of kind {} in {}; allowed: DeviceParameters in claimfs.dev/v1alpha1",
        quoted(.kind),
        quoted(.api_version)
    )]
    Kind {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// Something in it is wrong.
    #[error("parameters: {field}: {reason}")]
    Field {
        /// Where.
        field: String,
        /// What.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    #[serde(default)]
    env: BTreeMap<EnvName, String>,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<Mode>,
}

impl Parameters {
    /// Reads one configuration, strictly.
    pub fn parse(document: &Value) -> Result<Self, ParametersError> {
        let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if (api_version.as_str(), kind.as_str()) != ("claimfs.dev/v1alpha1", "DeviceParameters") {
            return Err(ParametersError::Kind { api_version, kind });
        }
        let document: Document = serde_path_to_error::deserialize(document).map_err(|error| {
            // Whatever a user wrote must fit into an answer that people read.
            let cut = |text: String, length| text.chars().take(length).collect();
            let field = cut(error.path().to_string(), 80);
            ParametersError::Field { field, reason: cut(error.into_inner().to_string(), 300) }
        })?;
        debug_assert_eq!((document.api_version, document.kind), (api_version, kind));
        Ok(Self { env: document.env, uid: document.uid, gid: document.gid, mode: document.mode })
    }

    /// Takes over what a later configuration says.
    pub fn merge(&mut self, later: Self) {
        self.env.extend(later.env);
        self.uid = later.uid.or(self.uid);
        self.gid = later.gid.or(self.gid);
        self.mode = later.mode.or(self.mode);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(fields: Value) -> Result<Parameters, String> {
        let mut document = json!({"apiVersion": "claimfs.dev/v1alpha1", "kind": "DeviceParameters"});
        let (Value::Object(all), Value::Object(fields)) = (&mut document, fields) else { unreachable!() };
        all.extend(fields);
        Parameters::parse(&document).map_err(|error| error.to_string())
    }

    #[test]
    fn later_parameters_go_before_earlier_ones() {
        let mut class = parse(json!({"env": {"A": "1", "B": "1"}, "uid": 1, "mode": "0600"})).unwrap();
        class.merge(parse(json!({"env": {"B": "2"}, "uid": 2})).unwrap());
        assert_eq!(class, parse(json!({"env": {"A": "1", "B": "2"}, "uid": 2, "mode": "0600"})).unwrap());
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let refused = |fields| parse(fields).unwrap_err();
        assert!(
            refused(json!({"envs": {}}))
                .starts_with("parameters: envs: unknown field `envs`, expected one of")
        );
        assert!(
            refused(json!({"env": {"1A": "x"}}))
                .starts_with("parameters: env.1A: environment variable \"1A\"")
        );
        assert!(refused(json!({"uid": -1})).starts_with("parameters: uid: invalid value"));
        assert!(refused(json!({"mode": "999"})).starts_with("parameters: mode: mode \"999\""));
        let other = Parameters::parse(&json!({"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig"}));
        assert!(other.unwrap_err().to_string().starts_with("parameters of kind \"GpuConfig\" in"));
        for odd in [json!(null), json!([]), json!("x"), json!({})] {
            assert!(Parameters::parse(&odd).is_err());
        }
    }
}
