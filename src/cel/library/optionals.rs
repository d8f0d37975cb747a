//! Values that are perhaps not there.

use super::Function;
use crate::cel::value::{Failure, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "optional.of", overloads: &[("optional_of", "(A) -> optional(A)")], run: of },
    Function {
        name: "optional.ofNonZeroValue",
        overloads: &[("optional_ofNonZeroValue", "(A) -> optional(A)")],
        run: of_non_zero,
    },
    Function {
        name: "optional.none",
        overloads: &[("optional_none", "() -> optional(A)")],
        run: |_| Ok(Value::Optional(None)),
    },
    Function { name: "value", overloads: &[("optional_value", "optional(A).() -> A")], run: value },
    Function {
        name: "hasValue",
        overloads: &[("optional_hasValue", "optional(A).() -> bool")],
        run: has_value,
    },
    Function {
        name: "or",
        overloads: &[("optional_or_optional", "optional(A).(optional(A)) -> optional(A)")],
        run: |_| Err(Failure::NoOverload),
    },
    Function {
        name: "orValue",
        overloads: &[("optional_orValue_value", "optional(A).(A) -> A")],
        run: |_| Err(Failure::NoOverload),
    },
    Function {
        name: "first",
        overloads: &[("list_first", "list(A).() -> optional(A)")],
        run: |args| end(args, <[Value]>::first),
    },
    Function {
        name: "last",
        overloads: &[("list_last", "list(A).() -> optional(A)")],
        run: |args| end(args, <[Value]>::last),
    },
    Function {
        name: "optional.unwrap",
        overloads: &[("optional_unwrap", "(list(optional(A))) -> list(A)")],
        run: unwrap,
    },
    Function {
        name: "unwrapOpt",
        overloads: &[("optional_unwrapOpt", "list(optional(A)).() -> list(A)")],
        run: unwrap,
    },
];

fn of(args: &[Value]) -> Outcome {
    args.first().cloned().map(Value::some).ok_or(Failure::NoOverload)
}

fn of_non_zero(args: &[Value]) -> Outcome {
    let [value] = args else { return Err(Failure::NoOverload) };
    let is_zero = match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.len() == 0,
        Value::Duration(nanoseconds) => *nanoseconds == 0,
        Value::Optional(inner) => inner.is_none(),
        _ => false,
    };
    Ok(if is_zero { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn value(args: &[Value]) -> Outcome {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(Failure::because("optional.none() dereference")),
        _ => Err(Failure::NoOverload),
    }
}

fn has_value(args: &[Value]) -> Outcome {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(Failure::NoOverload),
    }
}

fn end(args: &[Value], pick: fn(&[Value]) -> Option<&Value>) -> Outcome {
    match args {
        [Value::List(list)] => {
            Ok(pick(list).map_or(Value::Optional(None), |value| Value::some(value.clone())))
        }
        _ => Err(Failure::NoOverload),
    }
}

fn unwrap(args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else { return Err(Failure::NoOverload) };
    let mut values = Vec::new();
    for element in &**list {
        match element {
            Value::Optional(Some(value)) => values.push((**value).clone()),
            Value::Optional(None) => {}
            _ => return Err(Failure::NoOverload),
        }
    }
    Ok(Value::list(values))
}
