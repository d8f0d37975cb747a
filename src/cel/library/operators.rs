//! What is written between values, and the functions that every CEL has.

use std::{cmp::Ordering, sync::Arc};

use super::Function;
use crate::cel::value::{Failure, MAX_ELEMENTS, Outcome, Value};

macro_rules! ordering {
    ($name:literal, $prefix:literal, $run:expr) => {
        Function {
            name: $name,
            overloads: &[
                (concat!($prefix, "_bool"), "(bool, bool) -> bool"),
                (concat!($prefix, "_int64"), "(int, int) -> bool"),
                (concat!($prefix, "_int64_double"), "(int, double) -> bool"),
                (concat!($prefix, "_int64_uint64"), "(int, uint) -> bool"),
                (concat!($prefix, "_uint64"), "(uint, uint) -> bool"),
                (concat!($prefix, "_uint64_double"), "(uint, double) -> bool"),
                (concat!($prefix, "_uint64_int64"), "(uint, int) -> bool"),
                (concat!($prefix, "_double"), "(double, double) -> bool"),
                (concat!($prefix, "_double_int64"), "(double, int) -> bool"),
                (concat!($prefix, "_double_uint64"), "(double, uint) -> bool"),
                (concat!($prefix, "_string"), "(string, string) -> bool"),
                (concat!($prefix, "_bytes"), "(bytes, bytes) -> bool"),
                (concat!($prefix, "_timestamp"), "(timestamp, timestamp) -> bool"),
                (concat!($prefix, "_duration"), "(duration, duration) -> bool"),
            ],
            run: |args| order(args, $run),
        }
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "_?_:_",
        overloads: &[("conditional", "(bool, A, A) -> A")],
        run: |_| Err(Failure::NoOverload),
    },
    Function {
        name: "_&&_",
        overloads: &[("logical_and", "(bool, bool) -> bool")],
        run: |_| Err(Failure::NoOverload),
    },
    Function {
        name: "_||_",
        overloads: &[("logical_or", "(bool, bool) -> bool")],
        run: |_| Err(Failure::NoOverload),
    },
    Function {
        name: "@not_strictly_false",
        overloads: &[("not_strictly_false", "(bool) -> bool")],
        run: |_| Err(Failure::NoOverload),
    },
    Function { name: "_==_", overloads: &[("equals", "(A, A) -> bool")], run: |_| Err(Failure::NoOverload) },
    Function {
        name: "_!=_",
        overloads: &[("not_equals", "(A, A) -> bool")],
        run: |_| Err(Failure::NoOverload),
    },
    Function {
        name: "_[_]",
        overloads: &[
            ("index_list", "(list(A), int) -> A"),
            ("index_map", "(map(A, B), A) -> B"),
            ("optional_list_index_int", "(optional(list(A)), int) -> optional(A)"),
            ("optional_map_index_value", "(optional(map(A, B)), A) -> optional(B)"),
        ],
        run: |_| Err(Failure::NoOverload),
    },
    Function {
        name: "_[?_]",
        overloads: &[
            ("list_optindex_optional_int", "(list(A), int) -> optional(A)"),
            ("optional_list_optindex_optional_int", "(optional(list(A)), int) -> optional(A)"),
            ("map_optindex_optional_value", "(map(A, B), A) -> optional(B)"),
            ("optional_map_optindex_optional_value", "(optional(map(A, B)), A) -> optional(B)"),
        ],
        run: |_| Err(Failure::NoOverload),
    },
    Function { name: "!_", overloads: &[("logical_not", "(bool) -> bool")], run: not },
    Function {
        name: "-_",
        overloads: &[("negate_double", "(double) -> double"), ("negate_int64", "(int) -> int")],
        run: negate,
    },
    Function {
        name: "_+_",
        overloads: &[
            ("add_bytes", "(bytes, bytes) -> bytes"),
            ("add_double", "(double, double) -> double"),
            ("add_duration_duration", "(duration, duration) -> duration"),
            ("add_duration_timestamp", "(duration, timestamp) -> timestamp"),
            ("add_timestamp_duration", "(timestamp, duration) -> timestamp"),
            ("add_int64", "(int, int) -> int"),
            ("add_list", "(list(A), list(A)) -> list(A)"),
            ("add_string", "(string, string) -> string"),
            ("add_uint64", "(uint, uint) -> uint"),
        ],
        run: add,
    },
    Function {
        name: "_-_",
        overloads: &[
            ("subtract_double", "(double, double) -> double"),
            ("subtract_duration_duration", "(duration, duration) -> duration"),
            ("subtract_int64", "(int, int) -> int"),
            ("subtract_timestamp_duration", "(timestamp, duration) -> timestamp"),
            ("subtract_timestamp_timestamp", "(timestamp, timestamp) -> duration"),
            ("subtract_uint64", "(uint, uint) -> uint"),
        ],
        run: subtract,
    },
    Function {
        name: "_*_",
        overloads: &[
            ("multiply_double", "(double, double) -> double"),
            ("multiply_int64", "(int, int) -> int"),
            ("multiply_uint64", "(uint, uint) -> uint"),
        ],
        run: multiply,
    },
    Function {
        name: "_/_",
        overloads: &[
            ("divide_double", "(double, double) -> double"),
            ("divide_int64", "(int, int) -> int"),
            ("divide_uint64", "(uint, uint) -> uint"),
        ],
        run: divide,
    },
    Function {
        name: "_%_",
        overloads: &[("modulo_int64", "(int, int) -> int"), ("modulo_uint64", "(uint, uint) -> uint")],
        run: modulo,
    },
    ordering!("_<_", "less", Ordering::is_lt),
    ordering!("_<=_", "less_equals", Ordering::is_le),
    ordering!("_>_", "greater", Ordering::is_gt),
    ordering!("_>=_", "greater_equals", Ordering::is_ge),
    Function {
        name: "@in",
        overloads: &[("in_list", "(A, list(A)) -> bool"), ("in_map", "(A, map(A, B)) -> bool")],
        run: is_in,
    },
    Function {
        name: "size",
        overloads: &[
            ("size_bytes", "(bytes) -> int"),
            ("bytes_size", "bytes.() -> int"),
            ("size_list", "(list(A)) -> int"),
            ("list_size", "list(A).() -> int"),
            ("size_map", "(map(A, B)) -> int"),
            ("map_size", "map(A, B).() -> int"),
            ("size_string", "(string) -> int"),
            ("string_size", "string.() -> int"),
        ],
        run: size,
    },
    Function {
        name: "cel.@mapInsert",
        overloads: &[
            ("@mapInsert_map_key_value", "(map(A, B), A, B) -> map(A, B)"),
            ("@mapInsert_map_map", "(map(A, B), map(A, B)) -> map(A, B)"),
        ],
        run: |_| Err(Failure::NoOverload),
    },
];

