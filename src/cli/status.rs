//! `claimfs status`: what a node has, and who has it.

use std::{ops::ControlFlow, thread, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    Error,
    claim::{self, Commands},
    machine::Machine,
    output,
};
use crate::{
    node::{Held, Lock, Seen},
    standalone::report::{DeviceReport, Report, WaitingReport},
};

/// How often it is looked whether something has changed, on a node of a cluster.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Show devices, their health and owners, claims, and what is kept for readers
///
/// On a node of a cluster this is read from the files that the daemon shows, and who waits is for the scheduler to tell.
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
        let run_dir = &self.machine.run_dir;
        // One that serves a kubelet cannot be asked.
        if !Lock::is_free(run_dir) && !Lock::is_of_one_alone(run_dir) {
            return self.look();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Error::Start)?.block_on(async {
            let launcher = self.machine.launcher();
            if !self.watch {
                return self.show(&launcher.report().await?).map(|_reader| ());
            }
            let show = |report: &Report| match self.show(report)? {
                output::Reader::Present => Ok::<_, Error>(ControlFlow::Continue(())),
                output::Reader::Gone => Ok(ControlFlow::Break(())),
            };
            launcher.follow(show).await
        })
    }

    fn held(&self) -> Held {
        Held::look(&self.machine.run_dir, &self.machine.mount_point)
    }

    fn show(&self, report: &Report) -> Result<output::Reader, Error> {
        output::print(&match self.output {
            Format::Table => table(report, &self.held()),
            Format::Json => output::json(report) + "\n",
            Format::Yaml => format!("---\n{}", output::yaml(report)),
        })
    }

    /// What a daemon of a cluster shows.
    fn look(&self) -> Result<(), Error> {
        let look = || Seen::look(&self.machine.run_dir, &self.machine.mount_point);
        let mut seen = look()?;
        loop {
            let reader = output::print(&match self.output {
                Format::Table => seen_table(&seen),
                Format::Json => output::json(&seen) + "\n",
                Format::Yaml => format!("---\n{}", output::yaml(&seen)),
            })?;
            if !self.watch || reader == output::Reader::Gone {
                return Ok(());
            }
            let before = seen.clone();
            while seen == before {
                thread::sleep(LOOK_EVERY);
                seen = look()?;
            }
        }
    }
}

fn table(report: &Report, held: &Held) -> String {
    let Report { version, process, driver, node, metadata, devices, claims, waiting } = report;
    let mut text = format!("{driver} {version} on {node}, process {process}; {}\n\n", kept(metadata, held));
    text += &device_table(devices);
    text += "\n";
    text += &claim::table(claims, Commands::Short);
    if !waiting.is_empty() {
        text += &format!("\n{} waiting, in this order:\n", waiting.len());
        let rows = waiting.iter().map(|WaitingReport { name, run }| match run {
            Some(run) => vec![name.clone(), run.name.clone(), Commands::Short.shown(&run.command)],
            None => vec![name.clone(), String::from("-"), String::from("-")],
        });
        text += &output::table(&["CLAIM", "RUN", "COMMAND"], rows);
    }
    text
}

fn seen_table(seen: &Seen) -> String {
    let Seen { process, devices, claims, holder } = seen;
    let mut text = format!("a node of a cluster, process {process}; {}\n\n", kept(holder.metadata, holder));
    text += &device_table(devices);
    text += &match claims.len() {
        0 => String::from("\nno claims\n"),
        1 => format!("\n1 claim: {}\n", claims.join(" ")),
        count => format!("\n{count} claims: {}\n", claims.join(" ")),
    };
    text
}

fn kept(metadata: &str, held: &Held) -> String {
    let holder =
        held.process.map_or_else(|| String::from("no holder"), |process| format!("holder {process}"));
    format!("metadata: {metadata}, {holder}, {} versions", held.versions)
}

fn device_table(devices: &[DeviceReport]) -> String {
    let rows = devices.iter().map(|device| {
        let mut health = match device.message.as_str() {
            "" => device.health.clone(),
            message => format!("{} ({message})", device.health),
        };
        if !device.taints.is_empty() {
            health += &format!(", tainted: {}", device.taints.join(" "));
        }
        let owners = match (device.owners.as_slice(), device.most_claims) {
            ([], _) => String::from("-"),
            (owners, 1) => owners.join(" "),
            (owners, most) => format!("{} of {most}: {}", owners.len(), owners.join(" ")),
        };
        let path = device.path.clone().unwrap_or_else(|| String::from("-"));
        vec![device.name.clone(), device.source.clone(), health, path, owners]
    });
    output::table(&["DEVICE", "SOURCE", "HEALTH", "PATH", "OWNER"], rows)
}
