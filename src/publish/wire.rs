//! Slices in the words of the API version that the server speaks.
//!
//! `v1beta2` is `v1` under another name. `v1beta1` puts everything but a device's name one level deeper.

use serde_json::{Map, Value};

use crate::api_version::ApiVersion;

/// From `v1` to what the server speaks.
pub(super) fn encode(version: ApiVersion, mut spec: Value) -> Value {
    if version == ApiVersion::V1beta1 {
        for device in devices(&mut spec) {
            if let Value::Object(fields) = device {
                let name = fields.remove("name").unwrap_or_default();
                let basic = std::mem::take(fields);
                fields.extend([("name".to_owned(), name), ("basic".to_owned(), Value::Object(basic))]);
            }
        }
    }
    spec
}

/// From what the server speaks to `v1`.
pub(super) fn decode(version: ApiVersion, mut spec: Value) -> Value {
    if version == ApiVersion::V1beta1 {
        for device in devices(&mut spec) {
            if let Value::Object(fields) = device {
                let basic = fields.remove("basic");
                fields.extend(basic.and_then(|basic| basic.as_object().cloned()).unwrap_or_else(Map::new));
            }
        }
    }
    spec
}

fn devices(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    spec.get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn older_versions_say_the_same() {
        let spec = json!({"driver": "d", "devices": [{"name": "a", "attributes": {"x": {"int": 1}}}, {"name": "b"}]});
        let older = encode(ApiVersion::V1beta1, spec.clone());
        assert_eq!(older["devices"][0], json!({"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}));
        for version in ApiVersion::ALL {
            assert_eq!(decode(version, encode(version, spec.clone())), spec);
        }
    }
}
