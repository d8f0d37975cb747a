//! Formats that have a name: what a text has to look like to be a label, a date and so on.

use super::{Function, regex::Pattern, time::Timestamp, url::Url};
use crate::cel::value::{Failure, Outcome, Value};

macro_rules! named {
    ($name:literal, $format:expr) => {
        Function {
            name: concat!("format.", $name),
            overloads: &[(concat!("format.", $name), "() -> format")],
            run: |_| Ok(Value::Format($format)),
        }
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    named!("dns1123Label", Format::Dns1123Label),
    named!("dns1123Subdomain", Format::Dns1123Subdomain),
    named!("dns1035Label", Format::Dns1035Label),
    named!("qualifiedName", Format::QualifiedName),
    named!("dns1123LabelPrefix", Format::Dns1123LabelPrefix),
    named!("dns1123SubdomainPrefix", Format::Dns1123SubdomainPrefix),
    named!("dns1035LabelPrefix", Format::Dns1035LabelPrefix),
    named!("labelValue", Format::LabelValue),
    named!("uri", Format::Uri),
    named!("uuid", Format::Uuid),
    named!("byte", Format::Byte),
    named!("date", Format::Date),
    named!("datetime", Format::Datetime),
    Function {
        name: "format.named",
        overloads: &[("format-named", "(string) -> optional(format)")],
        run: by_name,
    },
    Function {
        name: "validate",
        overloads: &[("format-validate", "format.(string) -> optional(list(string))")],
        run: validate,
    },
];

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) enum Format {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    Datetime,
}

impl Format {
    /// How long its pattern is for those who count the cost.
    pub(in crate::cel) const fn pattern_length(self) -> u64 {
        match self {
            Self::Dns1123Label | Self::Dns1035Label | Self::Dns1123LabelPrefix | Self::Dns1035LabelPrefix => {
                30
            }
            Self::Dns1123Subdomain | Self::QualifiedName | Self::Dns1123SubdomainPrefix => 60,
            Self::LabelValue => 40,
            Self::Uri => 1103,
            Self::Uuid => 70,
            Self::Byte => 84,
            Self::Date | Self::Datetime => 71,
        }
    }

    /// What is wrong with a text.
    fn flaws(self, text: &str) -> Vec<&'static str> {
        match self {
            Self::Dns1123Label => label(text, 63, starts_alphanumeric),
            Self::Dns1035Label => label(text, 63, starts_alphabetic),
            Self::Dns1123LabelPrefix => label(masked(text), 63, starts_alphanumeric),
            Self::Dns1035LabelPrefix => label(masked(text), 63, starts_alphabetic),
            Self::Dns1123Subdomain => subdomain(text),
            Self::Dns1123SubdomainPrefix => subdomain(masked(text)),
            Self::QualifiedName => qualified_name(text),
            Self::LabelValue => label_value(text),
            Self::Uri => flaw(Url::parse(text).is_ok(), "is no URI"),
            Self::Uuid => flaw(is_uuid(text), "does not match the UUID format"),
            Self::Byte => flaw(is_base64(text), "invalid base64"),
            Self::Date => flaw(is_date(text), "invalid date"),
            Self::Datetime => flaw(is_datetime(text), "invalid datetime"),
        }
    }
}

fn flaw(is_right: bool, message: &'static str) -> Vec<&'static str> {
    if is_right { Vec::new() } else { vec![message] }
}

/// A prefix may end where something will follow.
fn masked(text: &str) -> &str {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => rest,
        _ => text,
    }
}

fn starts_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn starts_alphabetic(c: char) -> bool {
    c.is_ascii_lowercase()
}

fn is_label(text: &str, starts: fn(char) -> bool) -> bool {
    text.starts_with(starts)
        && text.ends_with(starts_alphanumeric)
        && text.chars().all(|c| starts_alphanumeric(c) || c == '-')
}

fn label(text: &str, most: usize, starts: fn(char) -> bool) -> Vec<&'static str> {
    let mut flaws = flaw(text.len() <= most, "is too long");
    flaws.extend(flaw(is_label(text, starts), "must be lower case letters, digits and '-' between them"));
    flaws
}

fn subdomain(text: &str) -> Vec<&'static str> {
    let mut flaws = flaw(text.len() <= 253, "is too long");
    let is_subdomain = text.split('.').all(|part| is_label(part, starts_alphanumeric));
    flaws.extend(flaw(
        is_subdomain,
        "must be labels of lower case letters, digits and '-', with '.' between them",
    ));
    flaws
}

fn is_value(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(|c| is_end(c) || matches!(c, '-' | '_' | '.'))
}

fn label_value(text: &str) -> Vec<&'static str> {
    let mut flaws = flaw(text.len() <= 63, "is too long");
    flaws.extend(flaw(text.is_empty() || is_value(text), "must be letters, digits, '-', '_' and '.'"));
    flaws
}

fn qualified_name(text: &str) -> Vec<&'static str> {
    let mut parts = text.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => return vec!["must be a name with at most one '/' before it"],
    };
    let mut flaws = match prefix {
        Some("") => vec!["prefix part must be non-empty"],
        Some(prefix) => subdomain(prefix),
        None => Vec::new(),
    };
    if name.is_empty() {
        flaws.push("name part must be non-empty");
    }
    flaws.extend(flaw(name.len() <= 63, "name part is too long"));
    flaws.extend(flaw(is_value(name), "name part must be letters, digits, '-', '_' and '.'"));
    flaws
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex =
        |part: &str, length| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match parts.as_slice() {
        [all] => is_hex(all, 32),
        [one, two, three, four, five] => {
            is_hex(one, 8) && is_hex(two, 4) && is_hex(three, 4) && is_hex(four, 4) && is_hex(five, 12)
        }
        _ => false,
    }
}

fn is_base64(text: &str) -> bool {
    let unpadded = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - unpadded.len() <= 2
        && unpadded.bytes().all(is_digit)
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some()
}

fn is_datetime(text: &str) -> bool {
    let pattern = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let time = time.to_ascii_lowercase();
    let is_time = Pattern::new(pattern).is_ok_and(|pattern| pattern.is_match(&time));
    is_time && is_date(date)
}

fn by_name(args: &[Value]) -> Outcome {
    let [Value::String(name)] = args else { return Err(Failure::NoOverload) };
    let constants = FUNCTIONS.iter().filter(|function| function.name != "format.named");
    let found = constants.into_iter().find(|function| function.name.strip_prefix("format.") == Some(name));
    match found {
        Some(function) => (function.run)(&[]).map(Value::some),
        None => Ok(Value::Optional(None)),
    }
}

fn validate(args: &[Value]) -> Outcome {
    match args {
        [Value::Format(format), Value::String(text)] => {
            let flaws = format.flaws(text);
            Ok(if flaws.is_empty() { Value::Optional(None) } else { Value::some(Value::strings(flaws)) })
        }
        _ => Err(Failure::NoOverload),
    }
}
