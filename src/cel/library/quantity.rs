//! Amounts of a resource, exact to a billionth.

use std::{cmp::Ordering, fmt, sync::Arc};

use super::Function;
use crate::{
    cel::value::{Failure, Outcome, Value},
    device::{Amount, Format},
};

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
        run: |args| combine(args, Amount::plus),
    },
    Function {
        name: "sub",
        overloads: &[
            ("quantity_sub", "quantity.(quantity) -> quantity"),
            ("quantity_sub_int", "quantity.(int) -> quantity"),
        ],
        run: |args| combine(args, Amount::minus),
    },
];

/// An amount in an expression.
#[derive(Debug, Clone)]
pub(in crate::cel) struct QuantityValue {
    quantity: Amount,
    origin: Origin,
}

/// The reference refuses to compare something with what it has computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Given,
    Computed,
}

impl QuantityValue {
    pub(in crate::cel) fn given(quantity: Amount) -> Self {
        Self { quantity, origin: Origin::Given }
    }

    pub(in crate::cel) fn equals(&self, other: &Self) -> Result<bool, Failure> {
        match other.origin {
            Origin::Given => Ok(self.quantity == other.quantity),
            Origin::Computed => Err(Failure::NoOverload),
        }
    }
}

impl fmt::Display for QuantityValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.quantity.fmt(formatter)
    }
}

fn quantity(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => match text.parse::<Amount>() {
            Ok(quantity) => Ok(Value::Quantity(Arc::new(QuantityValue::given(quantity)))),
            Err(error) => Err(Failure::because(error.to_string())),
        },
        _ => Err(Failure::NoOverload),
    }
}

fn is_quantity(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(text.parse::<Amount>().is_ok())),
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
        [Value::Quantity(value)] => Ok(Value::Double(value.quantity.as_f64())),
        _ => Err(Failure::NoOverload),
    }
}

fn as_int(args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value)] => value
            .quantity
            .as_i64()
            .map(Value::Int)
            .ok_or_else(|| Failure::because("cannot convert value to integer")),
        _ => Err(Failure::NoOverload),
    }
}

fn is_int(args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value)] => Ok(Value::Bool(value.quantity.as_i64().is_some())),
        _ => Err(Failure::NoOverload),
    }
}

fn combine(args: &[Value], combine: fn(&Amount, &Amount) -> Amount) -> Outcome {
    let quantity = match args {
        [Value::Quantity(one), Value::Quantity(other)] => combine(&one.quantity, &other.quantity),
        [Value::Quantity(one), Value::Int(other)] => {
            combine(&one.quantity, &Amount::whole(*other, Format::DecimalSi))
        }
        _ => return Err(Failure::NoOverload),
    };
    Ok(Value::Quantity(Arc::new(QuantityValue { quantity, origin: Origin::Computed })))
}
