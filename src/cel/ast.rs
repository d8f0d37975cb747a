//! What an expression says, after macros are expanded.

use std::ops::Range;

/// Where an expression begins in its text, in bytes.
pub(super) type Offset = usize;

/// The part of the text that an expression is, in bytes.
pub(super) type Span = Range<Offset>;

/// One expression with the place that messages point at.
#[derive(Debug, Clone)]
pub(super) struct Expr {
    pub(super) at: Offset,
    /// Empty where a macro made it up.
    pub(super) span: Span,
    pub(super) kind: Kind,
    /// How many levels it has: everything that walks it is bounded by this.
    depth: u16,
    /// How many expressions it is made of: macros repeat what they are used on.
    size: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Literal(Literal),
    Ident(String),
    Select(Box<Select>),
    /// `&&` and `||` have any number of arguments, everything else as many as its overload.
    Call(Box<Call>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// `name{field: value}`: parsed, because only the checker knows that there is no such type.
    Message(String),
    Fold(Box<Fold>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone)]
pub(super) struct Select {
    pub(super) operand: Expr,
    pub(super) field: String,
    pub(super) mode: SelectMode,
}

/// What a selection asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectMode {
    /// `a.b`
    Value,
    /// `a.?b`
    Optional,
    /// `has(a.b)`
    Presence,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) function: String,
    pub(super) target: Option<Expr>,
    pub(super) args: Vec<Expr>,
}

#[derive(Debug, Clone)]
pub(super) struct Element {
    pub(super) value: Expr,
    /// `[?value]`
    pub(super) is_optional: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: Expr,
    pub(super) value: Expr,
    /// `{?key: value}`
    pub(super) is_optional: bool,
}

/// What every macro over a range becomes.
#[derive(Debug, Clone)]
pub(super) struct Fold {
    pub(super) range: Expr,
    pub(super) variable: String,
    pub(super) second_variable: Option<String>,
    pub(super) accumulator: String,
    pub(super) init: Expr,
    pub(super) condition: Expr,
    pub(super) step: Expr,
    pub(super) result: Expr,
}

impl Expr {
    pub(super) fn new(at: Offset, kind: Kind) -> Self {
        let (depth, size) = match &kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => (0, 0),
            Kind::Select(select) => extent([&select.operand]),
            Kind::Call(call) => extent(call.target.iter().chain(&call.args)),
            Kind::List(elements) => extent(elements.iter().map(|element| &element.value)),
            Kind::Map(entries) => extent(entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            Kind::Fold(fold) => extent([&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]),
        };
        Self { at, span: at..at, kind, depth: depth.saturating_add(1), size: size.saturating_add(1) }
    }

    /// The same, with the part of the text that it is.
    pub(super) fn spanning(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    pub(super) fn depth(&self) -> u16 {
        self.depth
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn ident(at: Offset, name: impl Into<String>) -> Self {
        Self::new(at, Kind::Ident(name.into()))
    }

    pub(super) fn literal(at: Offset, literal: Literal) -> Self {
        Self::new(at, Kind::Literal(literal))
    }

    pub(super) fn call(at: Offset, function: &str, args: Vec<Self>) -> Self {
        Self::new(at, Kind::Call(Box::new(Call { function: function.to_owned(), target: None, args })))
    }

    pub(super) fn member_call(at: Offset, function: &str, target: Self, args: Vec<Self>) -> Self {
        let call = Call { function: function.to_owned(), target: Some(target), args };
        Self::new(at, Kind::Call(Box::new(call)))
    }

    pub(super) fn select(at: Offset, operand: Self, field: String, mode: SelectMode) -> Self {
        Self::new(at, Kind::Select(Box::new(Select { operand, field, mode })))
    }

    pub(super) fn list(at: Offset, values: Vec<Self>) -> Self {
        let element = |value| Element { value, is_optional: false };
        Self::new(at, Kind::List(values.into_iter().map(element).collect()))
    }

    /// The name that an identifier or a chain of selections spells, e.g. `format.named`.
    pub(super) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select(select) if select.mode == SelectMode::Value => {
                Some(format!("{}.{}", select.operand.qualified_name()?, select.field))
            }
            _ => None,
        }
    }
}

/// How deep the deepest is, and how large all are together.
fn extent<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> (u16, u32) {
    expressions.into_iter().fold((0, 0), |(depth, size), expression| {
        (depth.max(expression.depth), size.saturating_add(expression.size))
    })
}
