//! What expressions see of a device, and who evaluates them.
//!
//! Selectors are evaluated when the search reaches a device, and not before: an expression that fails on a device
//! which nobody looks at is no error.

use std::collections::BTreeMap;

use super::{Attribute, Capacity, Device};

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
}

impl<'a> DeviceView<'a> {
    /// A device of a driver.
    #[must_use]
    pub fn of(driver: &'a str, device: &'a Device<'a>) -> Self {
        Self {
            driver,
            allow_multiple_allocations: device.allow_multiple_allocations,
            attributes: &device.attributes,
            capacity: &device.capacity,
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
