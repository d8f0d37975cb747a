//! Names that were checked once.

/// A text that is not a name of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {}: {rule}", quoted(.value))]
pub struct NameError {
    what: &'static str,
    value: String,
    rule: &'static str,
}

/// A text in quotes, without what would disturb a terminal, and cut where nobody reads on.
pub(crate) fn quoted(text: &str) -> String {
    const ENOUGH: usize = 80;
    match text.char_indices().nth(ENOUGH) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

impl NameError {
    /// What is wanted, what was given, and the rule that it breaks.
    pub(super) fn new(what: &'static str, value: String, rule: &'static str) -> Self {
        Self { what, value, rule }
    }
}

/// Defines a newtype over `String` with its kind, its check and the rule that the error states.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:expr, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(value: String) -> Result<Self, NameError> {
                if $check(&value) {
                    Ok(Self(value))
                } else {
                    Err(NameError::new($what, value, $rule))
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;

            fn from_str(value: &str) -> Result<Self, NameError> {
                Self::try_from(value.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(&self.0)
            }
        }
    };
}

pub(super) use name;

name!(
    /// The name of a driver: a DNS subdomain of at most 63 bytes, e.g. `claimfs.dev`. It is also the vendor
    /// in CDI, which has to start with a letter; one of a single byte crashes some runtimes.
    DriverName,
    "driver name",
    |text: &str| (2..=63).contains(&text.len()) && text.as_bytes()[0].is_ascii_lowercase() && is_subdomain(text),
    "must be a DNS name that starts with a letter: 2 to 63 of a-z, 0-9, '-' and '.', each part starting and ending with a letter or digit"
);
name!(
    /// The UID of a claim: what paths and CDI names are made of, so nothing but letters, digits and dashes.
    ClaimUid,
    "claim UID",
    is_uid,
    "must be at most 63 letters, digits and dashes, starting and ending with a letter or digit"
);
name!(
    /// What a pod calls a claim: what paths in its containers are made of.
    PodClaimName,
    "name of a pod's claim",
    is_label,
    "must be a DNS label: at most 63 of a-z, 0-9 and '-', starting and ending with a letter or digit"
);
name!(
    /// The UID of a pod: what socket names are made of, so nothing but letters, digits and dashes.
    PodUid,
    "pod UID",
    is_uid,
    "must be at most 63 letters, digits and dashes, starting and ending with a letter or digit"
);
name!(
    /// The namespace of a claim: a DNS label.
    Namespace,
    "namespace",
    is_label,
    "must be a DNS label: at most 63 of a-z, 0-9 and '-', starting and ending with a letter or digit"
);
name!(
    /// The name of a claim: a DNS subdomain.
    ClaimName,
    "claim name",
    |text: &str| text.len() <= 253 && is_subdomain(text),
    "must be a DNS name: at most 253 of a-z, 0-9, '-' and '.', each part starting and ending with a letter or digit"
);
name!(
    /// The name of a request in a claim, without a subrequest: a DNS label.
    RequestName,
    "request name",
    is_label,
    "must be a DNS label: at most 63 of a-z, 0-9 and '-', starting and ending with a letter or digit"
);
name!(
    /// The name of a Kubernetes node: a DNS subdomain of at most 253 bytes.
    NodeName,
    "node name",
    |text: &str| text.len() <= 253 && is_subdomain(text),
    "must be a DNS name: at most 253 of a-z, 0-9, '-' and '.', each part starting and ending with a letter or digit"
);
name!(
    /// The name of a device: a DNS label.
    DeviceName,
    "device name",
    is_label,
    "must be a DNS label: at most 63 of a-z, 0-9 and '-', starting and ending with a letter or digit"
);
name!(
    /// The name of a source in the configuration: a DNS label that leaves room for an index.
    SourceName,
    "source name",
    |text: &str| text.len() <= 40 && is_label(text),
    "must be a DNS label: at most 40 of a-z, 0-9 and '-', starting and ending with a letter or digit"
);
name!(
    /// The name of an attribute or a capacity: a C identifier, with or without a domain. Without
    /// one, the driver's is meant.
    AttributeName,
    "attribute name",
    is_qualified_identifier,
    "must be a C identifier of at most 32 bytes, optionally behind a domain and a '/', e.g. model or example.com/model"
);

