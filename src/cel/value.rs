//! What an expression works with while it is evaluated.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

use super::{
    library::{Cidr, Format, Ip, QuantityValue, Timestamp, Url, shown_double},
    types::Object,
};

/// A value; a copy of it is cheap.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(Arc<Vec<Self>>),
    Map(Arc<Map>),
    Optional(Option<Arc<Self>>),
    Type(&'static str),
    Quantity(Arc<QuantityValue>),
    Semver(Arc<semver::Version>),
    Url(Arc<Url>),
    Ip(Ip),
    Cidr(Cidr),
    Format(Format),
}

/// Why something has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// No function takes such arguments.
    NoOverload,
    /// It would take far more than the cost of an evaluation allows.
    TooLarge,
    /// For any other reason.
    Because(Cow<'static, str>),
}

impl Failure {
    pub(super) fn because(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Because(reason.into())
    }

    pub(super) fn invalid_key(key: &Value) -> Self {
        Self::because(format!("invalid qualifier type: {}", key.type_name()))
    }

    pub(super) fn no_such_key(key: &Value) -> Self {
        Self::because(format!("no such key: {key}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOverload => formatter.write_str("no such overload"),
            Self::TooLarge => formatter.write_str("a value is too large"),
            Self::Because(reason) => formatter.write_str(reason),
        }
    }
}

/// The longest text that a function makes, in bytes: walking a longer one would cost too much.
pub(super) const MAX_TEXT: usize = 16 << 20;

/// The longest list that a function makes.
pub(super) const MAX_ELEMENTS: usize = 1 << 20;

/// How many values within values are compared: the same one can be in many.
const MAX_COMPARED: usize = 1 << 20;

/// What came of a function.
pub(super) type Outcome = Result<Value, Failure>;

impl Value {
    pub(super) fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    pub(super) fn list(values: impl IntoIterator<Item = Self>) -> Self {
        Self::List(Arc::new(values.into_iter().collect()))
    }

    pub(super) fn strings<S: Into<Arc<str>>>(texts: impl IntoIterator<Item = S>) -> Self {
        Self::list(texts.into_iter().map(Self::string))
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => Object::Quantity.name(),
            Self::Semver(_) => Object::Semver.name(),
            Self::Url(_) => Object::Url.name(),
            Self::Ip(_) => Object::Ip.name(),
            Self::Cidr(_) => Object::Cidr.name(),
            Self::Format(_) => Object::Format.name(),
        }
    }

    /// The type as the reference's messages name it.
    pub(super) fn native_name(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Duration(_) => "types.Duration",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Optional(_) => "*types.Optional",
            Self::Type(_) => "*types.Type",
            Self::Quantity(_) => "cel.Quantity",
            Self::Semver(_) => "cel.Semver",
            Self::Url(_) => "cel.URL",
            Self::Ip(_) => "cel.IP",
            Self::Cidr(_) => "cel.CIDR",
            Self::Format(_) => "cel.Format",
            other => other.type_name(),
        }
    }

    /// Whether something can be selected by it.
    pub(super) fn is_key(&self) -> bool {
        !matches!(self, Self::Null) && Key::of(self).is_some()
    }

    /// What it decides as the result of an expression, or why it does not.
    pub(super) fn decision(&self) -> Result<bool, String> {
        let shown = match self {
            Self::Bool(value) => return Ok(*value),
            Self::Optional(Some(value)) => return value.decision(),
            Self::Optional(None) => return Err("optional.none() dereference".to_owned()),
            Self::Int(_) | Self::Uint(_) => {
                return Err(format!("unsupported type conversion from '{}' to bool", self.type_name()));
            }
            Self::String(_) => return Err("unsupported native conversion from string to 'bool'".to_owned()),
            Self::Type(_) => return Err("type conversion not supported for 'type'".to_owned()),
            Self::Double(_) => "Double",
            Self::Bytes(_) => "Bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Null => "'null_type'",
            Self::Duration(_) => "'Duration'",
            Self::Timestamp(_) => "'Timestamp'",
            Self::Quantity(_) => "'Quantity'",
            Self::Semver(_) => "'Semver'",
            Self::Url(_) => "'URL'",
            Self::Ip(_) => "'IP'",
            Self::Cidr(_) => "'CIDR'",
            Self::Format(_) => "'Format'",
        };
        Err(format!("type conversion error from {shown} to 'bool'"))
    }

    /// Whether it is of a type that only Kubernetes has: these differ in what equality is and costs.
    pub(super) fn is_kubernetes(&self) -> bool {
        matches!(
            self,
            Self::Quantity(_)
                | Self::Semver(_)
                | Self::Url(_)
                | Self::Ip(_)
                | Self::Cidr(_)
                | Self::Format(_)
        )
    }

    /// Whether two values are equal. Kubernetes' own types refuse to be compared with others.
    pub(super) fn equals(&self, other: &Self) -> Result<bool, Failure> {
        let mut budget = MAX_COMPARED;
        self.equals_within(other, &mut budget)
    }

    fn equals_within(&self, other: &Self, budget: &mut usize) -> Result<bool, Failure> {
        *budget = budget.checked_sub(1).ok_or(Failure::TooLarge)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Null, _) | (_, Self::Null) => false,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::String(one), Self::String(other)) => one == other,
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            (Self::Duration(one), Self::Duration(other)) => one == other,
            (Self::Timestamp(one), Self::Timestamp(other)) => one == other,
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::List(one), Self::List(other)) => {
                one.len() == other.len() && may_equal(one.iter().zip(&**other), budget)?
            }
            (Self::Map(one), Self::Map(other)) => {
                let pairs = one.iter().map(|(key, value)| other.get(key).map(|other| (value, other)));
                match pairs.collect::<Option<Vec<_>>>() {
                    Some(pairs) if pairs.len() == other.len() => may_equal(pairs, budget)?,
                    _ => false,
                }
            }
            (Self::Optional(one), Self::Optional(other)) => match (one, other) {
                (None, None) => true,
                (Some(one), Some(other)) => return one.equals_within(other, budget),
                _ => false,
            },
            (Self::Quantity(one), Self::Quantity(other)) => return one.equals(other),
            (Self::Semver(one), Self::Semver(other)) => one.cmp_precedence(other).is_eq(),
            (Self::Url(one), Self::Url(other)) => one == other,
            (Self::Ip(one), Self::Ip(other)) => one == other,
            (Self::Cidr(one), Self::Cidr(other)) => one == other,
            (Self::Format(one), Self::Format(other)) => one == other,
            _ if self.is_kubernetes() => return Err(Failure::NoOverload),
            _ => compare_numbers(self, other) == Ok(Some(Ordering::Equal)),
        })
    }

    /// The order of two values of the same kind.
    pub(super) fn compare(&self, other: &Self) -> Result<Ordering, Failure> {
        Ok(match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::String(one), Self::String(other)) => one.cmp(other),
            (Self::Bytes(one), Self::Bytes(other)) => one.cmp(other),
            (Self::Duration(one), Self::Duration(other)) => one.cmp(other),
            (Self::Timestamp(one), Self::Timestamp(other)) => one.cmp(other),
            _ => {
                let order = compare_numbers(self, other)?;
                order.ok_or_else(|| Failure::because("NaN values cannot be ordered"))?
            }
        })
    }
}

