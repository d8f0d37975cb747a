//! Signatures, written as text and read once.

use crate::cel::types::{Object, Type};

/// One way to call a function.
#[derive(Debug)]
pub(in crate::cel) struct Overload {
    pub(in crate::cel) id: &'static str,
    pub(in crate::cel) is_member: bool,
    pub(in crate::cel) params: Vec<Type>,
    pub(in crate::cel) result: Type,
}

impl Overload {
    /// How many letters stand for a type: `A`, `B`.
    pub(in crate::cel) const LETTERS: usize = 2;

    /// From `(string) -> int` or `string.(int) -> int`; what is not understood is of unknown type, which a
    /// test rules out.
    pub(super) fn new(id: &'static str, text: &str) -> Self {
        let (params, result) = text.split_once(" -> ").unwrap_or((text, "dyn"));
        let (target, params) = match params.split_once(".(") {
            Some((target, params)) => (Some(target), params),
            None => (None, params.strip_prefix('(').unwrap_or(params)),
        };
        let inner = params.strip_suffix(')').unwrap_or(params);
        let params = target.into_iter().chain(split(inner)).map(parse).collect();
        Self { id, is_member: target.is_some(), params, result: parse(result) }
    }
}

/// The parts between commas that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text.is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

fn parse(text: &str) -> Type {
    if let Some((outer, inner)) = text.split_once('(') {
        let inner: Vec<_> = split(inner.strip_suffix(')').unwrap_or(inner)).into_iter().map(parse).collect();
        return match (outer, inner.as_slice()) {
            ("list", [element]) => Type::list(element.clone()),
            ("map", [key, value]) => Type::map(key.clone(), value.clone()),
            ("optional", [value]) => Type::optional(value.clone()),
            ("type", [of]) => Type::Meta(of.clone().into()),
            _ => Type::Dyn,
        };
    }
    match text {
        "A" => Type::Param('A'),
        "B" => Type::Param('B'),
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "quantity" => Type::Object(Object::Quantity),
        "semver" => Type::Object(Object::Semver),
        "url" => Type::Object(Object::Url),
        "ip" => Type::Object(Object::Ip),
        "cidr" => Type::Object(Object::Cidr),
        "format" => Type::Object(Object::Format),
        _ => Type::Dyn,
    }
}
