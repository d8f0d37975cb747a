//! The line to the daemon: found, or made by starting one.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, time};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::{
    super::{api::control_client::ControlClient, service},
    Error, LOOK_EVERY, Launcher,
};
use crate::{node::Lock, program};

/// How long a daemon may take to start. One that ends takes a moment, too.
const START_WITHIN: Duration = Duration::from_secs(15);
/// How long whoever has the lock may take to serve, before one is started that says who has it.
const PATIENCE: Duration = Duration::from_secs(8);
/// The log of earlier daemons that is kept.
const LOG_BYTES: u64 = 1024 * 1024;
/// How often a daemon may fail on its own account: one can meet another that is just ending.
const FAILURES: usize = 2;
/// A refusal comes in a header, and an explanation can be long; a report is as long as there are claims.
const LONGEST_REASON: u32 = 1024 * 1024;
const LONGEST_REPORT: usize = 256 * 1024 * 1024;

impl Launcher {
    /// Connects to whoever serves, and starts a daemon where nobody does.
    pub(super) async fn connect(&self) -> Result<ControlClient<Channel>, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let begun = Instant::now();
        let mut daemon: Option<Child> = None;
        let (mut failures, mut code) = (0, None);
        // Where the log begins of those that we start.
        let mut log_start = None;
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
                return Err(self.failed(code, log_start.unwrap_or(0)));
            }
            if begun.elapsed() > START_WITHIN {
                return Err(self.broken(&refused.to_string()));
            }
            if daemon.is_none() && (is_free || is_stuck) {
                let (child, length) = self.start().map_err(Error::Start)?;
                daemon = Some(child);
                log_start.get_or_insert(length);
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
        let endpoint = Endpoint::from_static("http://claimfs").http2_max_header_list_size(LONGEST_REASON);
        let channel = endpoint.connect_with_connector(connector).await?;
        Ok(ControlClient::new(channel).max_decoding_message_size(LONGEST_REPORT))
    }

    fn log(&self) -> PathBuf {
        self.run_dir.join("node.log")
    }

    /// Apart from our terminal: what interrupts us is not meant for it. Also says how long the log is before it.
    fn start(&self) -> io::Result<(Child, u64)> {
        fs::create_dir_all(&self.run_dir)?;
        // Several may start one at once, of which the last ones only say that they came late.
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        if log.metadata()?.len() > LOG_BYTES {
            log.set_len(0)?;
        }
        let length = log.metadata()?.len();
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        let child = program::itself()
            .args(["node", "--standalone"])
            .envs(environment)
            .env_remove("CLAIMFS_KUBECONFIG")
            .env_remove("CLAIMFS_POD_UID")
            .env_remove("CLAIMFS_HTTP")
            .process_group(0)
            // It keeps nobody's folder busy.
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok((child, length))
    }

    fn failed(&self, code: Option<i32>, log_start: u64) -> Error {
        let log = self.log();
        let text = fs::read(&log).unwrap_or_default();
        let text = text.get(usize::try_from(log_start).unwrap_or(0)..).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let reason = text.split("\nerror: ").last().unwrap_or_default();
        let reason = reason.trim_start_matches("error: ").trim();
        let reason = if reason.is_empty() { "it says nothing" } else { reason };
        Error::Failed { reason: reason.to_owned(), log, code }
    }
}
