//! `claimfs completions` and `claimfs manual`: what an installation puts into its places.

use std::{io, path::PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Error, output};

/// Print completions for a shell
///
/// For bash: claimfs completions bash > /usr/share/bash-completion/completions/claimfs
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), Error> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "claimfs", &mut text);
        output::print(&String::from_utf8_lossy(&text)).map(|_reader| ())
    }
}

/// Write the manual pages into a folder
#[derive(Debug, Args)]
pub(super) struct Manual {
    /// Where to, e.g. /usr/share/man/man1
    folder: PathBuf,
}

impl Manual {
    pub(super) fn run(self) -> Result<(), Error> {
        let failed = |source: io::Error| Error::Manual { folder: self.folder.clone(), source };
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), &self.folder).map_err(failed)
    }
}
