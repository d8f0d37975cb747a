//! Evaluates the expressions of claims and classes, each compiled once.

use std::{cell::RefCell, collections::HashMap};

use super::{Attribute, Cel, CelError, DeviceView, Features, Release};
use crate::cel::{self, Derivation, Derived, Environment, Program, Reason, Trace};

/// The expressions that were met so far.
pub struct Expressions {
    features: cel::Features,
    selectors: RefCell<Compiled<Program>>,
    derivations: RefCell<Compiled<Derivation>>,
}

/// Expressions of one kind.
struct Compiled<P> {
    all: Vec<(String, Result<P, CelError>)>,
    /// Where each one is.
    places: HashMap<String, usize>,
    /// Where the last ones are, which are found without hashing a long text.
    recent: Vec<usize>,
}

impl<P> Default for Compiled<P> {
    fn default() -> Self {
        Self { all: Vec::new(), places: HashMap::new(), recent: Vec::new() }
    }
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
        Self { features, selectors: RefCell::default(), derivations: RefCell::default() }
    }
}

impl<P> Compiled<P> {
    /// Those of one request, which are asked for again with the next device.
    const RECENT: usize = 4;

    /// What an expression is compiled to, now or before.
    fn get(
        &mut self,
        expression: &str,
        compile: impl FnOnce(&str) -> Result<P, cel::CompileError>,
    ) -> Result<&P, CelError> {
        let place = self.place(expression, compile);
        self.all[place].1.as_ref().map_err(CelError::clone)
    }

    fn place(
        &mut self,
        expression: &str,
        compile: impl FnOnce(&str) -> Result<P, cel::CompileError>,
    ) -> usize {
        let is_it = |place: &&usize| self.all[**place].0 == expression;
        if let Some(&place) = self.recent.iter().find(is_it) {
            return place;
        }
        let place = self.places.get(expression).copied().unwrap_or_else(|| {
            let compiled = compile(expression).map_err(|error| CelError::Compile(error.to_string()));
            self.all.push((expression.to_owned(), compiled));
            self.places.insert(expression.to_owned(), self.all.len() - 1);
            self.all.len() - 1
        });
        self.recent.truncate(Self::RECENT - 1);
        self.recent.insert(0, place);
        place
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
        trace.why_not(device.input())
    }
}

impl Cel for Expressions {
    fn matches(&self, expression: &str, device: &DeviceView<'_>) -> Result<bool, CelError> {
        let mut selectors = self.selectors.borrow_mut();
        let program = selectors.get(expression, |text| cel::compile(text, self.features))?;
        match program.matches(device.input()) {
            Ok((matches, _)) => Ok(matches),
            Err(error) => Err(CelError::Runtime(error.to_string())),
        }
    }

    fn attribute(&self, expression: &str, device: &DeviceView<'_>) -> Result<Attribute<'static>, CelError> {
        let mut derivations = self.derivations.borrow_mut();
        let derivation = derivations.get(expression, |text| cel::compile_attribute(text, self.features))?;
        match derivation.value(device.input()) {
            Ok((derived, _)) => Ok(derived.into()),
            Err(error) => Err(CelError::Runtime(error.to_string())),
        }
    }
}

impl From<Derived> for Attribute<'static> {
    fn from(derived: Derived) -> Self {
        match derived {
            Derived::Bool(value) => Self::Bool(value),
            Derived::Int(number) => Self::Int(number),
            Derived::String(text) => Self::String(text.into()),
            Derived::Version(text) => Self::Version(text.into()),
            Derived::Bools(values) => Self::Bools(values.into()),
            Derived::Ints(values) => Self::Ints(values.into()),
            Derived::Strings(texts) => Self::Strings(texts.into()),
            Derived::Versions(texts) => Self::Versions(texts.into()),
        }
    }
}
