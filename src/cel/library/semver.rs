//! Versions as `semver.org` has them.

use std::{cmp::Ordering, sync::Arc};

use semver::Version;

use super::Function;
use crate::cel::value::{Failure, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "semver",
        overloads: &[
            ("string_to_semver", "(string) -> semver"),
            ("string_bool_to_semver", "(string, bool) -> semver"),
        ],
        run: |args| parsed(args)?.map(|version| Value::Semver(Arc::new(version))).map_err(Failure::because),
    },
    Function {
        name: "isSemver",
        overloads: &[
            ("is_semver_string", "(string) -> bool"),
            ("is_semver_string_bool", "(string, bool) -> bool"),
        ],
        run: |args| Ok(Value::Bool(parsed(args)?.is_ok())),
    },
    Function {
        name: "isGreaterThan",
        overloads: &[("semver_is_greater_than", "semver.(semver) -> bool")],
        run: |args| compare(args, |order| Value::Bool(order.is_gt())),
    },
    Function {
        name: "isLessThan",
        overloads: &[("semver_is_less_than", "semver.(semver) -> bool")],
        run: |args| compare(args, |order| Value::Bool(order.is_lt())),
    },
    Function {
        name: "compareTo",
        overloads: &[("semver_compare_to", "semver.(semver) -> int")],
        run: |args| compare(args, |order| Value::Int(order as i64)),
    },
    Function {
        name: "major",
        overloads: &[("semver_major", "semver.() -> int")],
        run: |args| part(args, |version| version.major),
    },
    Function {
        name: "minor",
        overloads: &[("semver_minor", "semver.() -> int")],
        run: |args| part(args, |version| version.minor),
    },
    Function {
        name: "patch",
        overloads: &[("semver_patch", "semver.() -> int")],
        run: |args| part(args, |version| version.patch),
    },
];

/// A version, or why it is none.
pub(in crate::cel) fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, _] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    for (name, number) in [("major", major), ("minor", minor)] {
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("Invalid character(s) found in {name} number {number:?}"));
        }
    }
    Version::parse(text).map_err(|error| error.to_string())
}

/// A version that somebody wrote less strictly: with a `v`, with leading zeros, or without its last parts.
fn parse_loosely(text: &str) -> Result<Version, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".to_owned());
    }
    parts.resize(3, "0".to_owned());
    parse(&parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    let is_number = trimmed.starts_with(|c: char| c.is_ascii_digit());
    if is_number { trimmed.to_owned() } else { format!("0{trimmed}") }
}

fn parsed(args: &[Value]) -> Result<Result<Version, String>, Failure> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(parse_loosely(text)),
        _ => Err(Failure::NoOverload),
    }
}

fn compare(args: &[Value], answer: fn(Ordering) -> Value) -> Outcome {
    match args {
        [Value::Semver(one), Value::Semver(other)] => Ok(answer(one.cmp_precedence(other))),
        _ => Err(Failure::NoOverload),
    }
}

fn part(args: &[Value], pick: fn(&Version) -> u64) -> Outcome {
    match args {
        // What is too large becomes negative, as in the reference.
        [Value::Semver(version)] => Ok(Value::Int(pick(version).cast_signed())),
        _ => Err(Failure::NoOverload),
    }
}
