//! An expression in which every name means something.

use super::{
    ast::{Literal, SelectMode},
    library::Declaration,
};

/// An expression of which the names are resolved.
#[derive(Debug, Clone)]
pub(super) enum Checked {
    Literal(Literal),
    /// The name of a type, as a value.
    TypeName(&'static str),
    Device,
    /// A variable of a fold.
    Local(usize),
    Select {
        operand: Box<Self>,
        field: String,
        mode: SelectMode,
    },
    Index {
        operand: Box<Self>,
        index: Box<Self>,
        is_optional: bool,
    },
    Call(Resolved),
    List(Vec<(Self, bool)>),
    Map(Vec<(Self, Self, bool)>),
    Fold(Box<CheckedFold>),
}

/// A call with the function that it means.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) function: String,
    pub(super) declaration: &'static Declaration,
    /// The only overload that fits, if it is the only one.
    pub(super) overload: Option<&'static str>,
    /// The target first, if there is one.
    pub(super) args: Vec<Checked>,
}

#[derive(Debug, Clone)]
pub(super) struct CheckedFold {
    pub(super) range: Checked,
    /// The place of the accumulator; the variables are in the places behind it.
    pub(super) slot: usize,
    pub(super) has_second: bool,
    pub(super) init: Checked,
    pub(super) condition: Checked,
    pub(super) step: Checked,
    pub(super) result: Checked,
}
