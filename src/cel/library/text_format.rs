//! `"%s has %d".format([name, count])`

use super::{Function, conversions::shown_double, time::shown_duration};
use crate::cel::{
    types::Type,
    value::{Failure, MAX_TEXT, Outcome, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[Function {
    name: "format",
    overloads: &[("string_format", "string.(list(dyn)) -> string")],
    run: format_values,
}];

/// The most digits behind the point that can be asked for.
const MAX_PRECISION: usize = 1000;

/// How many there are if nobody asks.
const PRECISION: usize = 6;

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part<'t> {
    Text(&'t str),
    Clause { kind: char, precision: usize },
}

/// A template in parts; each clause that is begun needs a value, even if it is wrong.
fn parts(template: &str, values: usize) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = template;
    let mut count = 0;
    while let Some(at) = rest.find('%') {
        parts.push(Part::Text(&rest[..at]));
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            parts.push(Part::Text("%"));
            rest = behind;
            continue;
        }
        if rest.is_empty() {
            return Err("unexpected end of string".to_owned());
        }
        if count == values {
            return Err(format!("index {count} out of range"));
        }
        let (clause, behind) =
            clause(rest).map_err(|reason| format!("could not parse formatting clause: {reason}"))?;
        parts.push(clause);
        rest = behind;
        count += 1;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// What is behind a percent sign.
fn clause(mut rest: &str) -> Result<(Part<'_>, &str), String> {
    let mut precision = PRECISION;
    if let Some(behind) = rest.strip_prefix('.') {
        let length = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let digits = &behind[..length];
        let parsed = digits.parse().ok().filter(|precision| *precision <= MAX_PRECISION);
        precision = parsed.ok_or_else(|| format!("error while parsing precision: {digits:?}"))?;
        rest = &behind[length..];
    }
    let kind = rest.chars().next().ok_or("could not find end of precision specifier")?;
    if !matches!(kind, 's' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o') {
        return Err(format!("unrecognized formatting clause \"{kind}\""));
    }
    Ok((Part::Clause { kind, precision }, &rest[kind.len_utf8()..]))
}

fn format_values(args: &[Value]) -> Outcome {
    let [Value::String(template), Value::List(values)] = args else { return Err(Failure::NoOverload) };
    let parts = parts(template, values.len()).map_err(Failure::because)?;
    let mut values = values.iter();
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(plain) => text += plain,
            Part::Clause { kind, precision } => {
                // As many values as clauses were made sure of above.
                let Some(value) = values.next() else { break };
                let mut left = MAX_TEXT;
                if !fits(value, &mut left) {
                    return Err(Failure::TooLarge);
                }
                let shown = formatted(kind, precision, value).ok_or_else(|| {
                    let is_unreadable = kind == 's' && has_no_text(value);
                    let reason =
                        if is_unreadable { NO_TEXT.to_owned() } else { refusal(kind, value.type_name()) };
                    Failure::because(reason)
                })?;
                text += &shown;
                if text.len() > MAX_TEXT {
                    return Err(Failure::TooLarge);
                }
            }
        }
    }
    Ok(Value::string(text))
}

/// Whether a value can be shown with what is left of the room for it: the same value can be in many.
fn fits(value: &Value, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 1,
    };
    match left.checked_sub(own) {
        Some(rest) => *left = rest,
        None => return false,
    }
    match value {
        Value::List(list) => list.iter().all(|value| fits(value, left)),
        Value::Map(map) => map.iter().all(|(key, value)| fits(key, left) && fits(value, left)),
        _ => true,
    }
}

const NO_TEXT: &str = "error during formatting: could not convert argument \"invalid UTF-8 in bytes, cannot convert to string\" to string";

/// Whether there are bytes in it that are not those of a text.
fn has_no_text(value: &Value) -> bool {
    match value {
        Value::Bytes(bytes) => str::from_utf8(bytes).is_err(),
        Value::List(list) => list.iter().any(has_no_text),
        Value::Map(map) => map.iter().any(|(_, value)| has_no_text(value)),
        _ => false,
    }
}

/// Why a clause does not take a value.
fn refusal(kind: char, found: &str) -> String {
    let reason = match kind {
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
    };
    format!("error during formatting: {reason}, was given {found}")
}

