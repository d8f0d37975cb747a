//! From one type to another.

use super::{
    Function,
    time::{Timestamp, parse_duration, shown_duration},
};
use crate::cel::value::{Failure, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "dyn", overloads: &[("to_dyn", "(A) -> dyn")], run: identity },
    Function { name: "type", overloads: &[("type", "(A) -> type(A)")], run: type_of },
    Function {
        name: "bool",
        overloads: &[("bool_to_bool", "(bool) -> bool"), ("string_to_bool", "(string) -> bool")],
        run: to_bool,
    },
    Function {
        name: "bytes",
        overloads: &[("bytes_to_bytes", "(bytes) -> bytes"), ("string_to_bytes", "(string) -> bytes")],
        run: to_bytes,
    },
    Function {
        name: "double",
        overloads: &[
            ("double_to_double", "(double) -> double"),
            ("int64_to_double", "(int) -> double"),
            ("string_to_double", "(string) -> double"),
            ("uint64_to_double", "(uint) -> double"),
        ],
        run: to_double,
    },
    Function {
        name: "duration",
        overloads: &[
            ("duration_to_duration", "(duration) -> duration"),
            ("string_to_duration", "(string) -> duration"),
        ],
        run: to_duration,
    },
    Function {
        name: "int",
        overloads: &[
            ("int64_to_int64", "(int) -> int"),
            ("double_to_int64", "(double) -> int"),
            ("duration_to_int64", "(duration) -> int"),
            ("string_to_int64", "(string) -> int"),
            ("timestamp_to_int64", "(timestamp) -> int"),
            ("uint64_to_int64", "(uint) -> int"),
        ],
        run: to_int,
    },
    Function {
        name: "string",
        overloads: &[
            ("string_to_string", "(string) -> string"),
            ("bool_to_string", "(bool) -> string"),
            ("bytes_to_string", "(bytes) -> string"),
            ("double_to_string", "(double) -> string"),
            ("duration_to_string", "(duration) -> string"),
            ("int64_to_string", "(int) -> string"),
            ("timestamp_to_string", "(timestamp) -> string"),
            ("uint64_to_string", "(uint) -> string"),
            ("ip_to_string", "(ip) -> string"),
            ("cidr_to_string", "(cidr) -> string"),
        ],
        run: to_string,
    },
    Function {
        name: "timestamp",
        overloads: &[
            ("timestamp_to_timestamp", "(timestamp) -> timestamp"),
            ("int64_to_timestamp", "(int) -> timestamp"),
            ("string_to_timestamp", "(string) -> timestamp"),
        ],
        run: to_timestamp,
    },
    Function {
        name: "uint",
        overloads: &[
            ("uint64_to_uint64", "(uint) -> uint"),
            ("double_to_uint64", "(double) -> uint"),
            ("int64_to_uint64", "(int) -> uint"),
            ("string_to_uint64", "(string) -> uint"),
        ],
        run: to_uint,
    },
];

/// Whether a function only changes a type: on constants it is evaluated before there is a device.
pub(in crate::cel) fn is_conversion(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name)
}

fn from_string(to: &str) -> Failure {
    Failure::because(format!("type conversion error from 'string' to '{to}'"))
}

fn identity(args: &[Value]) -> Outcome {
    args.first().cloned().ok_or(Failure::NoOverload)
}

fn type_of(args: &[Value]) -> Outcome {
    args.first().map(|value| Value::Type(value.type_name())).ok_or(Failure::NoOverload)
}

fn to_bool(args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Bool(_)] => Ok(value.clone()),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(from_string("bool")),
        },
        _ => Err(Failure::NoOverload),
    }
}

fn to_bytes(args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Bytes(_)] => Ok(value.clone()),
        [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(Failure::NoOverload),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
fn to_double(args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Double(_)] => Ok(value.clone()),
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
        [Value::String(text)] => text.parse().map(Value::Double).map_err(|_| from_string("double")),
        _ => Err(Failure::NoOverload),
    }
}

fn to_duration(args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Duration(_)] => Ok(value.clone()),
        [Value::String(text)] => {
            parse_duration(text).map(Value::Duration).ok_or_else(|| from_string("google.protobuf.Duration"))
        }
        _ => Err(Failure::NoOverload),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be in range, and the fraction is to be lost")]
fn to_int(args: &[Value]) -> Outcome {
    // The nearest doubles of both ends: the ends themselves are out.
    const RANGE: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    match args {
        [value @ Value::Int(_)] => Ok(value.clone()),
        [Value::Uint(number)] => {
            i64::try_from(*number).map(Value::Int).map_err(|_| Failure::because("integer overflow"))
        }
        [Value::Double(number)] if RANGE.contains(number) && *number > RANGE.start => {
            Ok(Value::Int(*number as i64))
        }
        [Value::Double(_)] => Err(Failure::because("integer overflow")),
        [Value::Duration(nanoseconds)] => Ok(Value::Int(*nanoseconds)),
        [Value::Timestamp(time)] => Ok(Value::Int(time.seconds())),
        [Value::String(text)] => text.parse().map(Value::Int).map_err(|_| from_string("int")),
        _ => Err(Failure::NoOverload),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in range, and the fraction is to be lost"
)]
fn to_uint(args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Uint(_)] => Ok(value.clone()),
        [Value::Int(number)] => {
            u64::try_from(*number).map(Value::Uint).map_err(|_| Failure::because("unsigned integer overflow"))
        }
        [Value::Double(number)] if (0.0..18_446_744_073_709_551_616.0).contains(number) => {
            Ok(Value::Uint(*number as u64))
        }
        [Value::Double(_)] => Err(Failure::because("unsigned integer overflow")),
        [Value::String(text)] if !text.starts_with('+') => {
            text.parse().map(Value::Uint).map_err(|_| from_string("uint"))
        }
        [Value::String(_)] => Err(from_string("uint")),
        _ => Err(Failure::NoOverload),
    }
}

fn to_timestamp(args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Timestamp(_)] => Ok(value.clone()),
        [Value::Int(seconds)] => Timestamp::from_seconds(*seconds).map(Value::Timestamp),
        [Value::String(text)] => Timestamp::parse(text)
            .map(Value::Timestamp)
            .ok_or_else(|| from_string("google.protobuf.Timestamp")),
        _ => Err(Failure::NoOverload),
    }
}

fn to_string(args: &[Value]) -> Outcome {
    Ok(Value::string(match args {
        [value @ Value::String(_)] => return Ok(value.clone()),
        [Value::Bool(value)] => value.to_string(),
        [Value::Int(number)] => number.to_string(),
        [Value::Uint(number)] => number.to_string(),
        [Value::Double(number)] => shown_double(*number),
        [Value::Bytes(bytes)] => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                let reason = "invalid UTF-8 in bytes, cannot convert to string";
                return Err(Failure::because(reason));
            }
        },
        [Value::Duration(nanoseconds)] => shown_duration(*nanoseconds),
        [Value::Timestamp(time)] => time.to_string(),
        [Value::Ip(ip)] => ip.to_string(),
        [Value::Cidr(cidr)] => cidr.to_string(),
        _ => return Err(Failure::NoOverload),
    }))
}

/// The shortest text that means the same number, with an exponent where it is far from one.
pub(in crate::cel) fn shown_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
