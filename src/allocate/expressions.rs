//! Evaluates the expressions of claims and classes, each compiled once.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use super::{Attribute, Cel, CelError, DeviceView, Features, Release};
use crate::{
    cel::{self, DeviceInput, Environment, Program, Reason, Trace},
    device::Amount,
};

/// The expressions that were met so far.
pub struct Expressions {
    features: cel::Features,
    programs: RefCell<HashMap<String, Result<Program, CelError>>>,
}

impl Expressions {
    /// As a release with these features evaluates them: all of them are in the cluster already.
    #[must_use]
    pub fn new(release: Release, features: &Features) -> Self {
        let version = match release {
            Release::V1_36 => cel::Version::V1_36,
            Release::V1_37 => cel::Version::V1_37,
        };
        let features = cel::Features {
            consumable_capacity: features.consumable_capacity,
            list_types: features.list_type_attributes,
            version,
            environment: Environment::Stored,
        };
        Self { features, programs: RefCell::default() }
    }

    fn with<T>(
        &self,
        expression: &str,
        work: impl FnOnce(&Program) -> Result<T, CelError>,
    ) -> Result<T, CelError> {
        let mut programs = self.programs.borrow_mut();
        if !programs.contains_key(expression) {
            let compiled = cel::compile(expression, self.features);
            let compiled = compiled.map_err(|error| CelError::Compile(error.to_string()));
            programs.insert(expression.to_owned(), compiled);
        }
        match programs.get(expression) {
            Some(Ok(program)) => work(program),
            Some(Err(error)) => Err(error.clone()),
            // Invariant: it was put there above.
            None => Err(CelError::Compile(String::from("the expression is gone"))),
        }
    }
}

impl Expressions {
    /// An expression that can be asked for its reasons; nothing if it is none.
    #[must_use]
    pub fn trace(&self, expression: &str) -> Option<Trace> {
        Trace::new(expression, self.features)
    }

    /// Why an expression does not choose a device.
    #[must_use]
    pub fn why_not(trace: &Trace, device: &DeviceView<'_>) -> Reason {
        on(device, |input| trace.why_not(input))
    }
}

impl Cel for Expressions {
    fn matches(&self, expression: &str, device: &DeviceView<'_>) -> Result<bool, CelError> {
        self.with(expression, |program| {
            let (matches, _) = on(device, |input| program.matches(input))
                .map_err(|error| CelError::Runtime(error.to_string()))?;
            Ok(matches)
        })
    }

    fn attribute(&self, _: &str, _: &DeviceView<'_>) -> Result<Attribute<'static>, CelError> {
        Err(CelError::Compile(String::from("derived attributes are not evaluated here")))
    }
}

/// Does something with what expressions see of a device.
fn on<T>(device: &DeviceView<'_>, work: impl FnOnce(&DeviceInput<'_>) -> T) -> T {
    let attributes: BTreeMap<String, cel::Attribute> =
        device.attributes.iter().map(|(name, value)| ((*name).to_owned(), seen(value))).collect();
    let capacity: BTreeMap<String, Amount> =
        device.capacity.iter().map(|(name, capacity)| ((*name).to_owned(), capacity.value.clone())).collect();
    work(&DeviceInput {
        driver: device.driver,
        attributes: &attributes,
        capacity: &capacity,
        allow_multiple_allocations: Some(device.allow_multiple_allocations),
    })
}

/// What an expression sees of an attribute.
fn seen(attribute: &Attribute<'_>) -> cel::Attribute {
    match attribute {
        Attribute::Bool(value) => cel::Attribute::bool(*value),
        Attribute::Int(value) => cel::Attribute::int(*value),
        Attribute::String(text) => cel::Attribute::string(text),
        Attribute::Version(text) => cel::Attribute::version(text),
        Attribute::Bools(values) => cel::Attribute::bools(values),
        Attribute::Ints(values) => cel::Attribute::ints(values),
        Attribute::Strings(texts) => cel::Attribute::strings(texts),
        Attribute::Versions(texts) => cel::Attribute::versions(texts),
        Attribute::Unknown => cel::Attribute::empty(),
    }
}
