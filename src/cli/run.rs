//! `claimfs run`: a command with devices, without a cluster.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{Error, machine::Machine, output};
use crate::standalone::{
    api::Granted,
    client::{self, Asking, Launcher, Released, Wanted},
    command::{CommandLine, Way},
    kernel, manifest,
    presence::Presence,
    runner,
};

/// How often a run is made anew that the daemon does not know.
const ATTEMPTS: usize = 3;

/// Run a container with devices, without a cluster
///
/// Allocates and prepares a claim, puts its devices into the command line of podman, docker, nerdctl or ctr, behind
/// the word that makes the container, runs it on this terminal, and releases the claim when it has ended. In other
/// commands {} stands where the --device options go; {} within a word becomes the names of the devices alone. Every
/// command has `CLAIMFS_CLAIM` and `CLAIMFS_CDI_DEVICES` in its environment.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: that of the command, 128 and the signal that ended it, 126 or 127 when it cannot be run. Before it runs: 1 not possible (there are not enough devices, or this is not root), 2 wrong usage, claim, class or configuration.",
    override_usage = "claimfs run (-f FILE | --device-class CLASS | --claim NAME) [OPTIONS] -- COMMAND..."
)]
pub(super) struct Run {
    /// A ResourceClaim or ResourceClaimTemplate; - is standard input
    #[arg(short, long, value_name = "FILE", group = "what")]
    file: Option<PathBuf>,

    /// Devices of this class
    #[arg(long, value_name = "CLASS", group = "what")]
    device_class: Option<String>,

    /// Share a claim that is there, as NAME or NAMESPACE/NAME
    #[arg(long, value_name = "NAME", group = "what")]
    claim: Option<String>,

    /// Only devices for which this CEL expression is true; can be given several times
    #[arg(long, value_name = "CEL", requires = "device_class")]
    select: Vec<String>,

    /// How many devices
    #[arg(long, value_name = "N", requires = "device_class", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// Wait until there are enough devices: first come, first served
    #[arg(long, conflicts_with = "claim")]
    wait: bool,

    /// Run the command as it is: it looks at its environment
    #[arg(long)]
    plain: bool,

    #[command(flatten)]
    machine: Machine,

    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let way = if self.plain { Way::Environment } else { Way::Words };
        let line = CommandLine::new(self.command.clone(), way)?;
        let claim = self.manifest()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Error::Start)?.block_on(self.use_claim(line, claim.as_ref()))
    }

    /// The claim that is to be made; none where one is shared.
    fn manifest(&self) -> Result<Option<ResourceClaim>, Error> {
        if let Some(class) = &self.device_class {
            return Ok(Some(manifest::quick(class, &self.select, self.count)));
        }
        let Some(path) = &self.file else { return Ok(None) };
        let mut claims = manifest::read(path)?;
        match (claims.pop(), claims.len()) {
            (Some(claim), 0) => Ok(Some(claim)),
            (_, others) => Err(Error::Several { path: path.clone(), count: others + 1 }),
        }
    }

    async fn use_claim(&self, line: CommandLine, claim: Option<&ResourceClaim>) -> Result<ExitCode, Error> {
        let launcher = self.machine.launcher();
        let (presence, granted) = self.acquire(&launcher, claim).await?;
        let devices: Vec<String> =
            granted.devices.iter().map(|device| device.cdi_device_id.clone()).collect();
        let words = line.with(&devices);
        let ended = self.run_words(&words, &presence, &granted, &devices).await;
        self.release(&launcher, presence).await;
        Ok(ExitCode::from(runner::exit_code(ended?)))
    }

    /// Whoever has the answer has the claim for as long as it keeps the presence.
    async fn acquire(
        &self,
        launcher: &Launcher,
        claim: Option<&ResourceClaim>,
    ) -> Result<(Presence, Granted), Error> {
        let wait = self.wait.then(kernel::ticket).transpose().map_err(Error::Start)?;
        let mut attempts = 0;
        loop {
            let presence = self.begin()?;
            let wanted = match claim {
                Some(claim) => Wanted::New(claim),
                None => Wanted::Named(self.claim.as_deref().unwrap_or_default()),
            };
            let asking = Asking { run: Some(presence.id()), wait };
            match launcher.acquire(wanted, asking, tell_place).await {
                Ok(granted) => return Ok((presence, granted)),
                // Somebody has removed what it is known by.
                Err(client::Error::NoRun(_)) if attempts < ATTEMPTS => presence.end(),
                Err(error) => {
                    presence.end();
                    return Err(error.into());
                }
            }
            attempts += 1;
        }
    }

    fn begin(&self) -> Result<Presence, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(client::Error::NotRoot.into());
        }
        let path = &self.machine.run_dir;
        Presence::begin(path).map_err(|source| Error::RunDir { path: path.clone(), source })
    }

    async fn run_words(
        &self,
        words: &[OsString],
        presence: &Presence,
        granted: &Granted,
        devices: &[String],
    ) -> Result<std::process::ExitStatus, Error> {
        presence.hand_down().map_err(Error::Start)?;
        let program = words.first().map(|word| word.display().to_string()).unwrap_or_default();
        runner::run(words, granted, devices).await.map_err(|source| Error::Run { program, source })
    }

    /// The command has ended as it has: what is wrong from here on is said, and changes nothing about that.
    async fn release(&self, launcher: &Launcher, presence: Presence) {
        let run = presence.id().clone();
        presence.end();
        match launcher.release(&run).await {
            Ok(Released::Yes) => {}
            Ok(Released::Later) => {
                output::complain("claimfs: the container goes on; its devices are free when it has ended");
            }
            Err(error) => output::complain(format_args!(
                "warning: the devices are not free yet, but at the next claimfs run or start: {error}"
            )),
        }
    }
}

/// For people who look at it.
fn tell_place(before: u32) {
    if io::stderr().is_terminal() {
        output::complain(format_args!("waiting for devices, {before} before us"));
    }
}
