//! `claimfs claim`: claims without a cluster.

use std::{env, ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{Error, machine::Machine, output};
use crate::{
    objects::qualified,
    standalone::{
        client::{Asking, Wanted},
        kernel, manifest,
        presence::{Asker, Presence},
        report::{ClaimReport, Report, RunReport, UsedBy},
    },
};

/// How much of a command is shown among others.
const SHORT: usize = 120;

/// Make, show and delete claims, without a cluster
#[derive(Debug, Subcommand)]
pub(super) enum Claim {
    Create(Create),
    List(List),
    Show(Show),
    Delete(Delete),
}

/// Make claims that stay until they are deleted, also when the machine is started anew
///
/// They are allocated and prepared at once. `claimfs run --claim NAME` uses one, and so does every runtime that is told
/// the --device options that are printed.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 made, 1 not possible (there are not enough devices), 2 wrong usage or claim."
)]
pub(super) struct Create {
    /// ResourceClaims and ResourceClaimTemplates; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,

    /// Wait until there are enough devices: first come, first served
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    machine: Machine,
}

/// Show all claims
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 shown, 1 not possible, 2 wrong usage.")]
pub(super) struct List {
    /// How to print them
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,

    #[command(flatten)]
    machine: Machine,
}

/// Show one claim, with what runtimes call its devices
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 shown, 1 there is none, 2 wrong usage.")]
pub(super) struct Show {
    /// NAME or NAMESPACE/NAME
    name: String,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,

    #[command(flatten)]
    machine: Machine,
}

/// Delete a claim that nothing uses
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 deleted, 1 it is in use or not there, 2 wrong usage.")]
pub(super) struct Delete {
    /// NAME or NAMESPACE/NAME
    name: String,

    #[command(flatten)]
    machine: Machine,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// ResourceClaim objects
    Yaml,
}

impl Claim {
    pub(super) fn run(self) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Error::Start)?.block_on(async {
            match self {
                Self::Create(create) => create.run().await,
                Self::List(list) => list.run().await,
                Self::Show(show) => show.run().await,
                Self::Delete(delete) => delete.run().await,
            }
        })
    }
}

impl Create {
    async fn run(self) -> Result<(), Error> {
        let claims = manifest::read(&self.file)?;
        let words: Vec<OsString> = env::args_os().collect();
        // Whoever waits is known to the next daemon, too.
        let presence = self.wait.then(|| self.machine.begin(&words)).transpose()?;
        let made = self.make(claims, presence.as_ref()).await;
        if let Some(presence) = presence {
            presence.withdraw();
        }
        made
    }

    async fn make(&self, claims: Vec<ResourceClaim>, presence: Option<&Presence>) -> Result<(), Error> {
        let launcher = self.machine.launcher();
        for claim in claims {
            let wait = self.wait.then(kernel::ticket).transpose().map_err(Error::Start)?;
            let asker = Asker::Keeper(presence.map(Presence::id).cloned());
            let asking = Asking { asker, wait };
            let granted = launcher.acquire(Wanted::New(&claim), asking, self.machine.tell()).await?;
            let devices: String = granted
                .devices
                .iter()
                .map(|device| {
                    format!("  {} {}: --device {}\n", device.request, device.device, device.cdi_device_id)
                })
                .collect();
            output::print(&format!("{}/{}\n{devices}", granted.namespace, granted.name))?;
        }
        Ok(())
    }
}

impl Delete {
    async fn run(self) -> Result<(), Error> {
        self.machine.launcher().delete(&self.name).await?;
        output::print(&format!("{} is deleted\n", qualified(&self.name))).map(|_reader| ())
    }
}

impl List {
    async fn run(self) -> Result<(), Error> {
        let Report { claims, .. } = self.machine.launcher().report().await?;
        print(&claims, self.output, Commands::Short)
    }
}

impl Show {
    async fn run(self) -> Result<(), Error> {
        let name = qualified(&self.name);
        let mut claims = self.machine.launcher().report().await?.claims;
        claims.retain(|claim| claim.name == name);
        if claims.is_empty() {
            return Err(Error::NoClaim { name });
        }
        print(&claims, self.output, Commands::Whole)
    }
}

/// How commands are shown to people.
#[derive(Debug, Clone, Copy)]
pub(super) enum Commands {
    /// The beginning.
    Short,
    /// All that is known.
    Whole,
}

impl Commands {
    pub(super) fn shown(self, command: &str) -> String {
        match (self, command.char_indices().nth(SHORT)) {
            (Self::Short, Some((end, _))) => format!("{}…", &command[..end]),
            _ => command.to_owned(),
        }
    }
}

fn print(claims: &[ClaimReport], format: Format, commands: Commands) -> Result<(), Error> {
    let text = match format {
        Format::Table => table(claims, commands),
        Format::Json => output::json(&claims) + "\n",
        Format::Yaml => claims.iter().map(|claim| format!("---\n{}", output::yaml(&claim.object))).collect(),
    };
    output::print(&text).map(|_reader| ())
}

/// One line a device, and then one a run.
pub(super) fn table(claims: &[ClaimReport], commands: Commands) -> String {
    if claims.is_empty() {
        return String::from("no claims\n");
    }
    let rows = claims.iter().flat_map(|claim| {
        let stays = if claim.goes_with_its_runs { "until its runs end" } else { "until deleted" };
        let runs: Vec<String> = claim.runs.iter().map(user).collect();
        let runs = if runs.is_empty() { String::from("-") } else { runs.join(" ") };
        let none = || vec![(String::from("-"), String::from("-"), String::from("not prepared"))];
        let devices: Vec<(String, String, String)> = claim
            .devices
            .iter()
            .map(|device| (device.request.clone(), device.device.clone(), device.cdi_device_id.clone()))
            .collect();
        let devices = if devices.is_empty() { none() } else { devices };
        devices.into_iter().map(move |(request, device, id)| {
            vec![claim.name.clone(), request, device, stays.to_owned(), runs.clone(), id]
        })
    });
    let text = output::table(&["CLAIM", "REQUEST", "DEVICE", "STAYS", "RUNS", "CDI"], rows);
    let runs: Vec<_> = claims.iter().flat_map(|claim| &claim.runs).collect();
    if runs.is_empty() {
        return text;
    }
    let rows = runs.into_iter().map(|run| vec![run.name.clone(), commands.shown(&run.command)]);
    format!("{text}\n{}", output::table(&["RUN", "COMMAND"], rows))
}

fn user(run: &RunReport) -> String {
    match run.by {
        UsedBy::Run => run.name.clone(),
        UsedBy::Container => format!("{} (left a container)", run.name),
    }
}
