//! Attribute values.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::name::quoted;

/// A text that is too long for an attribute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} has {} bytes, an attribute holds at most {}", quoted(.text), .text.len(), Text::MAX)]
pub struct TextError {
    text: String,
}

/// A text of at most 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text(String);

impl Text {
    /// `DeviceAttributeMaxValueLength` of the API.
    pub const MAX: usize = 64;

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Text {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        if text.len() <= Self::MAX { Ok(Self(text)) } else { Err(TextError { text }) }
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

/// The value of an attribute, of one of the kinds that every supported API server knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeValue {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    String(Text),
    /// A semantic version, compared as such by selectors.
    Version(Version),
}

/// A semantic version that fits into an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(Text);

/// A text that is not such a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Not of the form.
    #[error("version {}: {reason}; a semantic version is like 1.0.0 or 1.2.3-rc.1", quoted(.text))]
    Syntax {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Of the form, but too long.
    #[error(transparent)]
    Long(#[from] TextError),
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        match semver::Version::parse(&text) {
            Ok(_) => Ok(Self(text.try_into()?)),
            Err(error) => Err(VersionError::Syntax { text, reason: error.to_string() }),
        }
    }
}

impl Version {
    /// The version as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.0.into()
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(formatter),
            Self::Int(value) => value.fmt(formatter),
            Self::String(text) | Self::Version(Version(text)) => formatter.write_str(text.as_str()),
        }
    }
}
