//! The one variable of an expression.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    error::RuntimeError,
    library::{QuantityValue, parse_version},
    value::{Map, Value},
};
use crate::device::Amount;

/// What expressions see of a device. Names are `domain/name`, or `name` in the domain of the driver.
#[derive(Debug, Clone, Copy)]
pub struct DeviceInput<'d> {
    /// Whose device it is.
    pub driver: &'d str,
    /// What it is.
    pub attributes: &'d BTreeMap<String, Attribute>,
    /// How much of it there is.
    pub capacity: &'d BTreeMap<String, Amount>,
    /// Whether several claims can have it at the same time, if that is said.
    pub allow_multiple_allocations: Option<bool>,
}

/// The value of an attribute, made once and then only copied.
#[derive(Debug, Clone)]
pub struct Attribute(Content);

#[derive(Debug, Clone)]
enum Content {
    Scalar(Value),
    List(Value),
    /// Every expression fails on a device that has one of these.
    Unusable(String),
}

impl Attribute {
    /// True or false.
    #[must_use]
    pub fn bool(value: bool) -> Self {
        Self(Content::Scalar(Value::Bool(value)))
    }

    /// A whole number.
    #[must_use]
    pub fn int(value: i64) -> Self {
        Self(Content::Scalar(Value::Int(value)))
    }

    /// A text.
    #[must_use]
    pub fn string(value: &str) -> Self {
        Self(Content::Scalar(Value::string(value)))
    }

    /// A version; one that is none is kept, and found when an expression is evaluated.
    #[must_use]
    pub fn version(text: &str) -> Self {
        match Self::parsed(text) {
            Ok(version) => Self(Content::Scalar(version)),
            Err(reason) => Self(Content::Unusable(reason)),
        }
    }

    /// Several of true and false.
    #[must_use]
    pub fn bools(values: &[bool]) -> Self {
        Self(Content::List(Value::list(values.iter().copied().map(Value::Bool))))
    }

    /// Several whole numbers.
    #[must_use]
    pub fn ints(values: &[i64]) -> Self {
        Self(Content::List(Value::list(values.iter().copied().map(Value::Int))))
    }

    /// Several texts.
    #[must_use]
    pub fn strings<S: AsRef<str>>(values: &[S]) -> Self {
        Self(Content::List(Value::strings(values.iter().map(AsRef::as_ref))))
    }

    /// Several versions.
    #[must_use]
    pub fn versions<S: AsRef<str>>(texts: &[S]) -> Self {
        let versions: Result<Vec<_>, _> = texts.iter().map(|text| Self::parsed(text.as_ref())).collect();
        match versions {
            Ok(versions) => Self(Content::List(Value::list(versions))),
            Err(reason) => Self(Content::Unusable(reason)),
        }
    }

    /// An attribute without a value.
    #[must_use]
    pub fn empty() -> Self {
        Self(Content::Unusable("unsupported attribute value".to_owned()))
    }

    fn parsed(text: &str) -> Result<Value, String> {
        match parse_version(text) {
            Ok(version) => Ok(Value::Semver(Arc::new(version))),
            Err(reason) => Err(format!("parse semantic version: {reason}")),
        }
    }
}

/// The two groups of names that a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// What it is.
    Attributes,
    /// How much of it there is.
    Capacity,
}

impl Side {
    pub(super) fn of_field(field: &str) -> Option<Self> {
        match field {
            "attributes" => Some(Self::Attributes),
            "capacity" => Some(Self::Capacity),
            _ => None,
        }
    }
}

impl<'d> DeviceInput<'d> {
    /// Fails if an attribute is none.
    pub(super) fn check(&self, allows_lists: bool) -> Result<(), RuntimeError> {
        for (name, attribute) in self.attributes {
            let reason = match &attribute.0 {
                Content::Scalar(_) => continue,
                Content::List(_) if allows_lists => continue,
                Content::List(_) => "unsupported attribute value",
                Content::Unusable(reason) => reason,
            };
            return Err(RuntimeError::Attribute { name: name.clone(), reason: reason.to_owned() });
        }
        Ok(())
    }

    fn split<'n>(&'n self, name: &'n str) -> (&'n str, &'n str) {
        name.split_once('/').unwrap_or((self.driver, name))
    }

    /// A field that is neither attributes nor capacity.
    pub(super) fn field(&self, field: &str) -> Option<Value> {
        match field {
            "driver" => Some(Value::string(self.driver)),
            "allowMultipleAllocations" => {
                Some(Value::Bool(self.allow_multiple_allocations.unwrap_or_default()))
            }
            _ => None,
        }
    }

    /// One attribute or capacity; the name with a domain wins.
    pub(super) fn find(&self, side: Side, domain: &str, name: &str) -> Option<Value> {
        let (attributes, capacity) = (self.attributes, self.capacity);
        match side {
            Side::Attributes => self.pick(attributes, domain, name).map(Attribute::value),
            Side::Capacity => self.pick(capacity, domain, name).map(capacity_value),
        }
    }

    fn pick<V>(&self, all: &'d BTreeMap<String, V>, domain: &str, name: &str) -> Option<&'d V> {
        let qualified = all.iter().find(|(full, _)| {
            full.strip_prefix(domain).and_then(|rest| rest.strip_prefix('/')) == Some(name)
        });
        match qualified {
            Some((_, value)) => Some(value),
            None if domain == self.driver && !name.contains('/') => all.get(name),
            None => None,
        }
    }

    /// All names in a domain.
    pub(super) fn domain(&self, side: Side, domain: &str) -> Value {
        let mut map = Map::default();
        for name in self.names(side).filter(|name| self.split(name).0 == domain) {
            let id = self.split(name).1;
            if let Some(value) = self.find(side, domain, id) {
                // A text is always a key.
                let _before = map.insert(Value::string(id), value);
            }
        }
        Value::Map(Arc::new(map))
    }

    /// All domains.
    pub(super) fn domains(&self, side: Side) -> Value {
        let mut map = Map::open();
        for name in self.names(side) {
            let domain = self.split(name).0;
            let key = Value::string(domain);
            if map.get(&key).is_none() {
                let _before = map.insert(key, self.domain(side, domain));
            }
        }
        Value::Map(Arc::new(map))
    }

    fn names(&self, side: Side) -> Box<dyn Iterator<Item = &'d str> + 'd> {
        match side {
            Side::Attributes => Box::new(self.attributes.keys().map(String::as_str)),
            Side::Capacity => Box::new(self.capacity.keys().map(String::as_str)),
        }
    }

    /// The device itself, as the map that the reference makes of it.
    pub(super) fn value(&self) -> Value {
        let mut map = Map::default();
        for field in ["driver", "allowMultipleAllocations", "attributes", "capacity"] {
            let value = match Side::of_field(field) {
                Some(side) => self.domains(side),
                None => self.field(field).unwrap_or(Value::Null),
            };
            let _before = map.insert(Value::string(field), value);
        }
        Value::Map(Arc::new(map))
    }
}

impl Attribute {
    fn value(&self) -> Value {
        match &self.0 {
            Content::Scalar(value) | Content::List(value) => value.clone(),
            Content::Unusable(_) => Value::Null,
        }
    }
}

fn capacity_value(quantity: &Amount) -> Value {
    Value::Quantity(Arc::new(QuantityValue::given(quantity.clone())))
}
