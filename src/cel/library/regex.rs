//! Patterns, in the dialect of the reference: a digit is one of ten, whatever Unicode says.

use super::Function;
use crate::cel::value::{Failure, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "matches",
        overloads: &[("matches", "(string, string) -> bool"), ("matches_string", "string.(string) -> bool")],
        run: |args| compiled("matches", args),
    },
    Function {
        name: "find",
        overloads: &[("string_find_string", "string.(string) -> string")],
        run: |args| compiled("find", args),
    },
    Function {
        name: "findAll",
        overloads: &[
            ("string_find_all_string", "string.(string) -> list(string)"),
            ("string_find_all_string_int", "string.(string, int) -> list(string)"),
        ],
        run: |args| compiled("findAll", args),
    },
];

/// A pattern that is ready to be used.
#[derive(Debug, Clone)]
pub(in crate::cel) struct Pattern(regex::Regex);

impl Pattern {
    /// What a compiled pattern may take: an expression is short, but repetitions multiply.
    const MAX_SIZE: usize = 4 << 20;

    /// How often something may be repeated, as in the reference.
    const MAX_REPETITION: u32 = 1000;

    pub(in crate::cel) fn new(text: &str) -> Result<Self, String> {
        if repetitions(text).any(|times| times > Self::MAX_REPETITION) {
            return Err("invalid repeat count".to_owned());
        }
        let built = regex::RegexBuilder::new(&translated(text)).size_limit(Self::MAX_SIZE).build();
        built.map(Self).map_err(|error| error.to_string())
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// The numbers in braces.
fn repetitions(text: &str) -> impl Iterator<Item = u32> {
    let counts = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    counts.flat_map(|(counts, _)| counts.split(',')).filter_map(|count| count.parse().ok())
}

/// The same pattern for an engine in which classes are those of Unicode and can be nested.
fn translated(text: &str) -> String {
    let mut translated = String::with_capacity(text.len() + 16);
    let mut characters = text.chars().peekable();
    let mut is_class = false;
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                let escaped = characters.next();
                match escaped {
                    Some('d') if is_class => translated += "0-9",
                    Some('w') if is_class => translated += "0-9A-Za-z_",
                    Some('s') if is_class => translated += "\\t\\n\\x0c\\r ",
                    Some('d') => translated += "[0-9]",
                    Some('D') => translated += "[^0-9]",
                    Some('w') => translated += "[0-9A-Za-z_]",
                    Some('W') => translated += "[^0-9A-Za-z_]",
                    Some('s') => translated += "[\\t\\n\\x0c\\r ]",
                    Some('S') => translated += "[^\\t\\n\\x0c\\r ]",
                    Some('b') => translated += "(?-u:\\b)",
                    Some('B') => translated += "(?-u:\\B)",
                    Some('Q') => literal(&mut translated, &mut characters),
                    Some(other) => {
                        translated.push('\\');
                        translated.push(other);
                    }
                    None => translated.push('\\'),
                }
            }
            '[' if is_class => match characters.peek() {
                Some(':') => {
                    translated.push('[');
                    // The name of a class ends with a bracket of its own.
                    for c in characters.by_ref() {
                        translated.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
                _ => translated += "\\[",
            },
            '[' => {
                is_class = true;
                translated.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    translated.push('^');
                }
                // A bracket that comes first is one of the characters.
                if characters.next_if_eq(&']').is_some() {
                    translated += "\\]";
                }
            }
            ']' if is_class => {
                is_class = false;
                translated.push(']');
            }
            // A brace that begins no count is what it is.
            '{' if !is_class && !begins_count(characters.clone()) => translated += "\\{",
            '&' | '~' if is_class => {
                translated.push('\\');
                translated.push(c);
            }
            other => translated.push(other),
        }
    }
    translated
}

/// Whether `3}`, `3,}` or `3,5}` comes next.
fn begins_count(characters: impl Iterator<Item = char>) -> bool {
    let inside: String = characters.take_while(|c| c.is_ascii_digit() || matches!(c, ',' | '}')).collect();
    let Some((counts, _)) = inside.split_once('}') else { return false };
    let (least, most) = counts.split_once(',').unwrap_or((counts, ""));
    !least.is_empty() && !most.contains(',')
}

/// Everything up to `\E` is what it is.
fn literal(translated: &mut String, characters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = characters.next() {
        if c == '\\' && characters.next_if_eq(&'E').is_some() {
            return;
        }
        *translated += &regex::escape(c.encode_utf8(&mut [0; 4]));
    }
}

fn compiled(name: &str, args: &[Value]) -> Outcome {
    let [Value::String(_), Value::String(text), ..] = args else { return Err(Failure::NoOverload) };
    let wrong = if name == "matches" { "error parsing regexp" } else { "Illegal regex" };
    let pattern = Pattern::new(text).map_err(|reason| Failure::because(format!("{wrong}: {reason}")))?;
    run(name, &pattern, args)
}

/// What a function does with a pattern that was compiled before.
pub(in crate::cel) fn run(name: &str, Pattern(pattern): &Pattern, args: &[Value]) -> Outcome {
    let (text, limit) = match args {
        [Value::String(text), _] => (text, -1),
        [Value::String(text), _, Value::Int(limit)] => (text, *limit),
        _ => return Err(Failure::NoOverload),
    };
    Ok(match name {
        "matches" => Value::Bool(pattern.is_match(text)),
        "find" => Value::string(pattern.find(text).map_or("", |found| found.as_str())),
        _ => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            Value::strings(pattern.find_iter(text).take(limit).map(|found| found.as_str()))
        }
    })
}
