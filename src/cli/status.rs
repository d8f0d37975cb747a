//! `claimfs status`: what a node without a cluster has, and who has it.

use clap::{Args, ValueEnum};

use super::{Error, claim, machine::Machine, output};
use crate::standalone::report::Report;

/// Show devices, claims and who waits, on a node without a cluster
///
/// On a node of a cluster `claimfs devices` and `claimfs metadata` tell what there is.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 shown, 1 not possible, 2 wrong usage.")]
pub(super) struct Status {
    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,

    /// Print again whenever something changes
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    machine: Machine,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

impl Status {
    pub(super) fn run(self) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Error::Start)?.block_on(async {
            let launcher = self.machine.launcher();
            if !self.watch {
                return self.show(&launcher.report().await?).map(|_reader| ());
            }
            let mut reports = launcher.follow().await?;
            while let Some(report) = reports.next().await? {
                if self.show(&report)? == output::Reader::Gone {
                    break;
                }
            }
            Ok(())
        })
    }

    fn show(&self, report: &Report) -> Result<output::Reader, Error> {
        output::print(&match self.output {
            Format::Table => table(report),
            Format::Json => output::json(report) + "\n",
            Format::Yaml => format!("---\n{}", output::yaml(report)),
        })
    }
}

fn table(report: &Report) -> String {
    let Report { version, process, driver, node, metadata, devices, claims, waiting } = report;
    let rows = devices.iter().map(|device| {
        let health = match device.message.as_str() {
            "" => device.health.clone(),
            message => format!("{} ({message})", device.health),
        };
        let owners = match (device.owners.as_slice(), device.most_claims) {
            ([], _) => String::from("-"),
            (owners, 1) => owners.join(" "),
            (owners, most) => format!("{} of {most}: {}", owners.len(), owners.join(" ")),
        };
        let path = device.path.clone().unwrap_or_else(|| String::from("-"));
        vec![device.name.clone(), device.source.clone(), health, path, owners]
    });
    let mut text = format!("{driver} {version} on {node}, process {process}, metadata: {metadata}\n\n");
    text += &output::table(&["DEVICE", "SOURCE", "HEALTH", "PATH", "OWNER"], rows);
    text += "\n";
    text += &claim::table(claims);
    if !waiting.is_empty() {
        text += &format!("\n{} waiting, in this order: {}\n", waiting.len(), waiting.join(" "));
    }
    text
}
