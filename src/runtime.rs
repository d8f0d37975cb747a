//! The programs that people make containers with, and that take CDI devices by `--device`.

use std::{ffi::OsStr, fmt, path::Path};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// podman.
    Podman,
    /// Docker's command line.
    Docker,
    /// nerdctl.
    Nerdctl,
    /// containerd's own.
    Ctr,
}

impl Runtime {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Podman, Self::Docker, Self::Nerdctl, Self::Ctr];

    /// What its program is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Nerdctl => "nerdctl",
            Self::Ctr => "ctr",
        }
    }

    /// Which one a program is.
    #[must_use]
    pub fn of(program: impl AsRef<OsStr>) -> Option<Self> {
        let name = Path::new(program.as_ref()).file_name()?;
        Self::ALL.into_iter().find(|one| name == one.name())
    }

    /// Whether it exits with this also when it fails itself, and not what runs in the container. Two of them have no
    /// status of their own for it; podman finds its devices when it starts the container, which has another one.
    #[must_use]
    pub const fn may_have_failed(self, code: u8) -> bool {
        match self {
            // What is called docker can be podman.
            Self::Podman | Self::Docker => matches!(code, 125 | 126),
            Self::Nerdctl | Self::Ctr => code == 1,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
