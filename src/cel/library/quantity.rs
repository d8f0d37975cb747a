//! Amounts of a resource, exact to a billionth.

use std::{cmp::Ordering, str::FromStr, sync::Arc};

use super::Function;
use crate::cel::value::{Failure, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "quantity",
        overloads: &[("string_to_quantity", "(string) -> quantity")],
        run: quantity,
    },
    Function {
        name: "isQuantity",
        overloads: &[("is_quantity_string", "(string) -> bool")],
        run: is_quantity,
    },
    Function { name: "sign", overloads: &[("quantity_sign", "(quantity) -> int")], run: sign },
    Function {
        name: "isGreaterThan",
        overloads: &[("quantity_is_greater_than", "quantity.(quantity) -> bool")],
        run: |args| compare(args, |order| Value::Bool(order.is_gt())),
    },
    Function {
        name: "isLessThan",
        overloads: &[("quantity_is_less_than", "quantity.(quantity) -> bool")],
        run: |args| compare(args, |order| Value::Bool(order.is_lt())),
    },
    Function {
        name: "compareTo",
        overloads: &[("quantity_compare_to", "quantity.(quantity) -> int")],
        run: |args| compare(args, |order| Value::Int(order as i64)),
    },
    Function {
        name: "asApproximateFloat",
        overloads: &[("quantity_get_float", "quantity.() -> double")],
        run: as_float,
    },
    Function { name: "asInteger", overloads: &[("quantity_get_int", "quantity.() -> int")], run: as_int },
    Function { name: "isInteger", overloads: &[("quantity_is_integer", "quantity.() -> bool")], run: is_int },
    Function {
        name: "add",
        overloads: &[
            ("quantity_add", "quantity.(quantity) -> quantity"),
            ("quantity_add_int", "quantity.(int) -> quantity"),
        ],
        run: |args| combine(args, Quantity::plus),
    },
    Function {
        name: "sub",
        overloads: &[
            ("quantity_sub", "quantity.(quantity) -> quantity"),
            ("quantity_sub_int", "quantity.(int) -> quantity"),
        ],
        run: |args| combine(args, Quantity::minus),
    },
];

/// An amount.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    /// In billionths.
    nanos: i128,
}

/// A text that is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
pub struct NoQuantity;

impl Quantity {
    const ONE: i128 = 1_000_000_000;

    /// So many whole ones.
    #[must_use]
    pub fn whole(number: i64) -> Self {
        Self { nanos: i128::from(number) * Self::ONE }
    }

    fn plus(&self, other: &Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos) }
    }

    fn minus(&self, other: &Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos) }
    }

    fn sign(&self) -> Ordering {
        self.nanos.cmp(&0)
    }

    fn as_int(&self) -> Option<i64> {
        (self.nanos % Self::ONE == 0).then(|| i64::try_from(self.nanos / Self::ONE).ok()).flatten()
    }

    #[expect(clippy::cast_precision_loss, reason = "an approximation is what is asked for")]
    fn as_float(&self) -> f64 {
        self.nanos as f64 / Self::ONE as f64
    }
}

impl FromStr for Quantity {
    type Err = NoQuantity;

    fn from_str(text: &str) -> Result<Self, NoQuantity> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_negative = text.starts_with('-');
        let length = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(NoQuantity);
        }
        let (base, exponent) = scale(suffix).ok_or(NoQuantity)?;
        let digits: i128 = format!("0{whole}{fraction}").parse().map_err(|_| NoQuantity)?;
        let places = i32::try_from(fraction.len()).map_err(|_| NoQuantity)?;
        let decimal = if base == 10 { exponent + 9 - places } else { 9 - places };
        let binary = if base == 2 { exponent } else { 0 };
        let scaled = digits.checked_mul(1_i128.checked_shl(binary.unsigned_abs()).ok_or(NoQuantity)?);
        let scaled = scaled.ok_or(NoQuantity)?;
        let power = 10_i128.checked_pow(decimal.unsigned_abs());
        // What is smaller than the smallest is rounded away from nothing.
        let nanos = match power {
            Some(power) if decimal >= 0 => scaled.checked_mul(power).unwrap_or(i128::MAX),
            Some(power) => scaled / power + i128::from(scaled % power != 0),
            None if decimal >= 0 && scaled != 0 => i128::MAX,
            None => i128::from(scaled != 0),
        };
        Ok(Self { nanos: if is_negative { -nanos } else { nanos } })
    }
}

/// What a suffix multiplies with.
fn scale(suffix: &str) -> Option<(u8, i32)> {
    Some(match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => (10, suffix.strip_prefix(['e', 'E'])?.parse::<i8>().ok()?.into()),
    })
}

/// An amount in an expression.
#[derive(Debug, Clone)]
pub(in crate::cel) struct QuantityValue {
    quantity: Quantity,
    origin: Origin,
}

/// The reference refuses to compare something with what it has computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Given,
    Computed,
}

impl QuantityValue {
    pub(in crate::cel) fn given(quantity: Quantity) -> Self {
        Self { quantity, origin: Origin::Given }
    }

    pub(in crate::cel) fn equals(&self, other: &Self) -> Result<bool, Failure> {
        match other.origin {
            Origin::Given => Ok(self.quantity == other.quantity),
            Origin::Computed => Err(Failure::NoOverload),
        }
    }
}

fn quantity(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => match text.parse() {
            Ok(quantity) => Ok(Value::Quantity(Arc::new(QuantityValue::given(quantity)))),
            Err(NoQuantity) => Err(Failure::because(NoQuantity.to_string())),
        },
        _ => Err(Failure::NoOverload),
    }
}

fn is_quantity(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
        _ => Err(Failure::NoOverload),
    }
}

fn sign(args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value)] => Ok(Value::Int(value.quantity.sign() as i64)),
        _ => Err(Failure::NoOverload),
    }
}

fn compare(args: &[Value], answer: fn(Ordering) -> Value) -> Outcome {
    match args {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(answer(one.quantity.cmp(&other.quantity))),
        _ => Err(Failure::NoOverload),
    }
}

fn as_float(args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value)] => Ok(Value::Double(value.quantity.as_float())),
        _ => Err(Failure::NoOverload),
    }
}

fn as_int(args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value)] => value
            .quantity
            .as_int()
            .map(Value::Int)
            .ok_or_else(|| Failure::because("cannot convert value to integer")),
        _ => Err(Failure::NoOverload),
    }
}

fn is_int(args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value)] => Ok(Value::Bool(value.quantity.as_int().is_some())),
        _ => Err(Failure::NoOverload),
    }
}

fn combine(args: &[Value], combine: fn(&Quantity, &Quantity) -> Quantity) -> Outcome {
    let quantity = match args {
        [Value::Quantity(one), Value::Quantity(other)] => combine(&one.quantity, &other.quantity),
        [Value::Quantity(one), Value::Int(other)] => combine(&one.quantity, &Quantity::whole(*other)),
        _ => return Err(Failure::NoOverload),
    };
    Ok(Value::Quantity(Arc::new(QuantityValue { quantity, origin: Origin::Computed })))
}
