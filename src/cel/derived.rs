//! Attributes that an expression calculates.

use super::{
    CompileError, Cost, DeviceInput, Features, Program, RuntimeError,
    types::{Object, Type},
    value::Value,
};

/// An expression that gives an attribute.
#[derive(Debug, Clone)]
pub struct Derivation(Program);

/// The value of an attribute that was calculated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Derived {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    String(String),
    /// A semantic version.
    Version(String),
    /// Several of these.
    Bools(Vec<bool>),
    /// Several of these.
    Ints(Vec<i64>),
    /// Several of these, or nothing of any kind.
    Strings(Vec<String>),
    /// Several of these.
    Versions(Vec<String>),
}

/// Makes a derivation of an expression.
pub fn compile_attribute(expression: &str, features: Features) -> Result<Derivation, CompileError> {
    let allows_lists = features.list_types || features.is_stored();
    let is_allowed = |found: &Type| match found {
        Type::List(element) if allows_lists => is_element(element),
        other => is_element(other),
    };
    let refuse = |found: String| {
        if allows_lists {
            CompileError::NoAttributeOrList { found }
        } else {
            CompileError::NoAttribute { found }
        }
    };
    super::program(expression, features, is_allowed, refuse).map(Derivation)
}

fn is_element(found: &Type) -> bool {
    matches!(
        found,
        Type::Bool | Type::Int | Type::String | Type::Any | Type::Dyn | Type::Object(Object::Semver)
    )
}

impl Derivation {
    /// The attribute of a device, and what it cost to find out.
    pub fn value(&self, device: &DeviceInput) -> Result<(Derived, Cost), RuntimeError> {
        let (value, cost) = self.0.evaluate(device)?;
        let derived = derived(&value).map_err(|message| RuntimeError::Failed { message, cost })?;
        Ok((derived, cost))
    }
}

fn derived(value: &Value) -> Result<Derived, String> {
    match (scalar(value), value) {
        (Some(scalar), _) => Ok(scalar),
        (None, Value::List(list)) => derived_list(list),
        (None, _) => Err(format!("unsupported CEL return type: {}", go_type(value))),
    }
}

fn scalar(value: &Value) -> Option<Derived> {
    Some(match value {
        Value::Bool(value) => Derived::Bool(*value),
        Value::Int(number) => Derived::Int(*number),
        Value::String(text) => Derived::String(text.to_string()),
        Value::Semver(version) => Derived::Version(version.to_string()),
        // A type is known by its name, and an optional is what it holds.
        Value::Type(name) => Derived::String((*name).to_owned()),
        Value::Optional(Some(value)) => scalar(value)?,
        _ => return None,
    })
}

/// All elements are as the first one.
fn derived_list(list: &[Value]) -> Result<Derived, String> {
    let Some(first) = list.first() else { return Ok(Derived::Strings(Vec::new())) };
    match scalar(first) {
        Some(Derived::Bool(_)) => elements(list, "bool", |element| match element {
            Derived::Bool(value) => Some(value),
            _ => None,
        })
        .map(Derived::Bools),
        Some(Derived::Int(_)) => elements(list, "int", |element| match element {
            Derived::Int(number) => Some(number),
            _ => None,
        })
        .map(Derived::Ints),
        Some(Derived::String(_)) => elements(list, "string", |element| match element {
            Derived::String(text) => Some(text),
            _ => None,
        })
        .map(Derived::Strings),
        Some(Derived::Version(_)) => elements(list, "semver", |element| match element {
            Derived::Version(text) => Some(text),
            _ => None,
        })
        .map(Derived::Versions),
        _ => Err(format!("unsupported list element type: {}", go_type(first))),
    }
}

fn elements<T>(list: &[Value], kind: &str, of: impl Fn(Derived) -> Option<T>) -> Result<Vec<T>, String> {
    let element = |(index, value): (usize, &Value)| {
        scalar(value).and_then(&of).ok_or_else(|| {
            format!("expected list element at index {index} to be {kind}, got {}", go_type(value))
        })
    };
    list.iter().enumerate().map(element).collect()
}

/// What the reference calls what a value holds.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "structpb.NullValue",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Uint(_) => "uint64",
        Value::Double(_) => "float64",
        Value::String(_) | Value::Type(_) => "string",
        Value::Bytes(_) => "[]uint8",
        Value::Duration(_) => "time.Duration",
        Value::Timestamp(_) => "time.Time",
        Value::List(_) => "[]ref.Val",
        Value::Map(_) => "map[ref.Val]ref.Val",
        Value::Optional(None) => "<nil>",
        Value::Optional(Some(value)) => go_type(value),
        Value::Quantity(_) => "*resource.Quantity",
        Value::Semver(_) => "semver.Version",
        Value::Url(_) => "*url.URL",
        Value::Ip(_) => "netip.Addr",
        Value::Cidr(_) => "netip.Prefix",
        Value::Format(_) => "cel.Format",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cel::{Attribute, Environment, Version},
        device::{Amount, Format},
    };

    const FEATURES: Features = Features {
        consumable_capacity: true,
        list_types: false,
        version: Version::V1_37,
        environment: Environment::Stored,
    };

    fn value(expression: &str) -> Result<Derived, String> {
        let attributes =
            [("text", Attribute::string("fish")), ("version", Attribute::version("1.2.3+build"))];
        let capacity = [("memory", Amount::whole(5, Format::DecimalSi))];
        let device = DeviceInput::new("driver", false, attributes, capacity);
        let derivation = compile_attribute(expression, FEATURES).map_err(|error| error.to_string())?;
        derivation.value(&device).map(|(value, _)| value).map_err(|error| error.to_string())
    }

    #[test]
    fn an_attribute_is_of_the_type_of_the_result() {
        for (expression, expected) in [
            ("1 < 2", Derived::Bool(true)),
            ("device.attributes.driver.text.size()", Derived::Int(4)),
            ("device.attributes.driver.text + '!'", Derived::String("fish!".to_owned())),
            ("device.attributes.driver.version", Derived::Version("1.2.3+build".to_owned())),
            ("[true, false]", Derived::Bools(vec![true, false])),
            ("[1, 2]", Derived::Ints(vec![1, 2])),
            ("[semver('1.0.0')]", Derived::Versions(vec!["1.0.0".to_owned()])),
            ("device.attributes.driver.text.split('i')", Derived::Strings(vec!["f".into(), "sh".into()])),
            ("[1].filter(x, x > 1)", Derived::Strings(Vec::new())),
        ] {
            assert_eq!(value(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn what_is_no_attribute_is_refused_as_soon_as_it_is_known() {
        for (expression, expected) in [
            (
                "1.5",
                "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not double",
            ),
            (
                "[[1]]",
                "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not list(list(int))",
            ),
            ("dyn(1.5)", "unsupported CEL return type: float64"),
            ("[dyn(1), dyn('a')]", "expected list element at index 1 to be int, got string"),
            ("[dyn(1.5)]", "unsupported list element type: float64"),
            ("dyn(device.capacity.driver.memory)", "unsupported CEL return type: *resource.Quantity"),
            ("device.attributes.driver.none", "no such key: none"),
        ] {
            assert_eq!(value(expression), Err(expected.to_owned()), "{expression}");
        }
    }
}
