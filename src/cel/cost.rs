//! What an evaluation costs: the API server stops one that comes to more than a million, and so must this.

use super::value::Value;

/// The unit in which an evaluation is measured.
pub type Cost = u64;

/// What one evaluation may come to.
pub(super) const LIMIT: Cost = 1_000_000;

/// How many values are visited to find the cost of visiting them.
const MAX_TRAVERSED: u64 = 4 * LIMIT;

/// What making a list costs.
pub(super) const LIST: Cost = 10;

/// What making a map costs.
pub(super) const MAP: Cost = 30;

/// What one call costs, known as far as possible before the evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallCost {
    /// The same each time.
    One,
    /// A tenth for each character of an argument, so many times.
    Characters { argument: usize, times: u64 },
    /// Two tenths for each character of the result.
    Joined,
    /// As many as the second argument has elements.
    Elements,
    /// A tenth for each character of the shorter of two arguments.
    Shorter,
    /// The same, but one for what is neither text nor a container.
    Equality,
    /// A tenth for each character of both arguments.
    Both,
    /// As the length of a text by the length of a pattern.
    Pattern,
    /// As the length of a text by the length of what is looked for in it.
    Contained,
    /// Once through everything in the first argument.
    Traversal,
    /// As long as comparing so many bytes of a network takes.
    Network { is_parsed: bool, is_cidr: bool },
    /// As a pattern of the format would.
    Format,
    /// A list as long as the result.
    NewList,
    /// A list as long as the argument, so many levels deep.
    Flattened,
    /// Every element of an argument compared with every other.
    SelfCompared { argument: usize },
    /// Every element of one argument compared with every one of another, so many times.
    Compared { times: u64 },
}

impl CallCost {
    /// The cost of a function, of which the checker knows the overload where there is only one.
    pub(super) fn of(function: &str, overload: Option<&str>, dialect: super::Version) -> Self {
        let overload = overload.unwrap_or_default();
        if let Some(cost) = Self::of_list_overload(overload) {
            return cost;
        }
        let all = |times| Self::Characters { argument: 0, times };
        match function {
            "includes" if dialect == super::Version::V1_36 => Self::One,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => Self::Traversal,
            "ip" if overload == "cidr_ip" => Self::One,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
            | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => all(1),
            "replace" | "split" | "ip.isCanonical" => all(2),
            "join" => Self::Joined,
            "find" | "findAll" => Self::Pattern,
            "containsIP" => {
                Self::Network { is_parsed: overload == "cidr_contains_ip_string", is_cidr: false }
            }
            "containsCIDR" => {
                Self::Network { is_parsed: overload == "cidr_contains_cidr_string", is_cidr: true }
            }
            "validate" => Self::Format,
            _ => Self::of_overload(overload, dialect),
        }
    }

    fn of_list_overload(overload: &str) -> Option<Self> {
        Some(match overload {
            "list_slice" | "lists_range" | "list_reverse" => Self::NewList,
            "list_flatten" | "list_flatten_int" => Self::Flattened,
            "list_distinct" => Self::SelfCompared { argument: 0 },
            "list_sets_contains_list" | "list_sets_intersects_list" => Self::Compared { times: 1 },
            "list_sets_equivalent_list" => Self::Compared { times: 2 },
            _ if !overload.starts_with("list_") => return None,
            _ if overload.ends_with("_sort") => Self::SelfCompared { argument: 0 },
            _ if overload.ends_with("_sortByAssociatedKeys") => Self::SelfCompared { argument: 1 },
            _ => return None,
        })
    }