/// Whether nothing says that two values of a pair differ, not even a refusal to compare them.
fn may_equal<'v>(
    pairs: impl IntoIterator<Item = (&'v Value, &'v Value)>,
    budget: &mut usize,
) -> Result<bool, Failure> {
    for (one, other) in pairs {
        match one.equals_within(other, budget) {
            Ok(false) => return Ok(false),
            Err(Failure::TooLarge) => return Err(Failure::TooLarge),
            Ok(true) | Err(_) => {}
        }
    }
    Ok(true)
}

/// The order of two numbers, if they are. One that calls itself no number has none.
fn compare_numbers(one: &Value, other: &Value) -> Result<Option<Ordering>, Failure> {
    let whole = |value: &Value| match value {
        Value::Int(number) => Ok(i128::from(*number)),
        Value::Uint(number) => Ok(i128::from(*number)),
        _ => Err(Failure::NoOverload),
    };
    Ok(match (one, other) {
        (Value::Double(one), Value::Double(other)) => one.partial_cmp(other),
        (Value::Double(one), other) => compare_double(*one, whole(other)?),
        (one, Value::Double(other)) => compare_double(*other, whole(one)?).map(Ordering::reverse),
        (one, other) => Some(whole(one)?.cmp(&whole(other)?)),
    })
}

/// The whole number becomes a double first, as in the reference, even where that has no room for all its digits.
fn compare_double(double: f64, whole: i128) -> Option<Ordering> {
    #[expect(clippy::cast_precision_loss, reason = "the reference loses as much")]
    let whole = whole as f64;
    double.partial_cmp(&whole)
}

impl fmt::Display for Value {
    /// As messages show a key or an index.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Bool(value) => value.fmt(formatter),
            Self::Int(value) => value.fmt(formatter),
            Self::Uint(value) => value.fmt(formatter),
            Self::Double(value) => formatter.write_str(&shown_double(*value)),
            Self::String(value) => value.fmt(formatter),
            other => formatter.write_str(other.type_name()),
        }
    }
}

/// Keys to values, in the order of the keys: the reference has none, and this one can be repeated.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    entries: BTreeMap<Key, (Value, Value)>,
    is_open: bool,
}

/// What entries are found by: numbers are the same key whatever their type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Null,
    Bool(bool),
    Number(i128),
    /// A number that is not whole, by its bits.
    Fraction(u64),
    String(Arc<str>),
}

impl Key {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(number) => Self::Number(i128::from(*number)),
            Value::Uint(number) => Self::Number(i128::from(*number)),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a whole number within the range of the type"
            )]
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e30 => {
                Self::Number(*number as i128)
            }
            Value::Double(number) => Self::Fraction(number.to_bits()),
            Value::String(text) => Self::String(Arc::clone(text)),
            _ => return None,
        })
    }
}

impl Map {
    /// A map in which every key is found: what is not there is an empty map.
    pub(super) fn open() -> Self {
        Self { is_open: true, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, key: Value, value: Value) -> Result<Option<Value>, Failure> {
        let by = Key::of(&key)
            .ok_or_else(|| Failure::because(format!("unsupported key type: {}", key.type_name())))?;
        Ok(self.entries.insert(by, (key, value)).map(|(_, before)| before))
    }

    pub(super) fn remove(&mut self, key: &Value) {
        if let Some(key) = Key::of(key) {
            self.entries.remove(&key);
        }
    }

    /// What is really there.
    pub(super) fn get(&self, key: &Value) -> Option<&Value> {
        Some(&self.entries.get(&Key::of(key)?)?.1)
    }

    /// What a selection finds.
    pub(super) fn find(&self, key: &Value) -> Option<Value> {
        let empty = || self.is_open.then(|| Value::Map(Arc::new(Self::default())));
        self.get(key).cloned().or_else(empty)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&Value, &Value)> {
        self.entries.values().map(|(key, value)| (key, value))
    }
}