fn formatted(kind: char, precision: usize, value: &Value) -> Option<String> {
    Some(match (kind, value) {
        ('s', value) => return shown(value),
        ('d', Value::Int(number)) => number.to_string(),
        ('d', Value::Uint(number)) => number.to_string(),
        ('f', value) => grouped(double(value)?, precision),
        ('e', value) => scientific(double(value)?, precision),
        ('b', Value::Int(number)) => signed(*number, |number| format!("{number:b}")),
        ('b', Value::Uint(number)) => format!("{number:b}"),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('o', Value::Int(number)) => signed(*number, |number| format!("{number:o}")),
        ('o', Value::Uint(number)) => format!("{number:o}"),
        ('x' | 'X', value) => {
            let hex = match value {
                Value::Int(number) => signed(*number, |number| format!("{number:x}")),
                Value::Uint(number) => format!("{number:x}"),
                Value::String(text) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
                Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                _ => return None,
            };
            if kind == 'X' { hex.to_uppercase() } else { hex }
        }
        _ => return None,
    })
}

fn signed(number: i64, digits: fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", digits(number.unsigned_abs()))
}

/// A double, or the text of one that has no digits.
fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_finite() => None,
        _ if number.is_nan() => Some("NaN"),
        _ if number > 0.0 => Some("∞"),
        _ => Some("-∞"),
    }
}

/// A zero has no sign, unless it is only rounded to one.
fn unsigned_zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}

/// With a comma between each three digits, as English has it.
fn grouped(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let number = unsigned_zero(number);
    let text = format!("{number:.precision$}");
    let (whole, fraction) =
        text.split_once('.').map_or((&*text, ""), |(whole, _)| (whole, &text[whole.len()..]));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::from(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// The reference takes what should be a precision for a width, so that there are always six digits.
fn scientific(number: f64, width: usize) -> String {
    if let Some(special) = special(number) {
        return format!("{special:>width$}");
    }
    let number = unsigned_zero(number);
    let text = format!("{number:.PRECISION$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised = |digit: char| digit.to_digit(10).and_then(|digit| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize));
    let exponent: String = format!("{exponent:0>2}").chars().filter_map(raised).collect();
    format!("{digits}×10{sign}{exponent}")
}

fn shown(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => shown_double(*number),
        Value::String(text) => (**text).to_owned(),
        Value::Bytes(bytes) => str::from_utf8(bytes).ok()?.to_owned(),
        Value::Type(name) => (*name).to_owned(),
        Value::Duration(nanoseconds) => shown_duration(*nanoseconds),
        Value::Timestamp(time) => time.to_string(),
        Value::List(list) => {
            let elements = list.iter().map(shown_within).collect::<Option<Vec<_>>>()?;
            format!("[{}]", elements.join(", "))
        }
        Value::Map(map) => {
            let entry = |(key, value)| Some((shown_within(key)?, shown_within(value)?));
            let mut entries = map.iter().map(entry).collect::<Option<Vec<_>>>()?;
            entries.sort();
            let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        _ => return None,
    })
}

/// As it would be written within a list or a map.
fn shown_within(value: &Value) -> Option<String> {
    let plain = shown(value)?;
    Some(match value {
        Value::String(_) => format!("{plain:?}"),
        Value::Bytes(_) => format!("b{plain:?}"),
        Value::Double(number) => {
            special(*number).map_or_else(|| format!("{number:.PRECISION$}"), str::to_owned)
        }
        Value::Duration(_) => format!("duration({plain:?})"),
        Value::Timestamp(_) => format!("timestamp({plain:?})"),
        _ => plain,
    })
}

/// What is wrong with a template for values of these types, and with which of them.
pub(in crate::cel) fn check_types(template: &str, types: &[Type]) -> Option<(Option<usize>, String)> {
    let parts = match parts(template, types.len()) {
        Ok(parts) => parts,
        Err(reason) => return Some((None, reason)),
    };
    let mut count = 0;
    for part in parts {
        let Part::Clause { kind, .. } = part else { continue };
        if let Some(found) = types.get(count).filter(|found| !takes(kind, found)) {
            return Some((Some(count), refusal(kind, &found.declared())));
        }
        count += 1;
    }
    let given = types.len();
    let message = || format!("too many arguments supplied to string.format (expected {count}, got {given})");
    (given > count).then(|| (None, message()))
}

fn takes(kind: char, found: &Type) -> bool {
    match (kind, found) {
        ('s', Type::Any | Type::Object(_) | Type::Optional(_)) => false,
        (_, Type::Dyn) | ('s', _) | ('d' | 'o' | 'b' | 'x' | 'X', Type::Int | Type::Uint) => true,
        ('f' | 'e', found) => matches!(found, Type::Double | Type::String),
        ('b', found) => *found == Type::Bool,
        ('x' | 'X', found) => matches!(found, Type::String | Type::Bytes),
        _ => false,
    }
}
