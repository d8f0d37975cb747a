//! What can be wrong with an expression, and where.

use std::fmt;

use super::{ast::Offset, cost::Cost};

/// Why an expression cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It does not parse, or its types do not fit.
    #[error("compilation failed: {0}")]
    Flawed(Flaws),
    /// It gives something that cannot be a decision.
    #[error("must evaluate to bool or the unknown type, not {found}")]
    Result {
        /// The type that it gives.
        found: String,
    },
    /// It gives something that cannot be an attribute.
    #[error("must evaluate to a primitive scalar (string, integer, boolean, semver), not {found}")]
    NoAttribute {
        /// The type that it gives.
        found: String,
    },
    /// The same, where attributes can be lists.
    #[error(
        "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not {found}"
    )]
    NoAttributeOrList {
        /// The type that it gives.
        found: String,
    },
    /// A part that never changes fails whenever it is evaluated.
    #[error("program instantiation failed: {reason}")]
    Constant {
        /// Why it fails.
        reason: String,
    },
    /// It is longer than the API allows.
    #[error("the expression has {length} bytes, and at most {} are allowed", super::MAX_LENGTH)]
    Long {
        /// How long it is.
        length: usize,
    },
}

/// Why a device is neither selected nor passed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The device has an attribute that no expression can be evaluated with.
    #[error("attribute {name}: {reason}")]
    Attribute {
        /// The attribute.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The evaluation took too long, measured in the unit that the API server counts in.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit {
        /// What it came to before it was stopped.
        cost: Cost,
    },
    /// Something in it failed.
    #[error("{message}")]
    Failed {
        /// Why.
        message: String,
        /// What it came to.
        cost: Cost,
    },
    /// It ended with something that is no decision.
    #[error("CEL result of type {found} could not be converted to bool: {reason}")]
    NotBool {
        /// The type of the result.
        found: String,
        /// Why that is no decision.
        reason: String,
        /// What it came to.
        cost: Cost,
    },
}

impl RuntimeError {
    /// What the evaluation came to, unless it never began.
    #[must_use]
    pub fn cost(&self) -> Option<Cost> {
        match self {
            Self::Attribute { .. } => None,
            Self::CostLimit { cost } | Self::Failed { cost, .. } | Self::NotBool { cost, .. } => Some(*cost),
        }
    }
}

/// A flaw in a text that does not know its text yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    at: Offset,
    message: String,
    hint: Option<String>,
}

impl Flaw {
    pub(super) fn new(at: Offset, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None }
    }

    pub(super) fn syntax(at: Offset, message: impl fmt::Display) -> Self {
        Self::new(at, format!("Syntax error: {message}"))
    }

    pub(super) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

/// All flaws that were found in an expression, by their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaws(Vec<Placed>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    line: usize,
    column: usize,
    text: String,
    flaw: Flaw,
}

impl Flaws {
    /// More than these would only be a consequence of the first ones.
    const MAX: usize = 100;

    pub(super) fn new(text: &str, mut flaws: Vec<Flaw>) -> Self {
        flaws.sort_by_key(|flaw| flaw.at);
        flaws.truncate(Self::MAX);
        Self(flaws.into_iter().map(|flaw| Placed::new(text, flaw)).collect())
    }

    /// The line and the column, both from 1, of the first one.
    #[must_use]
    pub fn place(&self) -> Option<(usize, usize)> {
        self.0.first().map(|placed| (placed.line, placed.column))
    }
}

impl Placed {
    fn new(text: &str, flaw: Flaw) -> Self {
        let before = text.get(..flaw.at).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[start..].split('\n').next().unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            // What would move the caret or disturb a terminal.
            text: line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
            flaw,
        }
    }
}

impl fmt::Display for Flaws {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Placed { line, column, text, flaw }) in self.0.iter().enumerate() {
            let newline = if place == 0 { "" } else { "\n" };
            let dots = ".".repeat(column - 1);
            let message = &flaw.message;
            write!(formatter, "{newline}ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {dots}^")?;
            if let Some(hint) = &flaw.hint {
                write!(formatter, " {hint}")?;
            }
        }
        Ok(())
    }
}
