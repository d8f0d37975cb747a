//! The way to whoever serves this machine. Where nobody does, a daemon is started that ends when it is idle.
//!
//! So there is always exactly one who allocates, and every command does the same, with a daemon and without: no
//! run has to serve others, or to hand anything over when it ends before them.

mod connect;

use std::{convert::Infallible, ffi::OsString, io, ops::ControlFlow, path::PathBuf, time::Duration};

use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::time;
use tonic::{Code, Status, Streaming, transport::Channel};

use super::{
    api::{
        AcquireRequest, DeleteRequest, Granted, Kept, ReleaseRequest, ReportRequest, ReportResponse, Ticket,
        acquire_progress::Progress, acquire_request::Claim, control_client::ControlClient,
    },
    kernel,
    presence::{Asker, RunId},
    queue,
    report::Report,
    service,
    setup::Stamp,
};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a daemon may take for an answer that nothing has to be waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How soon one is started again for whoever needs it: systemd, or whoever else supervises it, comes first.
const SERVE_AGAIN: Duration = Duration::from_secs(2);
/// How often a daemon may make way for us: somebody else may want another one as often.
const TURNS: usize = 3;
/// How often the line may break without anything being heard in between.
const BREAKS: usize = 10;

/// Why nothing was granted, released or told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only root may ask.
    #[error("only root can do this\nfix: sudo claimfs …")]
    NotRoot,
    /// The kernel gives no random number.
    #[error("cannot make a UID: {0}")]
    Random(#[source] io::Error),
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
    #[error("cannot reach claimfs node at {}: {reason}\nfix: its log says why (node.log beside the socket, or journalctl -u claimfs); one that is stuck can be killed", .path.display())]
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
    /// What tells the settings that it has then from others.
    pub stamp: Stamp,
}

/// What is heard before something is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// So many are before us.
    Waiting(u32),
    /// The daemon has other settings, and keeps them.
    Kept {
        /// The daemon.
        process: u32,
        /// Its configuration.
        config: String,
        /// All of them.
        stamp: Option<Stamp>,
    },
}

