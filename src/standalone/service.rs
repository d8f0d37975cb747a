//! The control socket: decode, call one function, encode.

use std::{path::PathBuf, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, transport::Server};

use super::{
    api,
    api::{
        acquire_progress::Progress,
        acquire_request::Claim,
        control_server::{Control, ControlServer},
    },
    desk::{Call, Desk, Granted, Kept, Phase, Wanted, Wish},
    presence::{Asker, RunId},
    queue::{Patience, Ticket},
    refusal::{Blame, Refusal},
    setup::Stamp,
};
use crate::kubelet::{self, Listener};

/// How many characters of a refusal are told: it goes into a header, where each may take up to twelve bytes.
const LONGEST_REASON: usize = 64 * 1024;

/// Where the socket is in a run folder.
#[must_use]
pub fn socket(run_dir: &std::path::Path) -> PathBuf {
    run_dir.join("control.sock")
}

/// Serves on a socket until the shutdown is asked for, and then answers the calls that are under way.
pub(crate) async fn serve(
    listener: Listener,
    desk: Arc<Desk>,
    shutdown: CancellationToken,
) -> Result<(), kubelet::Error> {
    let (calls, broken) = listener.incoming();
    let server = Server::builder()
        .add_service(ControlServer::new(Service { desk }))
        .serve_with_incoming_shutdown(calls, shutdown.cancelled_owned());
    kubelet::until_broken("the control socket", server, broken).await
}

struct Service {
    desk: Arc<Desk>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Service {
    type AcquireStream = Answers<api::AcquireProgress>;
    type ReportStream = Answers<api::ReportResponse>;

    async fn acquire(
        &self,
        request: Request<api::AcquireRequest>,
    ) -> Result<Response<Self::AcquireStream>, Status> {
        let api::AcquireRequest { claim, run, ticket, wait, settings, keep } = request.into_inner();
        let asker = match optional_run(&run)? {
            Some(run) if !keep => Asker::Run(run),
            run => Asker::Keeper(run),
        };
        let wanted = match claim {
            Some(Claim::Manifest(text)) => {
                let claim = serde_json::from_str(&text).map_err(|error| Refusal::Message(error.to_string()));
                Wanted::New(Box::new(claim?))
            }
            Some(Claim::Name(name)) => Wanted::Named(name),
            None => return Err(Status::invalid_argument("a claim is needed")),
        };
        let patience = match (wait, ticket) {
            (false, _) => Patience::Refuse,
            (true, Some(api::Ticket { since, process })) => Patience::Wait(Ticket { since, process }),
            (true, None) => return Err(Status::invalid_argument("whoever waits needs a ticket")),
        };
        let kept = self.desk.meet(Stamp::parse(&settings).as_ref())?;
        let (tell, told) = mpsc::channel(1);
        let (desk, call) = (Arc::clone(&self.desk), self.desk.call(Wish::Service));
        // In a task of its own: a claim that was granted is prepared, whoever still listens.
        let granted = tokio::spawn(async move {
            let _call: Call = call;
            desk.acquire(wanted, &asker, patience, &tell).await
        });
        let told = stream::unfold(told, |mut told| async move { Some((told.recv().await?, told)) });
        let waiting = told.map(|before| {
            let before = u32::try_from(before).unwrap_or(u32::MAX);
            Ok(Progress::Waiting(api::Waiting { before }))
        });
        let answer = stream::once(async move {
            let granted = granted.await.map_err(|error| Status::internal(error.to_string()))?;
            Ok(Progress::Granted(granted?.into()))
        });
        let kept = kept.map(|Kept { process, config, stamp }| {
            let (config, settings) = (config.display().to_string(), stamp.to_string());
            Ok(Progress::Kept(api::Kept { process, config, settings }))
        });
        let progress = stream::iter(kept).chain(waiting).chain(answer);
        let progress = progress.map(|one| one.map(|one| api::AcquireProgress { progress: Some(one) }));
        Ok(Response::new(Box::pin(progress)))
    }

    async fn release(
        &self,
        request: Request<api::ReleaseRequest>,
    ) -> Result<Response<api::ReleaseResponse>, Status> {
        let _call = self.desk.call(Wish::Service);
        let run = RunId::parse(&request.into_inner().run);
        let run = run.ok_or_else(|| Status::invalid_argument("a run is needed"))?;
        let phase = self.desk.end(&run).await?;
        Ok(Response::new(api::ReleaseResponse { in_use: phase != Phase::Over }))
    }

    async fn delete(
        &self,
        request: Request<api::DeleteRequest>,
    ) -> Result<Response<api::DeleteResponse>, Status> {
        let _call = self.desk.call(Wish::Service);
        self.desk.delete(&request.into_inner().name).await?;
        Ok(Response::new(api::DeleteResponse {}))
    }

    async fn report(
        &self,
        request: Request<api::ReportRequest>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let (books, inventory) = self.desk.changes();
        let state = (Arc::clone(&self.desk), self.desk.call(Wish::View), books, inventory, String::new());
        // Once now, and again whenever it is another one.
        let reports = stream::unfold(state, |(desk, call, mut books, mut inventory, before)| async move {
            let closing = desk.closing();
            loop {
                books.mark_unchanged();
                inventory.mark_unchanged();
                let report = match serde_json::to_string(&desk.report()) {
                    Ok(report) => report,
                    Err(error) => {
                        let failed = Err(Status::internal(error.to_string()));
                        return Some((failed, (desk, call, books, inventory, before)));
                    }
                };
                if report != before {
                    let response = Ok(api::ReportResponse { report: report.clone() });
                    return Some((response, (desk, call, books, inventory, report)));
                }
                tokio::select! {
                    () = closing.cancelled() => return None,
                    Ok(()) = books.changed() => {}
                    Ok(()) = inventory.changed() => {}
                }
            }
        });
        let most = if request.into_inner().follow { usize::MAX } else { 1 };
        Ok(Response::new(Box::pin(reports.take(most))))
    }
}

fn optional_run(run: &str) -> Result<Option<RunId>, Status> {
    match (run, RunId::parse(run)) {
        ("", _) => Ok(None),
        (_, Some(run)) => Ok(Some(run)),
        (run, None) => Err(Status::invalid_argument(format!("the run {run:?} has no name of a run"))),
    }
}

/// What it was refused for, in one of the words that clients look at.
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.blame() {
            Blame::Asked => Code::InvalidArgument,
            Blame::Scarce | Blame::Machine => Code::FailedPrecondition,
            Blame::Run => Code::Aborted,
            Blame::Ending => Code::Unavailable,
        };
        let mut text = refusal.to_string();
        if let Some((end, _)) = text.char_indices().nth(LONGEST_REASON) {
            text.truncate(end);
            text += " … (the rest is left out)";
        }
        Self::new(code, text)
    }
}

impl From<Granted> for api::Granted {
    fn from(granted: Granted) -> Self {
        let Granted { claim, devices } = granted;
        let device = |device: crate::prepare::PreparedDevice| api::Device {
            request: device.request.to_string(),
            device: device.device.to_string(),
            cdi_device_id: device.cdi_id.to_string(),
        };
        Self {
            namespace: claim.namespace.to_string(),
            name: claim.name.to_string(),
            uid: claim.uid.to_string(),
            devices: devices.into_iter().map(device).collect(),
        }
    }
}
