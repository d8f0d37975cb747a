//! How a container gets a device: ownership of its node, environment, mounts and hooks.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::name::{NameError, name};

/// What the configuration says about the containers that get a device of a source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Access {
    /// Owner of the node in the container; without it the runtime's choice: the container's user, with CRI-O root.
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

/// All permission bits.
const MOST: u32 = 0o7777;

/// Permission bits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(u32);

impl Mode {
    /// That of a file, as the kernel tells it together with what kind of file it is.
    #[must_use]
    pub const fn of_file(mode: u32) -> Self {
        Self(mode & MOST)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl TryFrom<String> for Mode {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let digits = text.strip_prefix("0o").unwrap_or(&text);
        match u32::from_str_radix(digits, 8) {
            Ok(bits) if bits <= MOST => Ok(Self(bits)),
            _ => Err(NameError::new("mode", text, "must be octal digits of at most 7777, e.g. 0660")),
        }
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        format!("{:04o}", mode.0)
    }
}

name!(
    /// What a container may do with a node: some of `r`, `w` and `m`, each once.
    Permissions,
    "permissions",
    |text: &str| {
        !text.is_empty() && text.len() <= 3 && "rwm".chars().all(|one| text.matches(one).count() <= 1)
            && text.chars().all(|one| "rwm".contains(one))
    },
    "must be some of r (read), w (write) and m (make nodes)"
);
name!(
    /// An absolute path without `..`.
    AbsolutePath,
    "path",
    |text: &str| {
        let path = PathBuf::from(text);
        path.is_absolute() && !path.components().any(|part| part.as_os_str() == "..") && !text.contains('\0')
    },
    "must be absolute and without `..`"
);
name!(
    /// The name of an environment variable.
    EnvName,
    "environment variable",
    |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    },
    "must be letters, digits and '_', not starting with a digit"
);

impl AbsolutePath {
    /// As a path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_str())
    }
}

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
