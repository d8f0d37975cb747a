//! How a device is at the moment: what can change while somebody has it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::name::{NameError, name};

/// How a device is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// Whether it works.
    pub health: Health,
    /// What keeps claims away from it.
    pub taints: Vec<Taint>,
    /// Where it is on the network.
    pub network: Option<NetworkData>,
}

/// Whether a device works.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// As far as anybody knows.
    #[default]
    Healthy,
    /// It does not.
    Unhealthy {
        /// Why.
        message: String,
    },
    /// Nobody can tell.
    Unknown {
        /// Why.
        message: String,
    },
}

impl Health {
    /// The word for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy { .. } => "unhealthy",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// Why it is so, where that is known.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Healthy => "",
            Self::Unhealthy { message } | Self::Unknown { message } => message,
        }
    }
}

name!(
    /// The key of a taint: like a label's, with a domain or without.
    TaintKey,
    "taint key",
    is_label_key,
    "must be like example.com/reason: at most 63 letters, digits, '-', '_' and '.', after a DNS name and '/' if there is one"
);
name!(
    /// The value of a taint: like a label's.
    TaintValue,
    "taint value",
    |text: &str| text.is_empty() || is_label_part(text),
    "must be at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
);

fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => {
            domain.len() <= 253 && super::name::is_subdomain(domain) && is_label_part(name)
        }
        None => is_label_part(text),
    }
}

fn is_label_part(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= 63
        && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// What keeps claims that do not tolerate it away from a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    /// What is wrong.
    pub key: TaintKey,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<TaintValue>,
    /// What follows.
    pub effect: TaintEffect,
}

impl Taint {
    /// `DeviceTaintsMaxLength` of the API.
    pub const MAX: usize = 16;
}

impl fmt::Display for Taint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
        write!(formatter, "{}{value}:{}", self.key, self.effect.as_str())
    }
}

/// What follows from a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaintEffect {
    /// Nothing: it is shown.
    None,
    /// No new claim gets the device.
    NoSchedule,
    /// And pods that use it are evicted.
    NoExecute,
}

impl TaintEffect {
    /// As in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// Where a device is on the network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetworkData {
    /// The name of its interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<String>,
    /// Its addresses, each with the length of its network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// Its hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_address: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_of_labels() {
        for good in ["a", "example.com/dead", "claimfs.dev/fan_1.x"] {
            assert!(good.parse::<TaintKey>().is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "-a", "Ä", "A.com/x", "a/b/c", &"a".repeat(64)] {
            assert!(bad.parse::<TaintKey>().is_err(), "{bad}");
        }
        assert!("".parse::<TaintValue>().is_ok() && "a b".parse::<TaintValue>().is_err());
    }
}
