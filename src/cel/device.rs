//! The one variable of an expression.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    error::RuntimeError,
    library::{QuantityValue, parse_version},
    value::{Map, Value},
};
use crate::device::Amount;

/// What expressions see of a device, made once and then only looked at.
#[derive(Debug, Clone)]
pub struct DeviceInput {
    driver: Arc<str>,
    /// The same, as `device.driver`.
    driver_value: Value,
    allow_multiple_allocations: bool,
    attributes: Named<Attribute>,
    capacity: Named<Value>,
    usability: Usability,
}

/// Which attributes expressions can be evaluated with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Usability {
    /// All of them.
    All,
    /// All, where lists are allowed.
    WithLists,
    /// Some with none.
    Flawed,
}

/// What a device has under names, by name.
#[derive(Debug, Clone)]
struct Named<V>(Box<[Entry<V>]>);

#[derive(Debug, Clone)]
struct Entry<V> {
    /// `domain/name`, or `name` in the domain of the driver.
    name: Box<str>,
    /// Where the domain ends.
    slash: Option<usize>,
    value: V,
}

impl<V> Named<V> {
    fn new(all: impl IntoIterator<Item = (impl Into<Box<str>>, V)>) -> Self {
        let all: BTreeMap<Box<str>, V> = all.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let entries = all.into_iter().map(|(name, value)| Entry { slash: name.find('/'), name, value });
        Self(entries.collect())
    }

    /// What has this name; the one that is written with its domain wins.
    fn find(&self, driver: &str, domain: &str, name: &str) -> Option<&V> {
        let of_driver = domain == driver;
        let mut bare = None;
        for entry in &self.0 {
            match entry.slash {
                Some(slash) if entry.name[..slash] == *domain && entry.name[slash + 1..] == *name => {
                    return Some(&entry.value);
                }
                None if of_driver && *entry.name == *name => bare = Some(&entry.value),
                _ => {}
            }
        }
        bare
    }

    /// Domains and names in them.
    fn names<'n>(&'n self, driver: &'n str) -> impl Iterator<Item = (&'n str, &'n str)> {
        self.0.iter().map(move |Entry { name, slash, .. }| match slash {
            Some(slash) => (&name[..*slash], &name[slash + 1..]),
            None => (driver, &**name),
        })
    }
}

/// What is said about an attribute of a kind that is not known.
const UNSUPPORTED: &str = "unsupported attribute value";

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
        Self(Content::Unusable(UNSUPPORTED.to_owned()))
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

impl DeviceInput {
    /// A device with its attributes and capacity; names are `domain/name`, or `name` in the domain of the driver.
    pub fn new(
        driver: &str,
        allow_multiple_allocations: bool,
        attributes: impl IntoIterator<Item = (impl Into<Box<str>>, Attribute)>,
        capacity: impl IntoIterator<Item = (impl Into<Box<str>>, Amount)>,
    ) -> Self {
        let attributes = Named::new(attributes);
        let usabilities = attributes.0.iter().map(|entry| entry.value.usability());
        let capacity = capacity.into_iter().map(|(name, amount)| {
            let value = Value::Quantity(Arc::new(QuantityValue::given(amount)));
            (name, value)
        });
        let driver: Arc<str> = driver.into();
        Self {
            driver_value: Value::String(Arc::clone(&driver)),
            driver,
            allow_multiple_allocations,
            usability: usabilities.max().unwrap_or(Usability::All),
            attributes,
            capacity: Named::new(capacity),
        }
    }

    /// Fails if an attribute is none.
    pub(super) fn check(&self, allows_lists: bool) -> Result<(), RuntimeError> {
        let worst = if allows_lists { Usability::WithLists } else { Usability::All };
        if self.usability <= worst {
            return Ok(());
        }
        let flawed = self.attributes.0.iter().find(|entry| entry.value.usability() > worst);
        flawed.map_or(Ok(()), |Entry { name, value, .. }| {
            let reason = match &value.0 {
                Content::Scalar(_) | Content::List(_) => UNSUPPORTED,
                Content::Unusable(reason) => reason,
            };
            Err(RuntimeError::Attribute { name: name.to_string(), reason: reason.to_owned() })
        })
    }

    /// A field that is neither attributes nor capacity.
    pub(super) fn field(&self, field: &str) -> Option<Value> {
        match field {
            "driver" => Some(self.driver().clone()),
            "allowMultipleAllocations" => Some(Value::Bool(self.allow_multiple_allocations)),
            _ => None,
        }
    }

    /// `device.driver`.
    pub(super) fn driver(&self) -> &Value {
        &self.driver_value
    }

    /// One attribute or capacity.
    pub(super) fn find(&self, side: Side, domain: &str, name: &str) -> Option<&Value> {
        match side {
            Side::Attributes => self.attributes.find(&self.driver, domain, name).map(Attribute::value),
            Side::Capacity => self.capacity.find(&self.driver, domain, name),
        }
    }

    /// All names in a domain.
    pub(super) fn domain(&self, side: Side, domain: &str) -> Value {
        let mut map = Map::default();
        for (_, name) in self.names(side).filter(|(of, _)| *of == domain) {
            if let Some(value) = self.find(side, domain, name) {
                // A text is always a key.
                let _before = map.insert(Value::string(name), value.clone());
            }
        }
        Value::Map(Arc::new(map))
    }

    /// All domains.
    pub(super) fn domains(&self, side: Side) -> Value {
        let mut map = Map::open();
        for (domain, _) in self.names(side) {
            let key = Value::string(domain);
            if map.get(&key).is_none() {
                let _before = map.insert(key, self.domain(side, domain));
            }
        }
        Value::Map(Arc::new(map))
    }

    fn names(&self, side: Side) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        match side {
            Side::Attributes => Box::new(self.attributes.names(&self.driver)),
            Side::Capacity => Box::new(self.capacity.names(&self.driver)),
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
    fn value(&self) -> &Value {
        match &self.0 {
            Content::Scalar(value) | Content::List(value) => value,
            Content::Unusable(_) => &Value::Null,
        }
    }

    fn usability(&self) -> Usability {
        match &self.0 {
            Content::Scalar(_) => Usability::All,
            Content::List(_) => Usability::WithLists,
            Content::Unusable(_) => Usability::Flawed,
        }
    }
}
