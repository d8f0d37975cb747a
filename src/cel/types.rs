//! What the checker knows about a value before there is one.

use std::{fmt, sync::Arc};

use super::ast::Literal;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    /// Nothing is known, and everything is allowed.
    Dyn,
    /// The same, but nothing can be iterated: what an attribute is where there are no lists.
    Any,
    /// Something is wrong below, and was said there.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Self>),
    Map(Arc<Self>, Arc<Self>),
    Optional(Arc<Self>),
    /// A type as a value.
    Meta(Arc<Self>),
    Object(Object),
    /// A letter in a declaration.
    Param(char),
    /// Its replacement where the declaration is used.
    Variable(usize),
}

/// What is neither plain nor a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    Device,
    Quantity,
    Semver,
    Url,
    Ip,
    Cidr,
    Format,
}

impl Object {
    pub(super) const ALL: [Self; 7] =
        [Self::Device, Self::Quantity, Self::Semver, Self::Url, Self::Ip, Self::Cidr, Self::Format];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Device => "kubernetes.DRADevice",
            Self::Quantity => "kubernetes.Quantity",
            Self::Semver => "kubernetes.Semver",
            Self::Url => "kubernetes.URL",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Format => "kubernetes.NamedFormat",
        }
    }
}

impl Type {
    /// The type of a literal.
    pub(super) fn of(literal: &Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(_) => Self::Bool,
            Literal::Int(_) => Self::Int,
            Literal::Uint(_) => Self::Uint,
            Literal::Double(_) => Self::Double,
            Literal::String(_) => Self::String,
            Literal::Bytes(_) => Self::Bytes,
        }
    }

    /// The type that has this name.
    pub(super) fn named(name: &str) -> Option<(&'static str, Self)> {
        let plain = [
            ("bool", Self::Bool),
            ("bytes", Self::Bytes),
            ("double", Self::Double),
            ("dyn", Self::Dyn),
            ("int", Self::Int),
            ("list", Self::list(Self::Dyn)),
            ("map", Self::map(Self::Dyn, Self::Dyn)),
            ("null_type", Self::Null),
            ("optional_type", Self::optional(Self::Dyn)),
            ("string", Self::String),
            ("type", Self::Meta(Self::Dyn.into())),
            ("uint", Self::Uint),
            ("google.protobuf.Duration", Self::Duration),
            ("google.protobuf.Timestamp", Self::Timestamp),
        ];
        let objects = Object::ALL.into_iter().map(|object| (object.name(), Self::Object(object)));
        plain.into_iter().chain(objects).find(|(known, _)| *known == name)
    }

    pub(super) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub(super) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Self::Error
    }

    /// The name by which the type would be declared: longer than the one by which it is known.
    pub(super) fn declared(&self) -> String {
        match self {
            Self::Any => "google.protobuf.Any".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::List(element) => format!("list({})", element.declared()),
            Self::Map(key, value) => format!("map({}, {})", key.declared(), value.declared()),
            Self::Optional(value) => format!("optional_type({})", value.declared()),
            Self::Meta(of) => format!("type({})", of.declared()),
            other => other.to_string(),
        }
    }

    /// Whether it can be walked again and again: a map of a type to itself is twice as large as the type.
    pub(super) fn is_small(&self) -> bool {
        self.fits(&mut 1000)
    }

    fn fits(&self, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return false };
        *left = rest;
        match self {
            Self::List(inner) | Self::Optional(inner) | Self::Meta(inner) => inner.fits(left),
            Self::Map(key, value) => key.fits(left) && value.fits(left),
            _ => true,
        }
    }

    /// What an optional holds, or the type itself.
    pub(super) fn unwrap_optional(&self) -> (&Self, bool) {
        match self {
            Self::Optional(value) => (value, true),
            other => (other, false),
        }
    }

    /// The type with its letters replaced by the variables of one use.
    pub(super) fn instance(&self, first: usize) -> Self {
        match self {
            Self::Param(letter) => Self::Variable(first + (*letter as usize - 'A' as usize)),
            Self::List(element) => Self::list(element.instance(first)),
            Self::Map(key, value) => Self::map(key.instance(first), value.instance(first)),
            Self::Optional(value) => Self::optional(value.instance(first)),
            Self::Meta(of) => Self::Meta(Arc::new(of.instance(first))),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Any => "any",
            Self::Error => "!error!",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Object(object) => object.name(),
            Self::List(element) => return write!(formatter, "list({element})"),
            Self::Map(key, value) => return write!(formatter, "map({key}, {value})"),
            Self::Optional(value) => return write!(formatter, "optional_type({value})"),
            Self::Meta(of) => return write!(formatter, "type({of})"),
            Self::Param(letter) => return write!(formatter, "{letter}"),
            Self::Variable(number) => return write!(formatter, "_var{number}"),
        };
        formatter.write_str(name)
    }
}

