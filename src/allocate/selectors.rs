//! What expressions see of a device, and who evaluates them.
//!
//! Selectors are evaluated when the search reaches a device, and not before: an expression that fails on a device
//! which nobody looks at is no error.

use std::{collections::BTreeMap, sync::OnceLock};

use super::{Attribute, Capacity, Device};
use crate::cel::{self, DeviceInput};

/// What an expression sees of a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceView<'a> {
    /// `device.driver`, and the domain of names without one.
    pub driver: &'a str,
    /// `device.allowMultipleAllocations`.
    pub allow_multiple_allocations: bool,
    /// `device.attributes`, by name with or without a domain.
    pub attributes: &'a BTreeMap<&'a str, Attribute<'a>>,
    /// `device.capacity`, by name with or without a domain.
    pub capacity: &'a BTreeMap<&'a str, Capacity>,
    seen: &'a Seen,
}

/// A device in the form that expressions are evaluated on, made when the first one is.
#[derive(Debug, Clone, Default)]
pub struct Seen(OnceLock<Box<DeviceInput>>);

impl<'a> DeviceView<'a> {
    /// A device of a driver, which is always the same for a device.
    #[must_use]
    pub fn of(driver: &'a str, device: &'a Device<'a>) -> Self {
        Self {
            driver,
            allow_multiple_allocations: device.allow_multiple_allocations,
            attributes: &device.attributes,
            capacity: &device.capacity,
            seen: &device.seen,
        }
    }

    /// What expressions are evaluated on.
    pub(super) fn input(&self) -> &'a DeviceInput {
        self.seen.0.get_or_init(|| {
            let attributes = self.attributes.iter().map(|(name, value)| (*name, value.seen()));
            let capacity = self.capacity.iter().map(|(name, capacity)| (*name, capacity.value.clone()));
            Box::new(DeviceInput::new(self.driver, self.allow_multiple_allocations, attributes, capacity))
        })
    }
}

impl Attribute<'_> {
    /// What an expression sees of it.
    fn seen(&self) -> cel::Attribute {
        match self {
            Self::Bool(value) => cel::Attribute::bool(*value),
            Self::Int(value) => cel::Attribute::int(*value),
            Self::String(text) => cel::Attribute::string(text),
            Self::Version(text) => cel::Attribute::version(text),
            Self::Bools(values) => cel::Attribute::bools(values),
            Self::Ints(values) => cel::Attribute::ints(values),
            Self::Strings(texts) => cel::Attribute::strings(texts),
            Self::Versions(texts) => cel::Attribute::versions(texts),
            Self::Unknown => cel::Attribute::empty(),
        }
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// It is not an expression.
    #[error("CEL compile error: {0}")]
    Compile(String),
    /// It fails on this device.
    #[error("CEL runtime error: {0}")]
    Runtime(String),
}

/// Evaluates expressions. The same expression gives the same value for the same device.
pub trait Cel {
    /// Whether a selector matches a device.
    fn matches(&self, expression: &str, device: &DeviceView<'_>) -> Result<bool, CelError>;

    /// The value of a derived attribute.
    fn attribute(&self, expression: &str, device: &DeviceView<'_>) -> Result<Attribute<'static>, CelError>;
}
