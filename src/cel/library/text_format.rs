//! `"%s has %d".format([name, count])`

use super::{
    Function,
    conversions::shown_double,
    time::shown_duration,
};
use crate::cel::{
    ast::{Expr, Kind, Literal},
    value::{Failure, Outcome, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[Function {
    name: "format",
    overloads: &[("string_format", "string.(list(dyn)) -> string")],
    run: format_values,
}];

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part<'t> {
    Text(&'t str),
    Clause { kind: char, precision: Option<usize> },
}

/// A template in parts.
fn parts(template: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        parts.push(Part::Text(&rest[..at]));
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            parts.push(Part::Text("%"));
            rest = behind;
            continue;
        }
        let mut precision = None;
        if let Some(behind) = rest.strip_prefix('.') {
            let length = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            let digits = &behind[..length];
            let parsed = digits.parse().ok().filter(|precision| *precision <= 1000);
            precision = Some(parsed.ok_or_else(|| format!("invalid precision {digits:?}"))?);
            rest = &behind[length..];
        }
        let Some(kind) = rest.chars().next() else { return Err("unexpected end of string".to_owned()) };
        if !matches!(kind, 's' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o') {
            return Err(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{kind}\""
            ));
        }
        parts.push(Part::Clause { kind, precision });
        rest = &rest[kind.len_utf8()..];
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn format_values(args: &[Value]) -> Outcome {
    let [Value::String(template), Value::List(values)] = args else { return Err(Failure::NoOverload) };
    let mut values = values.iter().enumerate();
    let mut text = String::new();
    let mut count = 0;
    for part in parts(template).map_err(Failure::because)? {
        match part {
            Part::Text(plain) => text += plain,
            Part::Clause { kind, precision } => {
                let out_of_range = || Failure::because(format!("index {count} out of range"));
                let (_, value) = values.next().ok_or_else(out_of_range)?;
                count += 1;
                let shown = clause(kind, precision, value).map_err(|reason| {
                    Failure::because(format!("error during formatting: {reason}"))
                })?;
                text += &shown;
            }
        }
    }
    Ok(Value::string(text))
}

fn clause(kind: char, precision: Option<usize>, value: &Value) -> Result<String, String> {
    let refuse = |what: &str, allowed: &str| {
        Err(format!("{what} clause can only be used on {allowed}, was given {}", value.type_name()))
    };
    match (kind, value) {
        ('s', value) => shown(value),
        ('d', Value::Int(number)) => Ok(number.to_string()),
        ('d', Value::Uint(number)) => Ok(number.to_string()),
        ('d' | 'f' | 'e', Value::Double(number)) if !number.is_finite() => Ok(shown_special(*number)),
        ('d', _) => refuse("decimal", "integers"),
        ('f', Value::Double(number)) => Ok(format!("{number:.*}", precision.unwrap_or(6))),
        ('f', _) => refuse("fixed-point", "doubles"),
        ('e', Value::Double(number)) => Ok(scientific(*number, precision.unwrap_or(6))),
        ('e', _) => refuse("scientific", "doubles"),
        ('b', Value::Int(number)) => Ok(signed(*number, |number| format!("{number:b}"))),
        ('b', Value::Uint(number)) => Ok(format!("{number:b}")),
        ('b', Value::Bool(value)) => Ok(u8::from(*value).to_string()),
        ('b', _) => refuse("only integers and bools can be formatted as binary:", "them"),
        ('o', Value::Int(number)) => Ok(signed(*number, |number| format!("{number:o}"))),
        ('o', Value::Uint(number)) => Ok(format!("{number:o}")),
        ('o', _) => refuse("octal", "integers"),
        (_, value) => {
            let hex = match value {
                Value::Int(number) => signed(*number, |number| format!("{number:x}")),
                Value::Uint(number) => format!("{number:x}"),
                Value::String(text) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
                Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                _ => return refuse("hex", "integers, byte buffers, and strings"),
            };
            Ok(if kind == 'X' { hex.to_uppercase() } else { hex })
        }
    }
}

fn signed(number: i64, digits: fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", digits(number.unsigned_abs()))
}

fn shown_special(number: f64) -> String {
    let text = if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    text.to_owned()
}

fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn shown(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) if !number.is_finite() => shown_special(*number),
        Value::Double(number) => shown_double(*number),
        Value::String(text) => (**text).to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Type(name) => (*name).to_owned(),
        Value::Duration(nanoseconds) => shown_duration(*nanoseconds),
        Value::Timestamp(time) => time.to_string(),
        Value::List(list) => {
            let shown = list.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
            format!("[{}]", shown.join(", "))
        }
        Value::Map(map) => {
            let entry = |(key, value)| Ok(format!("{}: {}", shown(key)?, shown(value)?));
            let mut entries = map.iter().map(entry).collect::<Result<Vec<_>, String>>()?;
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        other => {
            return Err(format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                other.type_name()
            ));
        }
    })
}

/// What is wrong with a template and arguments that are written out, and with which argument.
pub(in crate::cel) fn check_literal(template: &str, args: &[&Expr]) -> Option<(Option<usize>, String)> {
    let parts = match parts(template) {
        Ok(parts) => parts,
        Err(reason) => return Some((None, reason)),
    };
    let mut count = 0;
    for part in parts {
        let Part::Clause { kind, precision } = part else { continue };
        let Some(arg) = args.get(count) else { return Some((None, format!("index {count} out of range"))) };
        if let Kind::Literal(literal) = &arg.kind
            && let Err(reason) = clause(kind, precision, &sample(literal))
        {
            return Some((Some(count), format!("error during formatting: {reason}")));
        }
        count += 1;
    }
    let given = args.len();
    (given > count)
        .then(|| (None, format!("too many arguments supplied to string.format (expected {count}, got {given})")))
}

/// A value of the type of a literal.
fn sample(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::string(text.as_str()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}