    fn of_overload(overload: &str, dialect: super::Version) -> Self {
        match overload {
            // Since 1.37 it is what is looked for that counts.
            "starts_with_string" | "ends_with_string" => {
                Self::Characters { argument: usize::from(dialect != super::Version::V1_36), times: 1 }
            }
            "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => {
                Self::Characters { argument: 0, times: 1 }
            }
            "in_list" => Self::Elements,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "not_equals" => Self::Shorter,
            "equals" => Self::Equality,
            "add_string" | "add_bytes" => Self::Both,
            "matches" if dialect == super::Version::V1_36 => Self::One,
            "matches" | "matches_string" => Self::Pattern,
            "contains_string" => Self::Contained,
            _ => Self::One,
        }
    }

    /// Whether the cost is only known afterwards.
    pub(super) fn needs_result(self) -> bool {
        matches!(self, Self::Joined | Self::NewList)
    }

    /// The cost with these arguments; what failed has a place among them.
    pub(super) fn charge<'v>(
        self,
        argument: &impl Fn(usize) -> Option<&'v Value>,
        result: Option<&Value>,
    ) -> Cost {
        let size = |place: usize| argument(place).map_or(1, size);
        match self {
            Self::One => 1,
            Self::Characters { argument: place, times } => tenth(size(place) * times),
            Self::Joined => tenth(result.map_or(1, self::size) * 2),
            Self::Elements => size(1),
            Self::Equality if argument(0).is_some_and(Value::is_kubernetes) => 1,
            Self::Shorter | Self::Equality => tenth(size_in(argument(0)).min(size_in(argument(1)))),
            Self::Both => tenth(size(0) + size(1)),
            Self::Pattern => tenth(1 + size(0)) * size(1).div_ceil(4),
            Self::Contained => tenth(size(0)) * tenth(size(1)),
            Self::Traversal => argument(0).map_or(1, |value| {
                let mut left = MAX_TRAVERSED;
                traversal(value, &mut left)
            }),
            Self::Network { is_parsed, is_cidr } => {
                let mask = if is_cidr { tenth(size(0)) + 1 } else { 0 };
                let parse = if is_parsed { tenth(size(1)) } else { 0 };
                tenth(size(0) * 2) + mask + parse
            }
            Self::Format => match argument(0) {
                Some(Value::Format(format)) => tenth(1 + size(1)) * format.pattern_length().div_ceil(4),
                _ => 1,
            },
            Self::NewList => result.map_or(1, self::size) + 1 + LIST,
            Self::Flattened => {
                let depth = match argument(1) {
                    Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(1),
                    _ => 1,
                };
                size(0).saturating_mul(depth).saturating_add(1 + LIST)
            }
            Self::SelfCompared { argument: place } => match argument(place) {
                Some(Value::List(list)) => {
                    let pairs = (list.len() as u64).saturating_mul(list.len() as u64);
                    let is_text = matches!(list.first(), Some(Value::String(_) | Value::Bytes(_)));
                    let tenths = if is_text { 21 } else { 20 };
                    pairs.saturating_mul(tenths) / 10 + 1 + LIST
                }
                _ => 1,
            },
            Self::Compared { times } => 1 + size(0).saturating_mul(size(1)).saturating_mul(times),
        }
    }
}

fn tenth(characters: u64) -> Cost {
    characters.div_ceil(10)
}

/// How large a value is for those who walk it.
fn size(value: &Value) -> u64 {
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        Value::Ip(ip) => ip.size(),
        Value::Cidr(cidr) => cidr.size(),
        _ => 1,
    };
    size as u64
}

/// The same, but an optional is as large as what it holds.
fn size_in(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::Optional(Some(inner))) => size_in(Some(inner)),
        Some(other) => size(other),
        None => 1,
    }
}

/// Once through a value, until nothing is left of what may be visited: the same value can be in many.
fn traversal(value: &Value, left: &mut u64) -> Cost {
    let Some(rest) = left.checked_sub(1) else { return LIMIT + 1 };
    *left = rest;
    let parts: Box<dyn Iterator<Item = &Value>> = match value {
        // Rounded down, each one by itself.
        Value::String(text) => return text.len() as u64 / 10,
        Value::Bytes(bytes) => return bytes.len() as u64 / 10,
        Value::List(list) => Box::new(list.iter()),
        Value::Map(map) => Box::new(map.iter().flat_map(|(key, value)| [key, value])),
        _ => return 1,
    };
    let mut sum = 0_u64;
    for part in parts {
        sum = sum.saturating_add(traversal(part, left));
        if *left == 0 {
            return LIMIT + 1;
        }
    }
    sum
}
