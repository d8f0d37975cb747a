//! Probes: `/healthz` while the process works, `/readyz` once it is registered and its devices are published.

use std::net::{SocketAddr, TcpListener};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{kubelet::Registered, publish::Published};

/// What readiness depends on.
#[derive(Clone)]
pub struct Readiness {
    /// Whether the kubelet has accepted us.
    pub registered: watch::Receiver<Registered>,
    /// Whether the cluster knows our devices.
    pub published: watch::Receiver<Published>,
}

impl Readiness {
    /// What is still missing; nothing when ready.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        match (&*self.registered.borrow(), *self.published.borrow()) {
            (Registered::Yes, Published::Yes) => None,
            (Registered::Refused(reason), _) => {
                Some(format!("the kubelet refuses the registration: {reason}"))
            }
            (Registered::Waiting, _) => Some(String::from("the kubelet has not asked who we are yet")),
            (Registered::Yes, Published::Waiting) => Some(String::from("the devices are not published yet")),
        }
    }

    /// Waits until nothing is missing; for ever when it never is.
    pub async fn ready(mut self) {
        while self.missing().is_some() {
            tokio::select! {
                Ok(()) = self.registered.changed() => {}
                Ok(()) = self.published.changed() => {}
                else => std::future::pending().await,
            }
        }
    }
}

/// A little HTTP server.
pub struct Probes {
    listener: TcpListener,
    readiness: Readiness,
}

impl Probes {
    /// Listens on an address.
    pub fn bind(address: SocketAddr, readiness: Readiness) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, readiness })
    }

    /// Answers until the shutdown is asked for.
    pub async fn run(self, shutdown: CancellationToken) -> std::io::Result<()> {
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .with_state(self.readiness);
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
    }
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.missing() {
        None => (StatusCode::OK, String::from("ok\n")),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing + "\n"),
    }
}
