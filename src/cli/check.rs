//! `claimfs check`: whether this machine has what claimfs needs.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};

use super::{Error, output};
use crate::{
    check::{self, Line, Places, Verdict},
    cluster, config,
};

/// See whether this machine has what claimfs needs
///
/// Every line is ok, warn (something will not work) or fail, with a code and what to do about it, see docs/codes.md.
/// Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 nothing fails, 1 something does, 2 wrong usage.")]
pub(super) struct Check {
    /// The configuration
    #[arg(long, value_name = "FILE", env = "CLAIMFS_CONFIG", default_value = config::DEFAULT_PATH)]
    config: PathBuf,

    /// Also look at this cluster
    #[arg(long, value_name = "FILE", env = "CLAIMFS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,

    /// The kubelet's folder
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_KUBELET_DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,

    /// Where container runtimes look for CDI specs
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_CDI_DIR", default_value = "/var/run/cdi")]
    cdi_dir: PathBuf,

    /// For the lock and the journal
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_RUN_DIR", default_value = "/run/claimfs")]
    run_dir: PathBuf,

    /// Where the host's /dev is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_DEV", default_value = "/dev")]
    dev: PathBuf,

    /// Where the host's /sys is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_SYSFS", default_value = "/sys")]
    sysfs: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let places = Places {
            config: self.config,
            dev: self.dev,
            sys: self.sysfs,
            run: self.run_dir,
            cdi: self.cdi_dir,
            kubelet: self.kubelet_dir,
        };
        let mut lines = check::machine(&places);
        lines.extend(check::runtimes(&places));
        if let Some(kubeconfig) = &self.kubeconfig {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
            lines.extend(runtime.block_on(async {
                let client = cluster::connect(cluster::config(Some(kubeconfig)).await?)?;
                Ok::<_, Error>(check::cluster(&client).await)
            })?);
        }
        output::print(&match self.output {
            Format::Table => table(&lines),
            Format::Json => output::json(&lines) + "\n",
        })?;
        let worst = lines.iter().map(|line| line.verdict).max();
        Ok(if worst == Some(Verdict::Fail) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn table(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        text += &format!(
            "{:4}  {}  {}\n",
            line.verdict.as_str(),
            line.code,
            line.text.replace('\n', "\n               ")
        );
        if let Some(fix) = &line.fix {
            text += &format!("               fix: {fix}\n");
        }
    }
    text
}
