//! The kubelet's gRPC interfaces to plugins: decode, call one function, encode.
//!
//! [`Plugin::bind`] makes the two sockets, the service's before the registration's; [`Plugin::run`] serves
//! them. The kubelet finds the registration socket, asks who we are, connects to the service and tells its
//! verdict, which [`Plugin::registered`] shows.

pub mod api;
mod dra;
mod health;
mod registration;
mod socket;

use std::{path::PathBuf, sync::Arc};

use tokio::sync::{SetOnce, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

pub(crate) use self::socket::Listener;
use self::{
    api::{
        dra::{
            v1::dra_plugin_server::DraPluginServer as DraV1,
            v1beta1::dra_plugin_server::DraPluginServer as DraV1beta1,
        },
        health::{
            v1::dra_resource_health_server::DraResourceHealthServer as HealthV1,
            v1alpha1::dra_resource_health_server::DraResourceHealthServer as HealthV1alpha1,
        },
        registration::registration_server::RegistrationServer,
    },
    dra::DraService,
    registration::Introduction,
};
pub use self::{
    health::{Health, HeldDevices},
    socket::{Instance, Paths},
};
use crate::{claims::Claims, device::DriverName, prepare::Preparer};

/// Why the kubelet is not served (any more).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No name of a socket is short enough.
    #[error("the socket {} has a path of {} bytes, and the kernel takes at most 107; choose a shorter --kubelet-dir", .path.display(), .path.as_os_str().len())]
    Long {
        /// The shortest one.
        path: PathBuf,
    },
    /// A socket could not be made.
    #[error("cannot listen on {}: {source}", .path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A server ended by itself.
    #[error("serving {what} ended: {source}")]
    Serve {
        /// What it served.
        what: &'static str,
        /// Why.
        source: tonic::transport::Error,
    },
    /// A socket broke.
    #[error("{what}: its socket is broken: {source}")]
    Accept {
        /// What it served.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// Whether the kubelet has accepted us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// It has not asked yet.
    Waiting,
    /// It has.
    Yes,
    /// It has refused, for this reason; it asks again later.
    Refused(String),
}

/// Who prepares, once there is one: calls that come before wait for it.
pub type Late<C> = Arc<SetOnce<Arc<Preparer<C>>>>;

/// The driver as the kubelet sees it.
pub struct Plugin<C> {
    service: Listener,
    registration: Listener,
    introduction: Introduction,
    dra: DraService<C>,
    health: Health,
}

impl<C: Claims> Plugin<C> {
    /// Makes the sockets, in the place of those that an earlier process has left.
    pub fn bind(
        paths: &Paths,
        driver: &DriverName,
        preparer: Late<C>,
        health: Health,
    ) -> Result<Self, Error> {
        let service = Listener::bind(paths.service()?)?;
        let registration = Listener::bind(paths.registration()?)?;
        let introduction = Introduction::new(driver, service.path());
        Ok(Self { service, registration, introduction, dra: DraService::new(preparer), health })
    }

    /// The kubelet's verdict: the newest now, and every later one.
    #[must_use]
    pub fn registered(&self) -> watch::Receiver<Registered> {
        self.introduction.verdict()
    }

    /// Serves until the shutdown is asked for, and then answers the calls that are under way. The sockets go
    /// with it.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { service, registration, introduction, dra, health } = self;
        let health = health.until(shutdown.clone());
        let (calls, service_broken) = service.incoming();
        let (questions, registration_broken) = registration.incoming();
        // One connection carries all of it.
        let serve_service = Server::builder()
            .add_service(DraV1::new(dra.clone()))
            .add_service(DraV1beta1::new(dra))
            .add_service(HealthV1::new(health.clone()))
            .add_service(HealthV1alpha1::new(health))
            .serve_with_incoming_shutdown(calls, shutdown.clone().cancelled_owned());
        let serve_registration = Server::builder()
            .add_service(RegistrationServer::new(introduction))
            .serve_with_incoming_shutdown(questions, shutdown.cancelled_owned());
        let service = until_broken("the DRA service", serve_service, service_broken);
        let registration = until_broken("the registration", serve_registration, registration_broken);
        tokio::try_join!(service, registration).map(|((), ())| ())
    }
}

/// Serves until the server has ended, or has nothing left to serve.
pub(crate) async fn until_broken(
    what: &'static str,
    server: impl Future<Output = Result<(), tonic::transport::Error>>,
    broken: oneshot::Receiver<std::io::Error>,
) -> Result<(), Error> {
    tokio::select! {
        ended = server => ended.map_err(|source| Error::Serve { what, source }),
        Ok(source) = broken => Err(Error::Accept { what, source }),
    }
}
