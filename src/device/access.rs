//! How a container gets a device: ownership of its node, environment, mounts and hooks.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::name::quoted;

/// What the configuration says about the containers that get a device of a source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Access {
    /// Owner of the node in the container; without it the container's user.
    pub uid: Option<u32>,
    /// Group of the node in the container.
    pub gid: Option<u32>,
    /// Mode of the node in the container; without it that of the host.
    pub mode: Option<Mode>,
    /// What the container may do with the node; without it read and write.
    pub permissions: Option<Permissions>,
    /// Variables for every container that gets a device.
    pub env: BTreeMap<EnvName, String>,
    /// Files and folders of the host for every container that gets a device.
    pub mounts: Vec<Mount>,
    /// Programs of the host that the runtime calls.
    pub hooks: Vec<Hook>,
    /// Groups that the container's user gets besides its own.
    pub additional_gids: Vec<u32>,
}

/// A bind mount from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// On the host.
    pub host_path: AbsolutePath,
    /// In the container; without it the same path.
    pub container_path: Option<AbsolutePath>,
    /// Besides `bind`; without them `ro`, `nosuid` and `nodev`.
    pub options: Option<Vec<String>>,
}

/// A program of the host that the runtime calls at a point in the container's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// When.
    pub name: HookName,
    /// What.
    pub path: AbsolutePath,
    /// Its arguments, the first of which is its name.
    #[serde(default)]
    pub args: Vec<String>,
}

/// When the runtime calls a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookName {
    /// Deprecated by the runtimes, but known to all of them.
    Prestart,
    /// In the runtime's namespaces, before the container's root is entered.
    CreateRuntime,
    /// In the container's namespaces, before its root is entered.
    CreateContainer,
    /// In the container, before its program starts.
    StartContainer,
    /// After the program has started.
    Poststart,
    /// After the container is deleted.
    Poststop,
}

/// Why a text of the configuration is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Not a mode.
    #[error("mode {}: must be octal digits of at most 7777, e.g. 0660", quoted(.0))]
    Mode(String),
    /// Not permissions.
    #[error("permissions {}: must be some of r (read), w (write) and m (make nodes)", quoted(.0))]
    Permissions(String),
    /// Not a path.
    #[error("path {}: must be absolute and without `..`", quoted(.0))]
    Path(String),
    /// Not a variable.
    #[error("environment variable {}: must be letters, digits and '_', not starting with a digit", quoted(.0))]
    Env(String),
}

/// Permission bits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(u32);

impl Mode {
    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl TryFrom<String> for Mode {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        let digits = text.strip_prefix("0o").unwrap_or(&text);
        match u32::from_str_radix(digits, 8) {
            Ok(bits) if bits <= 0o7777 => Ok(Self(bits)),
            _ => Err(AccessError::Mode(text)),
        }
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        format!("{:04o}", mode.0)
    }
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $error:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = AccessError;

            fn try_from(text: String) -> Result<Self, AccessError> {
                if $check(&text) { Ok(Self(text)) } else { Err(AccessError::$error(text)) }
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

checked_text!(
    /// What a container may do with a node: some of `r`, `w` and `m`, each once.
    Permissions,
    Permissions,
    |text: &str| {
        !text.is_empty() && text.len() <= 3 && "rwm".chars().all(|one| text.matches(one).count() <= 1)
            && text.chars().all(|one| "rwm".contains(one))
    }
);
checked_text!(
    /// An absolute path without `..`.
    AbsolutePath,
    Path,
    |text: &str| {
        let path = PathBuf::from(text);
        path.is_absolute() && !path.components().any(|part| part.as_os_str() == "..") && !text.contains('\0')
    }
);
checked_text!(
    /// The name of an environment variable.
    EnvName,
    Env,
    |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_checked_once() {
        let mode = |text: &str| Mode::try_from(text.to_owned()).map(Mode::bits);
        assert_eq!((mode("0660"), mode("0o666"), mode("1777")), (Ok(0o660), Ok(0o666), Ok(0o1777)));
        assert!(mode("rw").is_err() && mode("0980").is_err() && mode("17777").is_err());
        let permitted = |text: &str| Permissions::try_from(text.to_owned()).is_ok();
        assert!(permitted("r") && permitted("rwm") && !permitted("") && !permitted("rr") && !permitted("x"));
        let path = |text: &str| AbsolutePath::try_from(text.to_owned()).is_ok();
        assert!(path("/opt/lib") && !path("lib") && !path("/a/../b"));
        let env = |text: &str| EnvName::try_from(text.to_owned()).is_ok();
        assert!(env("A_1") && !env("1A") && !env("A=B") && !env(""));
    }
}