impl Default for DriverName {
    fn default() -> Self {
        Self(String::from("claimfs.dev"))
    }
}

impl AttributeName {
    /// The name without its domain, where that is the driver's: both mean the same attribute.
    #[must_use]
    pub fn within(self, driver: &DriverName) -> Self {
        match self.0.split_once('/') {
            Some((domain, identifier)) if domain == driver.as_str() => Self(identifier.to_owned()),
            _ => self,
        }
    }

    /// A name that this program brings along. Invariant: every literal is met by a test.
    pub(crate) fn literal(text: &'static str) -> Self {
        debug_assert!(is_qualified_identifier(text), "{text}");
        Self(text.to_owned())
    }
}

fn is_uid(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

fn is_part(text: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&byte| edge(byte))
        && bytes.last().is_some_and(|&byte| edge(byte))
        && bytes.iter().all(|&byte| edge(byte) || byte == b'-')
}

/// As the API server has it: its parts may be longer than those of the DNS.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_part)
}

fn is_qualified_identifier(text: &str) -> bool {
    let (domain, identifier) = match text.split_once('/') {
        Some((domain, identifier)) => (Some(domain), identifier),
        None => (None, text),
    };
    domain.is_none_or(|domain| domain.len() <= 63 && is_subdomain(domain))
        && identifier.len() <= 32
        && identifier.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && identifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_api_takes() {
        for good in ["claimfs.dev", "ab", "a0", "a-b.c-d", &"a".repeat(63)] {
            assert!(good.parse::<DriverName>().is_ok(), "{good}");
        }
        for bad in ["", "a", "0a", "A", "a.", ".a", "a..b", "-a", "a-", "a_b", "a/b", "ü", &"a".repeat(64)] {
            assert!(bad.parse::<DriverName>().is_err(), "{bad}");
        }
        for good in ["model", "_x9", "example.com/model", "resource.kubernetes.io/pcieRoot"] {
            assert!(good.parse::<AttributeName>().is_ok(), "{good}");
        }
        let long = "a".repeat(33);
        for bad in ["", "/a", "a/", "9a", "a-b", "a.b", "A.com/x", "a/b/c", &long] {
            assert!(bad.parse::<AttributeName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_becomes_a_path_cannot_leave_its_folder() {
        for bad in ["", "..", ".", "../x", "a/b", "a\0", "*", "-a", "a-", &"a".repeat(64)] {
            assert!(bad.parse::<ClaimUid>().is_err(), "{bad:?}");
            assert!(bad.parse::<Namespace>().is_err(), "{bad:?}");
            assert!(bad.parse::<RequestName>().is_err(), "{bad:?}");
        }
        for bad in ["..", "../x", "a/b", "a..b", &"a".repeat(254)] {
            assert!(bad.parse::<ClaimName>().is_err(), "{bad:?}");
        }
        assert!("0f9e8d7c-1234-4abc-9def-001122334455".parse::<ClaimUid>().is_ok());
        // A pod with a long name has claims with longer ones.
        assert!("a".repeat(253).parse::<ClaimName>().is_ok());
    }

    #[test]
    fn the_default_driver_is_a_valid_name() {
        assert_eq!(DriverName::default().as_str().parse(), Ok(DriverName::default()));
    }

    #[test]
    fn the_error_names_kind_value_and_rule() {
        let error = "Serial Ports".parse::<SourceName>().unwrap_err();
        assert!(error.to_string().starts_with(r#"source name "Serial Ports": must be a DNS label"#));
    }
}
