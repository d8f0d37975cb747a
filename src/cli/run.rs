//! `claimfs run`: a command with devices, without a cluster.

use std::{
    convert::Infallible,
    ffi::OsString,
    fmt::Display,
    future,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{ArgGroup, Args};
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::time;

use super::{Error, machine::Machine, output};
use crate::{
    check::{self, Line},
    runtime::Runtime,
    standalone::{
        api::Granted,
        client::{self, Asking, Launcher, Released, Wanted},
        command::{CommandLine, Way},
        kernel, manifest,
        presence::{Asker, Presence, RunId},
        runner::{self, Ended, Interrupts},
    },
};

/// How long the daemon may take to release what was used: longer than it waits for that itself.
const RELEASE_WITHIN: Duration = Duration::from_secs(40);
/// How long people wait without being told for what.
const SLOW: Duration = Duration::from_secs(1);
/// How often a run is made anew that the daemon does not know.
const ATTEMPTS: usize = 3;

/// Run a container with devices, without a cluster
///
/// Allocates and prepares a claim, puts its devices into the command line of podman, docker, nerdctl or ctr, behind
/// the word that makes the container or where {} stands among its options, runs it on this terminal, and releases the
/// claim when it has ended. In other commands {} stands where the --device options go; {} within a word becomes the names
/// of the devices alone. Every command has `CLAIMFS_CLAIM` and `CLAIMFS_CDI_DEVICES` in its environment.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: that of the command, 128 and the signal that ended it, 126 or 127 when it cannot be run. Before it runs: 1 not possible (there are not enough devices, or this is not root), 2 wrong usage, claim, class or configuration.",
    group = ArgGroup::new("what").args(["file", "device_class", "claim"]).required(true),
    override_usage = "claimfs run (-f FILE | --device-class CLASS | --claim NAME) [OPTIONS] -- COMMAND..."
)]
pub(super) struct Run {
    /// A ResourceClaim or ResourceClaimTemplate; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Devices of this class
    #[arg(long, value_name = "CLASS")]
    device_class: Option<String>,

    /// Share a claim that is there, as NAME or NAMESPACE/NAME
    #[arg(long, value_name = "NAME")]
    claim: Option<String>,

    /// Only devices for which this CEL expression is true; can be given several times
    #[arg(long, value_name = "CEL", conflicts_with_all = ["file", "claim"])]
    select: Vec<String>,

    /// How many devices
    #[arg(long, value_name = "N", conflicts_with_all = ["file", "claim"], default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
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
        if self.claim.is_none() && line.is_for_later() {
            return Err(Error::ForLater);
        }
        if self.claim.is_none() && line.is_started_again() {
            return Err(Error::Again);
        }
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
        let (runtime, program) = (line.runtime(), line.program());
        let words = line.with(&devices);
        let ended = tokio::select! {
            ended = self.run_words(&words, &presence, &granted, &devices) => ended,
            never = launcher.keep_served() => match never {},
        };
        let run = presence.id().clone();
        match &ended {
            // What it has asked a runtime's daemon for may still come.
            Ok(ended) if ended.is_cut_short(program) => drop(presence),
            _ => presence.end(),
        }
        self.release(&launcher, &run).await;
        let code = runner::exit_code(ended?.status);
        if let Some(runtime) = runtime.filter(|runtime| runtime.may_have_failed(code)) {
            self.suspect(runtime);
        }
        Ok(ExitCode::from(code))
    }

    /// What a runtime says when it takes no devices does not tell what to do about it.
    fn suspect(&self, runtime: Runtime) {
        if let Some(Line { code, text, fix: Some(fix), .. }) = check::runtime(runtime, &self.machine.cdi_dir)
        {
            output::complain(format_args!("claimfs: {code} {text}\nfix: {fix}"));
        }
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
            let presence = self.machine.begin(&self.command)?;
            let wanted = match claim {
                Some(claim) => Wanted::New(claim),
                None => Wanted::Named(self.claim.as_deref().unwrap_or_default()),
            };
            let asking = Asking { asker: Asker::Run(presence.id().clone()), wait };
            match launcher.acquire(wanted, asking, self.machine.tell()).await {
                Ok(granted) => return Ok((presence, granted)),
                // Somebody has removed what it is known by.
                Err(client::Error::NoRun(_)) if attempts < ATTEMPTS => presence.withdraw(),
                Err(error) => {
                    presence.withdraw();
                    return Err(error.into());
                }
            }
            attempts += 1;
        }
    }

    async fn run_words(
        &self,
        words: &[OsString],
        presence: &Presence,
        granted: &Granted,
        devices: &[String],
    ) -> Result<Ended, Error> {
        let program = words.first().map(|word| word.display().to_string()).unwrap_or_default();
        let ended = runner::run(words, presence, granted, devices).await;
        ended.map_err(|source| Error::Run { program, source })
    }

    /// The command has ended as it has: what is wrong from here on is said, and changes nothing about that.
    async fn release(&self, launcher: &Launcher, run: &RunId) {
        let late = |why: &dyn Display| {
            output::complain(format_args!(
                "warning: the devices are not free yet, but at the next claimfs run or start: {why}"
            ));
        };
        let released = time::timeout(RELEASE_WITHIN, launcher.release(run));
        let interrupted = async {
            Interrupts::listen()?.next().await;
            io::Result::Ok(())
        };
        tokio::select! {
            released = released => match released {
                Ok(Ok(Released::Yes)) => {}
                Ok(Ok(Released::Later)) => output::complain(match &self.claim {
                    None => "claimfs: the container goes on; its devices are free when it has ended",
                    Some(_) => "claimfs: the container goes on; it uses the claim until it has ended",
                }),
                Ok(Err(error)) => late(&error),
                Err(_) => late(&"claimfs node does not answer"),
            },
            // Without signals it takes as long as it takes.
            Ok(()) = interrupted => late(&"interrupted"),
            never = say_when_slow() => match never {},
        }
    }
}

/// People see that something is done; programs need not know.
async fn say_when_slow() -> Infallible {
    time::sleep(SLOW).await;
    if io::stderr().is_terminal() {
        output::complain("claimfs: waiting until nothing uses the devices any more");
    }
    future::pending().await
}
