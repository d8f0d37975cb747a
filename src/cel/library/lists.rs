//! Functions that make lists of lists.

use std::{cmp::Ordering, sync::Arc};

use super::Function;
use crate::cel::value::{Failure, MAX_ELEMENTS, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "slice", overloads: &[("list_slice", "list(A).(int, int) -> list(A)")], run: slice },
    Function {
        name: "flatten",
        overloads: &[
            ("list_flatten", "list(list(A)).() -> list(A)"),
            ("list_flatten_int", "list(dyn).(int) -> list(dyn)"),
        ],
        run: flatten,
    },
    Function {
        name: "sort",
        overloads: &[
            ("list_int_sort", "list(int).() -> list(int)"),
            ("list_uint_sort", "list(uint).() -> list(uint)"),
            ("list_double_sort", "list(double).() -> list(double)"),
            ("list_bool_sort", "list(bool).() -> list(bool)"),
            ("list_google.protobuf.Duration_sort", "list(duration).() -> list(duration)"),
            ("list_google.protobuf.Timestamp_sort", "list(timestamp).() -> list(timestamp)"),
            ("list_string_sort", "list(string).() -> list(string)"),
            ("list_bytes_sort", "list(bytes).() -> list(bytes)"),
        ],
        run: sort,
    },
    Function {
        name: "@sortByAssociatedKeys",
        overloads: &[
            ("list_int_sortByAssociatedKeys", "list(A).(list(int)) -> list(A)"),
            ("list_uint_sortByAssociatedKeys", "list(A).(list(uint)) -> list(A)"),
            ("list_double_sortByAssociatedKeys", "list(A).(list(double)) -> list(A)"),
            ("list_bool_sortByAssociatedKeys", "list(A).(list(bool)) -> list(A)"),
            ("list_google.protobuf.Duration_sortByAssociatedKeys", "list(A).(list(duration)) -> list(A)"),
            ("list_google.protobuf.Timestamp_sortByAssociatedKeys", "list(A).(list(timestamp)) -> list(A)"),
            ("list_string_sortByAssociatedKeys", "list(A).(list(string)) -> list(A)"),
            ("list_bytes_sortByAssociatedKeys", "list(A).(list(bytes)) -> list(A)"),
        ],
        run: sort_by,
    },
    Function { name: "lists.range", overloads: &[("lists_range", "(int) -> list(int)")], run: range },
    Function {
        name: UNBOUNDED_RANGE,
        overloads: &[("lists_range", "(int) -> list(int)")],
        run: range_unbounded,
    },
    Function { name: "reverse", overloads: &[("list_reverse", "list(A).() -> list(A)")], run: reverse },
    Function { name: "distinct", overloads: &[("list_distinct", "list(A).() -> list(A)")], run: distinct },
];

/// The longest range, as in the reference.
const MAX_RANGE: i64 = 1_000_000;

/// What `lists.range` was until 1.36, under a name that cannot be written.
pub(in crate::cel) const UNBOUNDED_RANGE: &str = "@range";

fn slice(args: &[Value]) -> Outcome {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(Failure::NoOverload);
    };
    let refuse = |reason: &str| Err(Failure::because(format!("cannot slice({start}, {end}), {reason}")));
    let (Ok(first), Ok(last)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return refuse("negative indexes not supported");
    };
    if first > last {
        return refuse("start index must be less than or equal to end index");
    }
    match list.get(first..last) {
        Some(part) => Ok(Value::list(part.iter().cloned())),
        None => refuse(&format!("list is length {}", list.len())),
    }
}

fn flatten(args: &[Value]) -> Outcome {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(Failure::NoOverload),
    };
    if depth < 0 {
        return Err(Failure::because("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(&mut flat, list, depth)?;
    Ok(Value::List(Arc::new(flat)))
}

fn flatten_into(flat: &mut Vec<Value>, list: &[Value], depth: i64) -> Result<(), Failure> {
    for value in list {
        match value {
            Value::List(inner) if depth > 0 => flatten_into(flat, inner, depth - 1)?,
            _ if flat.len() == MAX_ELEMENTS => return Err(Failure::TooLarge),
            other => flat.push(other.clone()),
        }
    }
    Ok(())
}

fn sort(args: &[Value]) -> Outcome {
    match args {
        [Value::List(list)] => sorted(list, list),
        _ => Err(Failure::NoOverload),
    }
}

fn sort_by(args: &[Value]) -> Outcome {
    match args {
        [Value::List(list), Value::List(keys)] => sorted(list, keys),
        _ => Err(Failure::NoOverload),
    }
}

fn sorted(list: &[Value], keys: &[Value]) -> Outcome {
    if let Some(first) = keys.first() {
        if first.compare(first) == Err(Failure::NoOverload) {
            return Err(Failure::because("list elements must be comparable"));
        }
        if keys.iter().any(|key| key.type_name() != first.type_name()) {
            return Err(Failure::because("list elements must have the same type"));
        }
    }
    let mut pairs: Vec<(&Value, &Value)> = keys.iter().zip(list).collect();
    pairs.sort_by(|(one, _), (other, _)| one.compare(other).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value.clone())))
}

fn range(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(size)] if *size < 0 => {
            Err(Failure::because(format!("lists.range: size must be non-negative, got {size}")))
        }
        [Value::Int(size)] if *size > MAX_RANGE => {
            let reason = format!("lists.range: size {size} exceeds maximum allowed ({MAX_RANGE})");
            Err(Failure::because(reason))
        }
        [Value::Int(size)] => Ok(Value::list((0..*size).map(Value::Int))),
        _ => Err(Failure::NoOverload),
    }
}

/// One more than the longest is as good as any number more: the cost of making it is too high.
fn range_unbounded(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(size)] => Ok(Value::list((0..(*size).min(MAX_RANGE + 1)).map(Value::Int))),
        _ => Err(Failure::NoOverload),
    }
}

fn reverse(args: &[Value]) -> Outcome {
    match args {
        [Value::List(list)] => Ok(Value::list(list.iter().rev().cloned())),
        _ => Err(Failure::NoOverload),
    }
}

fn distinct(args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else { return Err(Failure::NoOverload) };
    let mut seen: Vec<Value> = Vec::new();
    for value in &**list {
        if !seen.iter().any(|before| value.equals(before) == Ok(true)) {
            seen.push(value.clone());
        }
    }
    Ok(Value::List(Arc::new(seen)))
}
