//! What stands in an object that nobody reads.

use serde_json::Value;

/// The places of fields that an object has, and what it was read as has not. One without a value is none.
pub(super) fn fields(object: &Value, known: &Value) -> Vec<String> {
    match (object, known) {
        (Value::Object(object), Value::Object(known)) => {
            let given = object.iter().filter(|(_, value)| !value.is_null());
            given
                .flat_map(|(name, value)| match known.get(name) {
                    None => vec![name.clone()],
                    Some(known) => below(name, fields(value, known)),
                })
                .collect()
        }
        (Value::Array(object), Value::Array(known)) => {
            let pairs = object.iter().zip(known).enumerate();
            pairs
                .flat_map(|(index, (value, known))| below(&format!("[{index}]"), fields(value, known)))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The same places, seen from further above.
fn below(name: &str, places: Vec<String>) -> Vec<String> {
    let place = |place: String| {
        let dot = if place.starts_with('[') { "" } else { "." };
        format!("{name}{dot}{place}")
    };
    places.into_iter().map(place).collect()
}