/// What is asked for.
pub enum Wanted<'a> {
    /// A new claim.
    New(&'a ResourceClaim),
    /// One that is there.
    Named(&'a str),
}

/// Who asks, and for how long.
pub struct Asking {
    /// Who.
    pub asker: Asker,
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
    /// Asks for a claim, and tells what is heard meanwhile.
    pub async fn acquire(
        &self,
        wanted: Wanted<'_>,
        asking: Asking,
        mut tell: impl FnMut(News),
    ) -> Result<Granted, Error> {
        let claim = match wanted {
            Wanted::New(claim) => {
                let mut claim = claim.clone();
                // What it can be asked for with again.
                claim.metadata.uid = Some(kernel::uuid().map_err(Error::Random)?);
                Claim::Manifest(serde_json::to_string(&claim)?)
            }
            Wanted::Named(name) => Claim::Name(name.to_owned()),
        };
        let mut request = AcquireRequest {
            claim: Some(claim),
            run: asking.asker.run().map(ToString::to_string).unwrap_or_default(),
            keep: asking.asker.user().is_none(),
            ticket: asking.wait.map(|queue::Ticket { since, process }| Ticket { since, process }),
            wait: asking.wait.is_some(),
            settings: self.stamp.to_string(),
        };
        let mut breaks = 0;
        loop {
            let mut hear = |news| {
                if matches!(news, News::Waiting(_)) {
                    breaks = 0;
                }
                tell(news);
            };
            let asked = ask(self.connect().await?, request.clone(), &mut hear);
            let answer = if request.wait { asked.await } else { within(asked).await };
            match answer {
                Ok(granted) => return Ok(granted),
                Err(status) => self.undecided(&status)?,
            }
            breaks += 1;
            if breaks > BREAKS {
                return Err(self.broken(HUNG_UP));
            }
            if breaks > TURNS {
                request.settings.clear();
            }
            time::sleep(LOOK_EVERY).await;
        }
    }

    /// Says that a run has ended.
    pub async fn release(&self, run: &RunId) -> Result<Released, Error> {
        for _ in 0..BREAKS {
            let request = ReleaseRequest { run: run.to_string() };
            match within(self.connect().await?.release(request)).await {
                Ok(answer) if answer.get_ref().in_use => return Ok(Released::Later),
                Ok(_) => return Ok(Released::Yes),
                Err(status) => self.undecided(&status)?,
            }
            time::sleep(LOOK_EVERY).await;
        }
        Err(self.broken("it hangs up again and again"))
    }

    /// Deletes a claim.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let request = DeleteRequest { name: name.to_owned() };
        match within(self.connect().await?.delete(request)).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.failure(&status)),
        }
    }

    /// What there is now.
    pub async fn report(&self) -> Result<Report, Error> {
        for _ in 0..BREAKS {
            let asked = async { self.reports(ReportRequest { follow: false }).await?.next().await };
            match time::timeout(ANSWER_WITHIN, asked).await.map_err(|_| self.broken(SILENT))? {
                Ok(Some(report)) => return Ok(report),
                Ok(None) | Err(Error::Line { .. }) => {}
                Err(error) => return Err(error),
            }
            // One that is just ending hangs up.
            time::sleep(LOOK_EVERY).await;
        }
        Err(self.broken(HUNG_UP))
    }

    /// Shows what there is now, and whenever it changes, until `show` says that it is enough. A daemon that ends is
    /// followed by the next one.
    pub async fn follow<E: From<Error>>(
        &self,
        mut show: impl FnMut(&Report) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        loop {
            let mut reports = self.reports(ReportRequest { follow: true }).await?;
            loop {
                match reports.next().await {
                    Ok(Some(report)) => {
                        if show(&report)?.is_break() {
                            return Ok(());
                        }
                    }
                    Ok(None) | Err(Error::Line { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            time::sleep(SERVE_AGAIN).await;
        }
    }

    /// Sees to it that somebody serves for as long as this is waited for: what containers read comes from there.
    pub async fn keep_served(&self) -> Infallible {
        loop {
            // Whoever wants to know why none starts has its log.
            let _: Result<(), Error> = self.follow(|_| Ok(ControlFlow::Continue(()))).await;
            time::sleep(SERVE_AGAIN).await;
        }
    }

    async fn reports(&self, request: ReportRequest) -> Result<Reports<'_>, Error> {
        match within(self.connect().await?.report(request)).await {
            Ok(answer) => Ok(Reports { launcher: self, stream: answer.into_inner() }),
            Err(status) => Err(self.failure(&status)),
        }
    }

    /// For those who ask again, unless there is no use.
    fn undecided(&self, status: &Status) -> Result<(), Error> {
        match status.code() {
            Code::DeadlineExceeded => Err(self.broken(status.message())),
            _ => decided(status),
        }
    }

    /// For those who do not ask again.
    fn failure(&self, status: &Status) -> Error {
        decided(status).err().unwrap_or_else(|| self.broken(status.message()))
    }

    fn broken(&self, reason: &str) -> Error {
        Error::Line { path: service::socket(&self.run_dir), reason: reason.to_owned() }
    }
}

/// What is said of a daemon that has been stopped, or is stuck.
const SILENT: &str = "it does not answer";
/// What is said of one that was killed, again and again.
const HUNG_UP: &str = "it has hung up";

/// Asks for a claim, and hears what there is to say until it is granted.
async fn ask(
    mut client: ControlClient<Channel>,
    request: AcquireRequest,
    hear: &mut impl FnMut(News),
) -> Result<Granted, Status> {
    let mut progress = client.acquire(request).await?.into_inner();
    while let Some(message) = progress.message().await? {
        match message.progress {
            Some(Progress::Granted(granted)) => return Ok(granted),
            Some(Progress::Waiting(place)) => hear(News::Waiting(place.before)),
            Some(Progress::Kept(Kept { process, config, settings })) => {
                hear(News::Kept { process, config, stamp: Stamp::parse(&settings) });
            }
            None => {}
        }
    }
    Err(Status::unavailable(HUNG_UP))
}

async fn within<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    time::timeout(ANSWER_WITHIN, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded(SILENT)))
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
