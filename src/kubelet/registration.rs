//! How we introduce ourselves to the kubelet.

use std::path::Path;

use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::{
    Registered,
    api::registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::Registration,
    },
};
use crate::device::DriverName;

/// What we speak. The kubelet takes the first that it knows, so the newest is first.
const VERSIONS: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

pub(super) struct Introduction {
    info: PluginInfo,
    verdict: watch::Sender<Registered>,
}

impl Introduction {
    pub(super) fn new(driver: &DriverName, service: &Path) -> Self {
        let info = PluginInfo {
            r#type: String::from("DRAPlugin"),
            name: driver.to_string(),
            endpoint: service.display().to_string(),
            supported_versions: VERSIONS.map(String::from).to_vec(),
        };
        Self { info, verdict: watch::Sender::new(Registered::Waiting) }
    }

    pub(super) fn verdict(&self) -> watch::Receiver<Registered> {
        self.verdict.subscribe()
    }
}

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        self.verdict.send_replace(if plugin_registered {
            info!("registered with the kubelet");
            Registered::Yes
        } else {
            warn!(error, "the kubelet refuses the registration and will ask again");
            Registered::Refused(error)
        });
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