const INT_OVERFLOW: Failure = Failure::Because(std::borrow::Cow::Borrowed("integer overflow"));
const UINT_OVERFLOW: Failure = Failure::Because(std::borrow::Cow::Borrowed("unsigned integer overflow"));

fn order(args: &[Value], is_so: fn(Ordering) -> bool) -> Outcome {
    match args {
        [one, other] => one.compare(other).map(|order| Value::Bool(is_so(order))),
        _ => Err(Failure::NoOverload),
    }
}

fn not(args: &[Value]) -> Outcome {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(Failure::NoOverload),
    }
}

fn negate(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(number)] => number.checked_neg().map(Value::Int).ok_or(INT_OVERFLOW),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        _ => Err(Failure::NoOverload),
    }
}

pub(super) fn add(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(one), Value::Int(other)] => one.checked_add(*other).map(Value::Int).ok_or(INT_OVERFLOW),
        [Value::Uint(one), Value::Uint(other)] => {
            one.checked_add(*other).map(Value::Uint).ok_or(UINT_OVERFLOW)
        }
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one + other)),
        [Value::String(one), Value::String(other)] => Ok(Value::string([&**one, &**other].concat())),
        [Value::Bytes(one), Value::Bytes(other)] => Ok(Value::Bytes([&**one, &**other].concat().into())),
        [Value::List(one), Value::List(other)] if one.len() + other.len() > MAX_ELEMENTS => {
            Err(Failure::TooLarge)
        }
        [Value::List(one), Value::List(other)] => {
            let mut list = Arc::clone(one);
            Arc::make_mut(&mut list).extend(other.iter().cloned());
            Ok(Value::List(list))
        }
        [Value::Duration(one), Value::Duration(other)] => {
            one.checked_add(*other).map(Value::Duration).ok_or(INT_OVERFLOW)
        }
        [Value::Timestamp(time), Value::Duration(by)] | [Value::Duration(by), Value::Timestamp(time)] => {
            time.moved(i128::from(*by)).map(Value::Timestamp)
        }
        _ => Err(Failure::NoOverload),
    }
}

fn subtract(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(one), Value::Int(other)] => one.checked_sub(*other).map(Value::Int).ok_or(INT_OVERFLOW),
        [Value::Uint(one), Value::Uint(other)] => {
            one.checked_sub(*other).map(Value::Uint).ok_or(UINT_OVERFLOW)
        }
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one - other)),
        [Value::Duration(one), Value::Duration(other)] => {
            one.checked_sub(*other).map(Value::Duration).ok_or(INT_OVERFLOW)
        }
        [Value::Timestamp(time), Value::Duration(by)] => time.moved(-i128::from(*by)).map(Value::Timestamp),
        [Value::Timestamp(one), Value::Timestamp(other)] => one.since(*other).map(Value::Duration),
        _ => Err(Failure::NoOverload),
    }
}

fn multiply(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(one), Value::Int(other)] => one.checked_mul(*other).map(Value::Int).ok_or(INT_OVERFLOW),
        [Value::Uint(one), Value::Uint(other)] => {
            one.checked_mul(*other).map(Value::Uint).ok_or(UINT_OVERFLOW)
        }
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one * other)),
        _ => Err(Failure::NoOverload),
    }
}

fn divide(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Failure::because("division by zero"))
        }
        [Value::Int(one), Value::Int(other)] => one.checked_div(*other).map(Value::Int).ok_or(INT_OVERFLOW),
        [Value::Uint(one), Value::Uint(other)] => Ok(Value::Uint(one / other)),
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one / other)),
        _ => Err(Failure::NoOverload),
    }
}

fn modulo(args: &[Value]) -> Outcome {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Failure::because("modulus by zero"))
        }
        [Value::Int(one), Value::Int(other)] => one.checked_rem(*other).map(Value::Int).ok_or(INT_OVERFLOW),
        [Value::Uint(one), Value::Uint(other)] => Ok(Value::Uint(one % other)),
        _ => Err(Failure::NoOverload),
    }
}

fn is_in(args: &[Value]) -> Outcome {
    match args {
        [value, Value::List(list)] => {
            Ok(Value::Bool(list.iter().any(|element| value.equals(element) == Ok(true))))
        }
        [key, Value::Map(map)] => Ok(Value::Bool(map.get(key).is_some())),
        _ => Err(Failure::NoOverload),
    }
}

fn size(args: &[Value]) -> Outcome {
    let size = match args {
        [Value::String(text)] => text.chars().count(),
        [Value::Bytes(bytes)] => bytes.len(),
        [Value::List(list)] => list.len(),
        [Value::Map(map)] => map.len(),
        _ => return Err(Failure::NoOverload),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}
