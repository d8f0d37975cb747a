//! The way along a path, one step after the other.

use std::sync::Arc;

use super::{
    device::{DeviceInput, Side},
    value::{Failure, Value},
};

/// Where a path has arrived: a device is walked where it is, and copied only as a last resort.
pub(super) enum Place<'e> {
    Device,
    Domains(Side),
    Domain(Side, &'e str),
    Value(Value),
}

impl<'e> Place<'e> {
    /// The value here.
    pub(super) fn value(self, device: &DeviceInput) -> Value {
        match self {
            Self::Device => device.value(),
            Self::Domains(side) => device.domains(side),
            Self::Domain(side, domain) => device.domain(side, domain),
            Self::Value(value) => value,
        }
    }

    /// One step on: nothing if there is nothing and that is allowed.
    pub(super) fn step(
        self,
        (key, constant): (&Value, Option<&'e str>),
        device: &DeviceInput,
        is_test: bool,
    ) -> Result<Option<Self>, Failure> {
        let missing = |failure: fn(&Value) -> Failure| if is_test { Ok(None) } else { Err(failure(key)) };
        match (self, constant) {
            (Self::Device, Some(field)) => match Side::of_field(field) {
                Some(side) => Ok(Some(Self::Domains(side))),
                None => match device.field(field) {
                    Some(value) => Ok(Some(Self::Value(value))),
                    None => missing(Failure::no_such_key),
                },
            },
            (Self::Domains(side), Some(domain)) => Ok(Some(Self::Domain(side, domain))),
            (Self::Domain(side, domain), Some(name)) => match device.find(side, domain, name) {
                Some(value) => Ok(Some(Self::Value(value.clone()))),
                None => missing(Failure::no_such_key),
            },
            (place, _) => match place.value(device) {
                Value::Map(map) => match map.find(key) {
                    Some(value) => Ok(Some(Self::Value(value))),
                    None => missing(Failure::no_such_key),
                },
                Value::List(list) => {
                    let found = index(key)?.and_then(|index| list.get(index));
                    match found {
                        Some(value) => Ok(Some(Self::Value(value.clone()))),
                        None => missing(|key| Failure::because(format!("index out of bounds: {key}"))),
                    }
                }
                Value::Optional(Some(inner)) => {
                    Self::Value(Arc::unwrap_or_clone(inner)).step((key, constant), device, is_test)
                }
                _ if is_test => Ok(None),
                _ => Err(Failure::no_such_key(key)),
            },
        }
    }
}

/// The place in a list that a key means, if it can be in one.
fn index(key: &Value) -> Result<Option<usize>, Failure> {
    Ok(match key {
        Value::Int(index) => usize::try_from(*index).ok(),
        Value::Uint(index) => usize::try_from(*index).ok(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and what is too large is not there"
        )]
        Value::Double(index) if index.fract() == 0.0 => usize::try_from(*index as i64).ok(),
        other => {
            let found = other.type_name();
            return Err(Failure::because(format!("unsupported index type '{found}' in list")));
        }
    })
}

/// A key that is either in the program or was computed.
pub(super) enum Key<'e> {
    Constant(&'e Value),
    Computed(Value),
}

impl<'e> Key<'e> {
    pub(super) fn as_ref(&self) -> (&Value, Option<&'e str>) {
        match self {
            Self::Constant(value @ Value::String(text)) => (value, Some(text)),
            Self::Constant(value) => (value, None),
            Self::Computed(value) => (value, None),
        }
    }
}
