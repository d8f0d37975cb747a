//! Functions on lists that only Kubernetes has.

use std::cmp::Ordering;

use super::{Function, operators};
use crate::cel::value::{Failure, Outcome, Value};

macro_rules! of_comparable {
    ($name:literal, $suffix:literal, $run:expr) => {
        Function {
            name: $name,
            overloads: &[
                (concat!("list_int_", $suffix, "_int"), "list(int).() -> int"),
                (concat!("list_uint_", $suffix, "_uint"), "list(uint).() -> uint"),
                (concat!("list_double_", $suffix, "_double"), "list(double).() -> double"),
                (concat!("list_bool_", $suffix, "_bool"), "list(bool).() -> bool"),
                (concat!("list_duration_", $suffix, "_duration"), "list(duration).() -> duration"),
                (concat!("list_timestamp_", $suffix, "_timestamp"), "list(timestamp).() -> timestamp"),
                (concat!("list_string_", $suffix, "_string"), "list(string).() -> string"),
                (concat!("list_bytes_", $suffix, "_bytes"), "list(bytes).() -> bytes"),
            ],
            run: $run,
        }
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "isSorted",
        overloads: &[
            ("list_int_is_sorted_bool", "list(int).() -> bool"),
            ("list_uint_is_sorted_bool", "list(uint).() -> bool"),
            ("list_double_is_sorted_bool", "list(double).() -> bool"),
            ("list_bool_is_sorted_bool", "list(bool).() -> bool"),
            ("list_duration_is_sorted_bool", "list(duration).() -> bool"),
            ("list_timestamp_is_sorted_bool", "list(timestamp).() -> bool"),
            ("list_string_is_sorted_bool", "list(string).() -> bool"),
            ("list_bytes_is_sorted_bool", "list(bytes).() -> bool"),
        ],
        run: is_sorted,
    },
    Function {
        name: "sum",
        overloads: &[
            ("list_int_sum_int", "list(int).() -> int"),
            ("list_uint_sum_uint", "list(uint).() -> uint"),
            ("list_double_sum_double", "list(double).() -> double"),
            ("list_duration_sum_duration", "list(duration).() -> duration"),
        ],
        run: sum,
    },
    of_comparable!("max", "max", |args| extreme(args, "max", Ordering::Less)),
    of_comparable!("min", "min", |args| extreme(args, "min", Ordering::Greater)),
    Function {
        name: "indexOf",
        overloads: &[("list_a_index_of_int", "list(A).(A) -> int")],
        run: |args| position(args, |list, item| list.iter().position(|value| is(value, item))),
    },
    Function {
        name: "lastIndexOf",
        overloads: &[("list_a_last_index_of_int", "list(A).(A) -> int")],
        run: |args| position(args, |list, item| list.iter().rposition(|value| is(value, item))),
    },
    Function {
        name: "includes",
        overloads: &[("list_includes_dyn_dyn", "dyn.(dyn) -> bool")],
        run: includes,
    },
    Function {
        name: BOUNDED_INCLUDES,
        overloads: &[("dra_includes_dyn_dyn", "dyn.(dyn) -> bool")],
        run: includes_bounded,
    },
];

/// What `includes` was until 1.36, under a name that cannot be written.
pub(in crate::cel) const BOUNDED_INCLUDES: &str = "@includes";

/// How many values a device could have then.
const MAX_VALUES: usize = 48;

fn is(value: &Value, item: &Value) -> bool {
    value.equals(item) == Ok(true)
}

fn is_sorted(args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else { return Err(Failure::NoOverload) };
    if list.iter().any(|value| value.compare(value) == Err(Failure::NoOverload)) {
        return Err(Failure::NoOverload);
    }
    let is_sorted = list.windows(2).all(|pair| pair[0].compare(&pair[1]) != Ok(Ordering::Greater));
    Ok(Value::Bool(is_sorted))
}

fn sum(args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else { return Err(Failure::NoOverload) };
    let mut values = list.iter().cloned();
    let Some(first) = values.next() else { return Ok(Value::Int(0)) };
    if !matches!(first, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) {
        return Err(Failure::NoOverload);
    }
    values.try_fold(first, |sum, value| operators::add(&[sum, value]))
}

fn extreme(args: &[Value], name: &str, worse: Ordering) -> Outcome {
    let [Value::List(list)] = args else { return Err(Failure::NoOverload) };
    let mut best: Option<&Value> = None;
    for value in &**list {
        if value.compare(value) == Err(Failure::NoOverload) {
            return Err(Failure::NoOverload);
        }
        if best.is_none_or(|best| best.compare(value) == Ok(worse)) {
            best = Some(value);
        }
    }
    best.cloned().ok_or_else(|| Failure::because(format!("{name} called on empty list")))
}

fn position(args: &[Value], find: fn(&[Value], &Value) -> Option<usize>) -> Outcome {
    match args {
        [Value::List(list), item] => {
            let place = find(list, item).and_then(|place| i64::try_from(place).ok());
            Ok(Value::Int(place.unwrap_or(-1)))
        }
        _ => Err(Failure::NoOverload),
    }
}

/// What is no list is one of itself.
fn includes(args: &[Value]) -> Outcome {
    match args {
        [Value::List(list), item] => Ok(Value::Bool(list.iter().any(|value| is(value, item)))),
        [value, item] => Ok(Value::Bool(is(value, item))),
        _ => Err(Failure::NoOverload),
    }
}

/// What is beyond the bound is not looked at.
fn includes_bounded(args: &[Value]) -> Outcome {
    match args {
        [Value::List(list), item] if list.len() > MAX_VALUES => {
            if list[..MAX_VALUES].iter().any(|value| is(value, item)) {
                return Ok(Value::Bool(true));
            }
            let reason =
                format!("'includes' function cannot be applied to lists longer than {MAX_VALUES} values");
            Err(Failure::because(reason))
        }
        _ => includes(args),
    }
}
