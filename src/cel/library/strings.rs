//! Functions on texts: characters are counted, not bytes.

use super::Function;
use crate::cel::value::{Failure, MAX_TEXT, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "contains",
        overloads: &[("contains_string", "string.(string) -> bool")],
        run: |args| compare(args, |text, part| text.contains(part)),
    },
    Function {
        name: "startsWith",
        overloads: &[("starts_with_string", "string.(string) -> bool")],
        run: |args| compare(args, |text, part| text.starts_with(part)),
    },
    Function {
        name: "endsWith",
        overloads: &[("ends_with_string", "string.(string) -> bool")],
        run: |args| compare(args, |text, part| text.ends_with(part)),
    },
    Function { name: "charAt", overloads: &[("string_char_at_int", "string.(int) -> string")], run: char_at },
    Function {
        name: "indexOf",
        overloads: &[
            ("string_index_of_string", "string.(string) -> int"),
            ("string_index_of_string_int", "string.(string, int) -> int"),
        ],
        run: index_of,
    },
    Function {
        name: "lastIndexOf",
        overloads: &[
            ("string_last_index_of_string", "string.(string) -> int"),
            ("string_last_index_of_string_int", "string.(string, int) -> int"),
        ],
        run: last_index_of,
    },
    Function {
        name: UNBOUNDED_INDEX_OF,
        overloads: &[("string_index_of_string_int", "string.(string, int) -> int")],
        run: |args| unbounded(args, index_of),
    },
    Function {
        name: UNBOUNDED_LAST_INDEX_OF,
        overloads: &[("string_last_index_of_string_int", "string.(string, int) -> int")],
        run: |args| unbounded(args, last_index_of),
    },
    Function {
        name: "lowerAscii",
        overloads: &[("string_lower_ascii", "string.() -> string")],
        run: |args| map(args, str::to_ascii_lowercase),
    },
    Function {
        name: "upperAscii",
        overloads: &[("string_upper_ascii", "string.() -> string")],
        run: |args| map(args, str::to_ascii_uppercase),
    },
    Function {
        name: "trim",
        overloads: &[("string_trim", "string.() -> string")],
        run: |args| map(args, |text| text.trim().to_owned()),
    },
    Function {
        name: "replace",
        overloads: &[
            ("string_replace_string_string", "string.(string, string) -> string"),
            ("string_replace_string_string_int", "string.(string, string, int) -> string"),
        ],
        run: replace,
    },
    Function {
        name: "split",
        overloads: &[
            ("string_split_string", "string.(string) -> list(string)"),
            ("string_split_string_int", "string.(string, int) -> list(string)"),
        ],
        run: split,
    },
    Function {
        name: "substring",
        overloads: &[
            ("string_substring_int", "string.(int) -> string"),
            ("string_substring_int_int", "string.(int, int) -> string"),
        ],
        run: substring,
    },
    Function {
        name: "join",
        overloads: &[
            ("list_join", "list(string).() -> string"),
            ("list_join_string", "list(string).(string) -> string"),
        ],
        run: join,
    },
    Function { name: "strings.quote", overloads: &[("strings_quote", "(string) -> string")], run: quote },
];

fn compare(args: &[Value], is_so: fn(&str, &str) -> bool) -> Outcome {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(is_so(text, part))),
        _ => Err(Failure::NoOverload),
    }
}

fn map(args: &[Value], change: impl Fn(&str) -> String) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::string(change(text))),
        _ => Err(Failure::NoOverload),
    }
}

fn out_of_range(index: i64) -> Failure {
    Failure::because(format!("index out of range: {index}"))
}

/// An index that is within a text or at its end.
fn index(index: i64, length: usize) -> Result<usize, Failure> {
    usize::try_from(index).ok().filter(|index| *index <= length).ok_or_else(|| out_of_range(index))
}

fn found(place: Option<usize>) -> Value {
    Value::Int(place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1))
}

fn char_at(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text), Value::Int(at)] => {
            let at = index(*at, text.chars().count())?;
            Ok(Value::string(text.chars().nth(at).map(String::from).unwrap_or_default()))
        }
        _ => Err(Failure::NoOverload),
    }
}

/// Where a part is, as a number of characters.
fn position(text: &str, byte: usize) -> usize {
    text[..byte].chars().count()
}

/// What `indexOf` with an offset was until 1.36, under names that cannot be written.
pub(in crate::cel) const UNBOUNDED_INDEX_OF: &str = "@indexOf";
/// The same for `lastIndexOf`.
pub(in crate::cel) const UNBOUNDED_LAST_INDEX_OF: &str = "@lastIndexOf";

