//! Device selectors: the expressions of Kubernetes' Common Expression Language that a claim or a device class
//! chooses devices with.
//!
//! [`compile`] checks an expression once; [`Program::matches`] evaluates it on one device after the other. The
//! answer, the cost and whether there is an error are those of the reference implementation, because a
//! selector must mean the same here and in the scheduler. No text makes either of them panic, and both end:
//! a text is bounded in length and depth, and an evaluation in its cost.

mod args;
mod ast;
mod check;
mod checked;
mod cost;
mod derived;
mod device;
mod error;
mod eval;
mod lexer;
mod library;
mod literals;
mod macros;
mod parser;
mod place;
mod plan;
mod program;
mod similar;
mod trace;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use self::similar::similar;
pub use self::{
    cost::Cost,
    derived::{Derivation, Derived, compile_attribute},
    device::{Attribute, DeviceInput, Side},
    error::{CompileError, Flaws, RuntimeError},
    trace::{Reason, Reference, Seen, Trace},
};
use self::{eval::Stop, program::Node, types::Type};

/// How long an expression may be, in bytes.
pub const MAX_LENGTH: usize = 10 * 1024;

/// What differs between clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Whether several claims can share a device by its capacity.
    pub consumable_capacity: bool,
    /// Whether attributes can be lists.
    pub list_types: bool,
    /// Which version's behaviour is wanted.
    pub version: Version,
    /// Where the expression comes from.
    pub environment: Environment,
}

/// A version of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.36
    V1_36,
    /// 1.37
    V1_37,
}

/// What an expression may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// It is already in the cluster, where a feature may have been on when it came.
    Stored,
    /// It is new: only what is on is allowed.
    New,
}

impl Features {
    fn is_stored(self) -> bool {
        self.environment == Environment::Stored
    }

    fn attribute_type(self) -> Type {
        if self.list_types || (self.is_stored() && self.version >= Version::V1_37) {
            Type::Dyn
        } else {
            Type::Any
        }
    }

    fn has_multiple_allocations(self) -> bool {
        self.consumable_capacity || self.is_stored()
    }

    fn has_includes(self) -> bool {
        self.list_types || self.is_stored()
    }

    fn allows_lists(self) -> bool {
        self.list_types || self.version >= Version::V1_37
    }
}

/// An expression that can be evaluated.
#[derive(Debug, Clone)]
pub struct Program {
    root: Node,
    slots: usize,
    features: Features,
}

/// Makes a program of an expression.
pub fn compile(expression: &str, features: Features) -> Result<Program, CompileError> {
    let attribute = features.attribute_type();
    let is_decision = |found: &Type| *found == Type::Bool || *found == attribute;
    program(expression, features, is_decision, |found| CompileError::Result { found })
}

/// Makes a program of an expression whose result is of a type that is allowed.
fn program(
    expression: &str,
    features: Features,
    is_allowed: impl FnOnce(&Type) -> bool,
    refuse: impl FnOnce(String) -> CompileError,
) -> Result<Program, CompileError> {
    if expression.len() > MAX_LENGTH {
        return Err(CompileError::Long { length: expression.len() });
    }
    let flawed = |flaws| CompileError::Flawed(Flaws::new(expression, flaws));
    let parsed = parser::parse(expression).map_err(|flaw| flawed(vec![flaw]))?;
    let checked = check::check(&parsed, features).map_err(flawed)?;
    if !is_allowed(&checked.result) {
        return Err(refuse(checked.result.declared()));
    }
    let constant = |failure: value::Failure| CompileError::Constant { reason: failure.to_string() };
    let root = plan::plan(&checked.expression, features.version).map_err(constant)?;
    Ok(Program { root, slots: checked.slots, features })
}

impl Program {
    /// Whether a device is selected, and what it cost to find out.
    pub fn matches(&self, device: &DeviceInput) -> Result<(bool, Cost), RuntimeError> {
        let (value, cost) = self.evaluate(device)?;
        match value.decision() {
            Ok(matches) => Ok((matches, cost)),
            Err(reason) => Err(RuntimeError::NotBool { found: value.type_name().to_owned(), reason, cost }),
        }
    }

    fn evaluate(&self, device: &DeviceInput) -> Result<(value::Value, Cost), RuntimeError> {
        device.check(self.features.allows_lists())?;
        let mut evaluation = eval::Evaluation::new(device, self.slots);
        let result = evaluation.node(&self.root);
        let cost = evaluation.cost();
        match result {
            Ok(value) => Ok((value, cost)),
            Err(Stop::CostLimit) => Err(RuntimeError::CostLimit { cost }),
            Err(Stop::Failed(failure)) => Err(RuntimeError::Failed { message: failure.to_string(), cost }),
        }
    }
}
