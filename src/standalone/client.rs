//! The way to whoever serves this machine. Where nobody does, a daemon is started that ends when it is idle.
//!
//! So there is always exactly one who allocates, and every command does the same, with a daemon and without: no
//! run has to serve others, or to hand anything over when it ends before them.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hyper_util::rt::TokioIo;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::{net::UnixStream, time};
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Endpoint},
};
use tower::service_fn;

use super::{
    api::{
        AcquireRequest, DeleteRequest, Granted, ReleaseRequest, ReportRequest, ReportResponse, Ticket,
        acquire_progress::Progress, acquire_request::Claim, control_client::ControlClient,
    },
    presence::RunId,
    queue,
    report::Report,
    service,
};
use crate::node::Lock;

/// How long a daemon may take to start. One that ends takes a moment, too.
const START_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long whoever has the lock may take to serve, before one is started that says who has it.
const PATIENCE: Duration = Duration::from_secs(8);
/// How often a daemon may fail on its own account: one can meet another that is just ending.
const FAILURES: usize = 2;
/// How often the line may break without anything being heard in between.
const BREAKS: usize = 10;

/// Why nothing was granted, released or told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only root may ask.
    #[error("only root can do this\nfix: sudo claimfs …")]
    NotRoot,
    /// No daemon can be started.
    #[error("cannot start a daemon: {0}")]
    Start(#[source] io::Error),
    /// A daemon has not started.
    #[error("claimfs node --standalone does not start: {reason}\nIts log: {}", .log.display())]
    Failed {
        /// What it said last.
        reason: String,
        /// Where it said more.
        log: PathBuf,
        /// What it ended with.
        code: Option<i32>,
    },
    /// A daemon cannot be reached.
    #[error("cannot reach claimfs node at {}: {reason}\nfix: is another claimfs running on this run folder? --run-dir names another", .path.display())]
    Line {
        /// The socket.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It was asked for wrongly.
    #[error("{0}")]
    Wrong(String),
    /// It cannot be done.
    #[error("{0}")]
    Refused(String),
    /// The run is not known.
    #[error("{0}")]
    NoRun(String),
    /// It cannot be read.
    #[error("cannot read what claimfs node says: {0}\nfix: are both of the same version?")]
    Message(#[from] serde_json::Error),
}

/// Where a daemon is, or how one is started.
pub struct Launcher {
    /// Its run folder.
    pub run_dir: PathBuf,
    /// What it is to find in its environment.
    pub environment: Vec<(&'static str, OsString)>,
}

/// What is asked for.
pub enum Wanted<'a> {
    /// A new claim.
    New(&'a ResourceClaim),
    /// One that is there.
    Named(&'a str),
}

/// Who asks, and for how long.
pub struct Asking<'a> {
    /// The run that uses it; without one it is kept.
    pub run: Option<&'a RunId>,
    /// A place in the queue, if it waits.
    pub wait: Option<queue::Ticket>,
}

/// What has become of a run's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It is free.
    Yes,
    /// Something still uses it, and it is free when that ends.
    Later,
}

impl Launcher {
    /// Asks for a claim, and tells how many are before us.
    pub async fn acquire(
        &self,
        wanted: Wanted<'_>,
        asking: Asking<'_>,
        mut waiting: impl FnMut(u32),
    ) -> Result<Granted, Error> {
        let claim = match wanted {
            Wanted::New(claim) => Claim::Manifest(serde_json::to_string(claim)?),
            Wanted::Named(name) => Claim::Name(name.to_owned()),
        };
        let request = AcquireRequest {
            claim: Some(claim),
            run: asking.run.map(ToString::to_string).unwrap_or_default(),
            ticket: asking.wait.map(|queue::Ticket { since, process }| Ticket { since, process }),
            wait: asking.wait.is_some(),
        };
        let mut breaks = 0;
        loop {
            let status = match self.connect().await?.acquire(request.clone()).await {
                Ok(answer) => {
                    let mut progress = answer.into_inner();
                    loop {
                        match progress.message().await {
                            Ok(Some(message)) => match message.progress {
                                Some(Progress::Granted(granted)) => return Ok(granted),
                                Some(Progress::Waiting(place)) => {
                                    breaks = 0;
                                    waiting(place.before);
                                }
                                None => {}
                            },
                            Ok(None) => break Status::unavailable("it has hung up"),
                            Err(status) => break status,
                        }
                    }
                }
                Err(status) => status,
            };
            decided(&status)?;
            breaks += 1;
            // The same run gets the same answer; without one there would be two claims.
            if breaks > BREAKS || asking.run.is_none() {
                return Err(self.broken("it has hung up"));
            }
            time::sleep(LOOK_EVERY).await;
        }
    }

    /// Says that a run has ended.
    pub async fn release(&self, run: &RunId) -> Result<Released, Error> {
        for _ in 0..BREAKS {
            let request = ReleaseRequest { run: run.to_string() };
            match self.connect().await?.release(request).await {
                Ok(answer) if answer.get_ref().in_use => return Ok(Released::Later),
                Ok(_) => return Ok(Released::Yes),
                Err(status) => decided(&status)?,
            }
            time::sleep(LOOK_EVERY).await;
        }
        Err(self.broken("it hangs up again and again"))
    }

    /// Deletes a claim.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let request = DeleteRequest { name: name.to_owned() };
        match self.connect().await?.delete(request).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.failure(&status)),
        }
    }

    /// What there is now.
    pub async fn report(&self) -> Result<Report, Error> {
        let mut reports = self.reports(ReportRequest { follow: false }).await?;
        reports.next().await?.ok_or_else(|| self.broken("it has hung up"))
    }

    /// What there is now, and whenever it changes.
    pub async fn follow(&self) -> Result<Reports<'_>, Error> {
        self.reports(ReportRequest { follow: true }).await
    }

    async fn reports(&self, request: ReportRequest) -> Result<Reports<'_>, Error> {
        match self.connect().await?.report(request).await {
            Ok(answer) => Ok(Reports { launcher: self, stream: answer.into_inner() }),
            Err(status) => Err(self.failure(&status)),
        }
    }

    /// For those who do not ask again.
    fn failure(&self, status: &Status) -> Error {
        decided(status).err().unwrap_or_else(|| self.broken(status.message()))
    }

    fn broken(&self, reason: &str) -> Error {
        Error::Line { path: service::socket(&self.run_dir), reason: reason.to_owned() }
    }

    /// Connects to whoever serves, and starts a daemon where nobody does.
    async fn connect(&self) -> Result<ControlClient<Channel>, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let begun = Instant::now();
        let mut daemon: Option<Child> = None;
        let (mut failures, mut code) = (0, None);
        loop {
            let refused = match self.dial().await {
                Ok(client) => {
                    // It may not be the one that we have started; until we end somebody has to take note of its end.
                    if let Some(mut child) = daemon {
                        thread::spawn(move || child.wait());
                    }
                    return Ok(client);
                }
                Err(error) => error,
            };
            let ended = match &mut daemon {
                Some(child) => child.try_wait().map_err(Error::Start)?,
                None => None,
            };
            if let Some(status) = ended {
                daemon = None;
                failures += usize::from(!status.success());
                code = status.code();
            }
            // Whoever has the lock serves in a moment, or ends.
            let is_free = Lock::is_free(&self.run_dir);
            let is_stuck = begun.elapsed() > PATIENCE;
            if (is_free && failures >= FAILURES) || (is_stuck && failures > 0) {
                return Err(self.failed(code));
            }
            if begun.elapsed() > START_WITHIN {
                return Err(self.broken(&refused.to_string()));
            }
            if daemon.is_none() && (is_free || is_stuck) {
                daemon = Some(self.start().map_err(Error::Start)?);
            }
            time::sleep(LOOK_EVERY).await;
        }
    }

    async fn dial(&self) -> Result<ControlClient<Channel>, tonic::transport::Error> {
        let path = service::socket(&self.run_dir);
        let connector = service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is never looked up.
        let endpoint = Endpoint::from_static("http://claimfs");
        endpoint.connect_with_connector(connector).await.map(ControlClient::new)
    }

    fn log(&self) -> PathBuf {
        self.run_dir.join("node.log")
    }

    /// Apart from our terminal: what interrupts us is not meant for it.
    fn start(&self) -> io::Result<Child> {
        fs::create_dir_all(&self.run_dir)?;
        let log = fs::OpenOptions::new().create(true).write(true).truncate(true).open(self.log())?;
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        Command::new(std::env::current_exe()?)
            .args(["node", "--standalone"])
            .envs(environment)
            .env_remove("CLAIMFS_KUBECONFIG")
            .env_remove("CLAIMFS_POD_UID")
            .env_remove("CLAIMFS_HTTP")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
    }

    fn failed(&self, code: Option<i32>) -> Error {
        let log = self.log();
        let text = fs::read_to_string(&log).unwrap_or_default();
        let reason = text.split("\nerror: ").last().unwrap_or_default();
        let reason = reason.trim_start_matches("error: ").trim();
        let reason = if reason.is_empty() { "it says nothing" } else { reason };
        Error::Failed { reason: reason.to_owned(), log, code }
    }
}

/// What the daemon has decided is final; that it could not be heard is not.
fn decided(status: &Status) -> Result<(), Error> {
    let text = status.message().to_owned();
    match status.code() {
        Code::InvalidArgument => Err(Error::Wrong(text)),
        Code::FailedPrecondition => Err(Error::Refused(text)),
        Code::Aborted => Err(Error::NoRun(text)),
        _ => Ok(()),
    }
}

/// Reports, one after another.
pub struct Reports<'a> {
    launcher: &'a Launcher,
    stream: Streaming<ReportResponse>,
}

impl Reports<'_> {
    /// The next one; none when the daemon ends.
    pub async fn next(&mut self) -> Result<Option<Report>, Error> {
        match self.stream.message().await {
            Ok(Some(response)) => Ok(Some(serde_json::from_str(&response.report)?)),
            Ok(None) => Ok(None),
            Err(status) => Err(self.launcher.failure(&status)),
        }
    }
}