/// Nothing is found at every offset, even where there is no text.
fn unbounded(args: &[Value], otherwise: fn(&[Value]) -> Outcome) -> Outcome {
    match args {
        [Value::String(_), Value::String(part), Value::Int(offset)] if part.is_empty() => {
            Ok(Value::Int(*offset))
        }
        _ => otherwise(args),
    }
}

fn index_of(args: &[Value]) -> Outcome {
    let (text, part, offset) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, *offset),
        _ => return Err(Failure::NoOverload),
    };
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if part.is_empty() {
        return Ok(found(Some(start.min(text.chars().count()))));
    }
    let Some((byte, _)) = text.char_indices().nth(start) else { return Ok(found(None)) };
    Ok(found(text[byte..].find(&**part).map(|place| position(text, byte + place))))
}

fn last_index_of(args: &[Value]) -> Outcome {
    let (text, part, offset) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, Some(*offset)),
        _ => return Err(Failure::NoOverload),
    };
    let characters: Vec<char> = text.chars().collect();
    let last = match offset {
        None => characters.len(),
        Some(offset) => match usize::try_from(offset).map_err(|_| out_of_range(offset))? {
            last if part.is_empty() => last.min(characters.len()),
            last if last < characters.len() => last,
            _ => return Ok(found(None)),
        },
    };
    if part.is_empty() {
        return Ok(found(Some(last)));
    }
    let part: Vec<char> = part.chars().collect();
    let Some(most) = characters.len().checked_sub(part.len()) else { return Ok(found(None)) };
    let starts = (0..=most.min(last)).rev();
    Ok(found(starts.into_iter().find(|start| characters[*start..].starts_with(&part))))
}

fn replace(args: &[Value]) -> Outcome {
    let (text, old, new, count) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(count)] => {
            (text, old, new, *count)
        }
        _ => return Err(Failure::NoOverload),
    };
    let most = if old.is_empty() { text.len() + 1 } else { text.len() / old.len() };
    let times = usize::try_from(count).map_or(most, |count| count.min(most));
    if text.len().saturating_add(times.saturating_mul(new.len())) > MAX_TEXT {
        return Err(Failure::TooLarge);
    }
    Ok(Value::string(match usize::try_from(count) {
        Ok(count) => text.replacen(&**old, new, count),
        Err(_) => text.replace(&**old, new),
    }))
}

fn split(args: &[Value]) -> Outcome {
    let (text, separator, count) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(count)] => (text, separator, *count),
        _ => return Err(Failure::NoOverload),
    };
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list([]));
    }
    if !separator.is_empty() {
        return Ok(Value::strings(text.splitn(limit, &**separator)));
    }
    // Nothing separates every character from the next, but not the first one from the beginning.
    let mut parts = Vec::new();
    let mut rest = &**text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (character, others) = rest.split_at(first.len_utf8());
        parts.push(character);
        rest = others;
    }
    Ok(Value::strings(parts))
}

fn substring(args: &[Value]) -> Outcome {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(Failure::NoOverload),
    };
    let length = text.chars().count();
    if let Some(end) = end
        && start > end
    {
        let reason = format!("invalid substring range. start: {start}, end: {end}");
        return Err(Failure::because(reason));
    }
    let first = index(start, length)?;
    let last = match end {
        Some(end) => index(end, length)?,
        None => length,
    };
    Ok(Value::string(text.chars().skip(first).take(last - first).collect::<String>()))
}

fn join(args: &[Value]) -> Outcome {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(Failure::NoOverload),
    };
    let texts: Option<Vec<&str>> = list
        .iter()
        .map(|value| match value {
            Value::String(text) => Some(&**text),
            _ => None,
        })
        .collect();
    let texts = texts.ok_or(Failure::NoOverload)?;
    let length: usize = texts.iter().map(|text| text.len().saturating_add(separator.len())).sum();
    if length > MAX_TEXT {
        return Err(Failure::TooLarge);
    }
    Ok(Value::string(texts.join(separator)))
}

fn quote(args: &[Value]) -> Outcome {
    map(args, |text| {
        let mut quoted = String::from("\"");
        for c in text.chars() {
            match c {
                '\u{7}' => quoted += "\\a",
                '\u{8}' => quoted += "\\b",
                '\u{c}' => quoted += "\\f",
                '\n' => quoted += "\\n",
                '\r' => quoted += "\\r",
                '\t' => quoted += "\\t",
                '\u{b}' => quoted += "\\v",
                '\\' => quoted += "\\\\",
                '"' => quoted += "\\\"",
                other => quoted.push(other),
            }
        }
        quoted + "\""
    })
}
