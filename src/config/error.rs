//! What can be wrong with a configuration, and where.

use std::{fmt, io, path::PathBuf};

use serde_path_to_error::{Path, Segment};
use serde_saphyr::{Error as YamlError, Location};

use crate::device::quoted;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is far too large.
    #[error("the configuration {} has more than {limit} bytes", .path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
    /// The file says something that it must not.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A flaw with its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    path: PathBuf,
    flaw: Flaw,
    excerpt: Excerpt,
}

/// As much of a line as fits on a screen, and where in it the flaw is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Excerpt {
    text: String,
    caret: String,
}

impl Excerpt {
    const BEFORE: usize = 80;
    const AFTER: usize = 40;

    fn new(line: &str, column: usize) -> Self {
        let column = column.saturating_sub(1);
        let start = column.saturating_sub(Self::BEFORE);
        // What would move the caret or disturb a terminal.
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let text = line.chars().skip(start).take(Self::BEFORE + Self::AFTER).map(shown).collect();
        Self { text, caret: " ".repeat(column - start) + "^" }
    }
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flaw { line, column, field, message } = &self.flaw;
        write!(formatter, "{}:{line}:{column}: ", self.path.display())?;
        if !field.is_empty() {
            write!(formatter, "{field}: ")?;
        }
        formatter.write_str(message)?;
        let Excerpt { text, caret } = &self.excerpt;
        if text.is_empty() {
            return Ok(());
        }
        let number = line.to_string();
        write!(formatter, "\n{number} | {text}\n{} | {caret}", " ".repeat(number.len()))
    }
}

/// A flaw in a text that does not know its file yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    line: u64,
    column: u64,
    /// E.g. `sources[0].simulated.count`.
    field: String,
    message: String,
}

impl Flaw {
    pub(super) fn at(location: Location, field: impl Into<String>, message: impl fmt::Display) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
            field: field.into(),
            message: message.to_string(),
        }
    }

    pub(super) fn from_yaml(path: &Path, error: &YamlError) -> Self {
        let error = error.without_snippet();
        let location = error.location().unwrap_or(Location::UNKNOWN);
        Self::at(location, field(path, error), Explained(error))
    }

    pub(super) fn in_file(self, path: PathBuf, text: &str) -> Invalid {
        let line = usize::try_from(self.line).ok().and_then(|line| text.lines().nth(line.checked_sub(1)?));
        let column = usize::try_from(self.column).unwrap_or_default();
        let excerpt = line.map(|line| Excerpt::new(line, column)).unwrap_or_default();
        Invalid { path, flaw: self, excerpt }
    }
}

/// The way to a field as the file has it, e.g. `sources[0].simulated.count`.
fn field(path: &Path, error: &YamlError) -> String {
    let mut field = String::new();
    let mut above = "";
    let mut segments: Vec<&Segment> = path.iter().collect();
    // The message names the key; the field is the mapping that holds it.
    if matches!(error, YamlError::SerdeUnknownField { .. } | YamlError::DuplicateMappingKey { .. }) {
        segments.pop();
    }
    for segment in segments {
        match segment {
            Segment::Seq { index } => field += &format!("[{index}]"),
            // A place in the file is kept in `Spanned`, whose field `value` is not in the file. Only these
            // two mappings have keys of the user's choice.
            Segment::Map { key } if key == "value" && !matches!(above, "attributes" | "capacity") => {}
            Segment::Map { key } | Segment::Enum { variant: key } => {
                if !field.is_empty() {
                    field.push('.');
                }
                field.extend(key.chars().take(80));
                above = key;
                continue;
            }
            Segment::Unknown => {}
        }
        above = "";
    }
    field
}

/// The parser's errors in the words of somebody who writes a configuration.
struct Explained<'a>(&'a YamlError);

impl fmt::Display for Explained<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            YamlError::Eof { .. } => formatter.write_str("the file ends here; it must have `sources`"),
            YamlError::MultipleDocuments { .. } => {
                formatter.write_str("only one document (`---`) is allowed")
            }
            YamlError::InvalidScalar { ty: ty @ ("u32" | "u64"), .. } => {
                let max = if *ty == "u32" { u64::from(u32::MAX) } else { u64::MAX };
                write!(formatter, "must be a whole number from 0 to {max}")
            }
            YamlError::InvalidScalar { ty: "i64", .. } => {
                formatter.write_str("must be a whole number of at most 64 bits")
            }
            YamlError::InvalidScalar { ty: "boolean", .. } | YamlError::InvalidBooleanStrict { .. } => {
                formatter.write_str("must be true or false")
            }
            YamlError::Unexpected { expected: "sequence start", .. } => formatter.write_str("must be a list"),
            YamlError::Unexpected { expected: "mapping start", .. } => {
                formatter.write_str("must be a mapping of names to values")
            }
            YamlError::Unexpected { expected, .. } => write!(formatter, "expected {expected}"),
            YamlError::SerdeUnknownField { field, expected, .. } => {
                write!(formatter, "unknown field {}; allowed: {}", quoted(field), expected.join(", "))
            }
            YamlError::SerdeUnknownVariant { variant, expected, .. } => {
                write!(formatter, "unknown kind {}; allowed: {}", quoted(variant), expected.join(", "))
            }
            YamlError::SerdeMissingField { field, .. } => write!(formatter, "`{field}` is missing"),
            YamlError::DuplicateMappingKey { key: Some(key), .. } => {
                write!(formatter, "{} is there twice", quoted(key))
            }
            YamlError::ExpectedMappingEndAfterEnumVariantValue { .. } => {
                formatter.write_str("exactly one kind of value is allowed")
            }
            YamlError::NullIntoString { .. } => formatter.write_str("must not be empty"),
            YamlError::AliasError { error, .. } => Explained(error.without_snippet()).fmt(formatter),
            other => {
                // The place is said once, in front.
                let text = other.to_string();
                let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
                formatter.write_str(&message.chars().take(400).collect::<String>())
            }
        }
    }
}