/// What type variables stand for so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Mapping(Vec<Option<Type>>);

impl Mapping {
    /// The first of so many new variables.
    pub(super) fn fresh(&mut self, count: usize) -> usize {
        let first = self.0.len();
        self.0.resize(first + count, None);
        first
    }

    fn find(&self, variable: usize) -> Option<&Type> {
        self.0.get(variable).and_then(Option::as_ref)
    }

    fn set(&mut self, variable: usize, to: Type) {
        if let Some(place) = self.0.get_mut(variable) {
            *place = Some(to);
        }
    }

    /// Whether `to` can be used as `from`; what that means for variables is kept only then.
    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        if from.len() != to.len() {
            return false;
        }
        let mut trial = self.clone();
        let fits = from.iter().zip(to).all(|(from, to)| trial.fits(from, to));
        if fits {
            *self = trial;
        }
        fits
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Variable(variable) = to {
            match self.stands_for(from, *variable) {
                Substitution::Fits => return true,
                Substitution::Differs => return false,
                Substitution::Circular => {}
            }
        }
        if let Type::Variable(variable) = from {
            return matches!(self.stands_for(to, *variable), Substitution::Fits);
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null | Type::Optional(_) | Type::Object(_) | Type::Duration | Type::Timestamp
            ),
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => {
                self.fits(from, to)
            }
            (Type::Map(from_key, from_value), Type::Map(to_key, to_value)) => {
                self.fits(from_key, to_key) && self.fits(from_value, to_value)
            }
            (from, to) => from == to,
        }
    }

    fn stands_for(&mut self, other: &Type, variable: usize) -> Substitution {
        if *other == Type::Variable(variable) {
            return Substitution::Fits;
        }
        if let Some(current) = self.find(variable).cloned() {
            if *other == current {
                return Substitution::Fits;
            }
            if !self.fits(other, &current) {
                return Substitution::Differs;
            }
            let general = most_general(other, &current).clone();
            if !self.is_within(variable, &general) {
                self.set(variable, general);
            }
            return Substitution::Fits;
        }
        if self.is_within(variable, other) {
            return Substitution::Circular;
        }
        self.set(variable, other.clone());
        Substitution::Fits
    }

    fn is_within(&self, variable: usize, within: &Type) -> bool {
        match within {
            Type::Variable(other) if *other == variable => true,
            Type::Variable(other) => self.find(*other).is_some_and(|other| self.is_within(variable, other)),
            Type::List(inner) | Type::Optional(inner) | Type::Meta(inner) => self.is_within(variable, inner),
            Type::Map(key, value) => self.is_within(variable, key) || self.is_within(variable, value),
            _ => false,
        }
    }

    /// The type without variables that are known.
    pub(super) fn substitute(&self, of: &Type) -> Type {
        self.replaced(of, &Type::Variable)
    }

    /// The type without any variables.
    pub(super) fn finished(&self, of: &Type) -> Type {
        self.replaced(of, &|_| Type::Dyn)
    }

    fn replaced(&self, of: &Type, unknown: &impl Fn(usize) -> Type) -> Type {
        match of {
            Type::Variable(variable) => match self.find(*variable) {
                Some(known) => self.replaced(known, unknown),
                None => unknown(*variable),
            },
            Type::List(element) => Type::list(self.replaced(element, unknown)),
            Type::Map(key, value) => Type::map(self.replaced(key, unknown), self.replaced(value, unknown)),
            Type::Optional(value) => Type::optional(self.replaced(value, unknown)),
            Type::Meta(of) => Type::Meta(Arc::new(self.replaced(of, unknown))),
            other => other.clone(),
        }
    }
}

/// What came of letting a variable stand for a type.
enum Substitution {
    Fits,
    /// It stands for something else.
    Differs,
    /// It would stand for something that it is in.
    Circular,
}

/// The one of two that allows more.
pub(super) fn most_general<'t>(one: &'t Type, other: &'t Type) -> &'t Type {
    if is_as_general(one, other) { one } else { other }
}

fn is_as_general(one: &Type, other: &Type) -> bool {
    if one.is_dyn() || matches!(one, Type::Variable(_)) {
        return true;
    }
    if other.is_dyn() || matches!(other, Type::Variable(_)) {
        return false;
    }
    match (one, other) {
        (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
            is_as_general(one, other)
        }
        (Type::Map(one_key, one_value), Type::Map(other_key, other_value)) => {
            is_as_general(one_key, other_key) && is_as_general(one_value, other_value)
        }
        (Type::Meta(_), Type::Meta(_)) => true,
        (one, other) => one == other,
    }
}
