//! The command line: one file a subcommand, each of which parses, calls and prints.

mod allocate;
mod check;
mod claim;
mod demo;
mod devices;
mod explain;
mod hold;
mod inputs;
mod machine;
mod manual;
mod metadata;
mod node;
mod open;
mod output;
mod run;
mod status;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    cluster, config,
    device::NodeName,
    discover, inventory, objects, observe, question,
    standalone::{client, command, manifest},
};

/// Devices for Kubernetes Dynamic Resource Allocation.
#[derive(Debug, Parser)]
#[command(name = "claimfs", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Devices(devices::Devices),
    Allocate(allocate::Allocate),
    Explain(explain::Explain),
    Run(Box<run::Run>),
    #[command(subcommand)]
    Claim(Box<claim::Claim>),
    Status(Box<status::Status>),
    Node(Box<node::Node>),
    Metadata(metadata::Metadata),
    Check(check::Check),
    Hold(hold::Hold),
    Completions(manual::Completions),
    Manual(manual::Manual),
    #[command(hide = true)]
    Open(open::Open),
}

/// What ends a subcommand without success.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "{0}\nfix: write one (examples/config.yaml in the sources is a start), or name another with --config"
    )]
    NoConfig(#[source] config::Error),
    #[error(transparent)]
    Config(config::Error),
    #[error("{0}\nfix: --dev names the folder where the host's /dev is seen")]
    Discover(#[from] discover::Error),
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    #[error(
        "the host name {host:?} is not a valid name of a Kubernetes node\nfix: give one with --node-name"
    )]
    HostName { host: String },
    #[error(transparent)]
    Log(#[from] observe::LogError),
    #[error(transparent)]
    Node(#[from] crate::node::Error),
    #[error(
        "{0}\nfix: --kubeconfig names a file; in a pod, a service account is needed; without a cluster there are claimfs node --standalone and claimfs explain -f"
    )]
    Cluster(#[from] cluster::Error),
    #[error("{0}\nfix: run it as root; is another one running on this run folder?")]
    Hold(#[from] crate::hold::Error),
    #[error("{0}\nfix: --place names the folder where metadata are seen")]
    Reader(#[from] crate::reader::Error),
    #[error(transparent)]
    Objects(#[from] objects::Error),
    #[error("{0}\nfix: --kubeconfig names the cluster; its user must be allowed to list what is read")]
    ClusterObjects(#[from] objects::ClusterError),
    #[error("{0}\nfix: -f names files with claims, --claim one of them or of the cluster")]
    Question(#[from] question::Error),
    #[error("pod {pod} uses no claim, or its claims are not made yet")]
    NoClaims { pod: String },
    #[error("cannot write the manual into {}: {source}", .folder.display())]
    Manual { folder: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error("{0}\nfix: -f names a file with a claim")]
    NoManifest(#[source] objects::Error),
    #[error("{0}\nfix: examples/standalone in the sources has claims that are right")]
    Manifest(#[source] manifest::Error),
    #[error("{path}: there are {count} claims in it, and a run uses one\nfix: put each into a file of its own", path = .path.display())]
    Several { path: PathBuf, count: usize },
    #[error(transparent)]
    Command(#[from] command::Error),
    #[error(
        "create makes a container that is started later, and by then the claim of this run is released\nfix: put run in its place, or make a claim that stays (claimfs claim create) and use it with --claim"
    )]
    ForLater,
    #[error(
        "a container that is started again (--restart) needs its devices again, and by then the claim of this run is released\nfix: leave that out, or make a claim that stays (claimfs claim create) and use it with --claim"
    )]
    Again,
    #[error("cannot run {program}: {source}\nfix: {}", way_to_run(source))]
    Run { program: String, source: std::io::Error },
    #[error("cannot use {path}: {source}\nfix: --run-dir names another folder", path = .path.display())]
    RunDir { path: PathBuf, source: std::io::Error },
    #[error("there is no claim {name}\nfix: claimfs claim list shows those that there are")]
    NoClaim { name: String },
    #[error(
        "{0}\nfix: --mount-point names the folder where the daemon shows metadata; with --metadata off there is none"
    )]
    Seen(#[from] crate::node::SeenError),
    #[error("{0}\nfix: run it as root; otherwise it cannot be told which devices are in use")]
    Folder(#[from] crate::claims::FolderError),
    #[error("{0}\nfix: run it as root, or name another folder of claims and classes with --objects-dir")]
    Classes(#[from] crate::standalone::classes::Error),
    #[error(
        "there is no {}, without which nothing is served live\nfix: modprobe fuse (in a container: --device /dev/fuse), or use plain files with --metadata files",
        .path.display()
    )]
    NoFuse { path: PathBuf },
    #[error("the demonstration ended early: {0}")]
    Demo(#[from] crate::demo::Error),
    #[error("cannot write the output: {0}")]
    Output(#[source] std::io::Error),
    #[error("cannot start: {0}")]
    Start(#[source] std::io::Error),
}

impl Error {
    /// 1: not possible; 2: asked for wrongly.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::NoConfig(_)
            | Self::Config(_)
            | Self::Discover(_)
            | Self::HostName { .. }
            | Self::Objects(_)
            | Self::Classes(_)
            | Self::Question(_)
            | Self::NoClaims { .. }
            | Self::Log(_)
            | Self::NoManifest(_)
            | Self::Manifest(_)
            | Self::Several { .. }
            | Self::Command(_)
            | Self::ForLater
            | Self::Again
            | Self::Client(client::Error::Wrong(_) | client::Error::Failed { code: Some(2), .. }) => {
                ExitCode::from(2)
            }
            // As shells have it.
            Self::Run { source, .. } if source.kind() == std::io::ErrorKind::NotFound => ExitCode::from(127),
            Self::Run { .. } => ExitCode::from(126),
            Self::Inventory(_)
            | Self::Node(_)
            | Self::Hold(_)
            | Self::Reader(_)
            | Self::Cluster(_)
            | Self::ClusterObjects(_)
            | Self::Manual { .. }
            | Self::Seen(_)
            | Self::Folder(_)
            | Self::NoFuse { .. }
            | Self::Demo(_)
            | Self::Client(_)
            | Self::RunDir { .. }
            | Self::NoClaim { .. }
            | Self::Output(_)
            | Self::Start(_) => ExitCode::FAILURE,
        }
    }
}

impl From<manifest::Error> for Error {
    fn from(error: manifest::Error) -> Self {
        match error {
            manifest::Error::Objects(error @ objects::Error::Read { .. }) => Self::NoManifest(error),
            _ => Self::Manifest(error),
        }
    }
}

impl From<config::Error> for Error {
    fn from(error: config::Error) -> Self {
        match &error {
            config::Error::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Self::NoConfig(error)
            }
            _ => Self::Config(error),
        }
    }
}

/// The node that was named, or else this host.
fn node_name(given: Option<&NodeName>) -> Result<NodeName, Error> {
    if let Some(name) = given {
        return Ok(name.clone());
    }
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().to_lowercase();
    host.parse().map_err(|_| Error::HostName { host })
}

/// Runs the command that the process was started with.
#[must_use]
pub fn run() -> ExitCode {
    let Cli { command } = Cli::parse();
    let done = |()| ExitCode::SUCCESS;
    let outcome = match command {
        Command::Demo(demo) => demo.run().map(done),
        Command::Devices(devices) => devices.run().map(done),
        Command::Allocate(allocate) => allocate.run(),
        Command::Explain(explain) => explain.run(),
        Command::Run(run) => run.run(),
        Command::Claim(claim) => claim.run().map(done),
        Command::Status(status) => status.run().map(done),
        Command::Node(node) => node.run().map(done),
        Command::Metadata(metadata) => metadata.run().map(done),
        Command::Check(check) => check.run(),
        Command::Hold(hold) => hold.run().map(done),
        Command::Completions(completions) => completions.run().map(done),
        Command::Manual(manual) => manual.run().map(done),
        Command::Open(open) => open.run().map(done),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            error.exit_code()
        }
    }
}

fn way_to_run(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "is it installed, and on PATH?",
        _ => "is it a program that can be executed?",
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
