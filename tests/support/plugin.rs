//! The smallest plugin there is: registers, and prepares every claim with nothing. It shows that the
//! stand-in and the real kubelet agree about the sockets.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use claimfs::kubelet::api::{
    dra::v1::{
        NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
        NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
        dra_plugin_server::{DraPlugin, DraPluginServer},
    },
    registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
};
use tokio::{net::UnixListener, sync::mpsc, task::JoinSet, time};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::DEADLINE;

pub struct RunningPlugin {
    pub registration_socket: PathBuf,
    verdicts: mpsc::UnboundedReceiver<RegistrationStatus>,
    _servers: JoinSet<()>,
}

impl RunningPlugin {
    /// Serves on a kubelet folder, at a registration socket of the given file name.
    pub fn start(folder: &Path, driver: &str, registration_socket: &str) -> Self {
        let service = folder.join("plugins").join(driver).join("dra.sock");
        let registration_socket = folder.join("plugins_registry").join(registration_socket);
        for socket in [&service, &registration_socket] {
            fs::create_dir_all(socket.parent().unwrap()).unwrap();
        }
        let (sender, verdicts) = mpsc::unbounded_channel();
        let info = PluginInfo {
            r#type: String::from("DRAPlugin"),
            name: driver.to_owned(),
            endpoint: service.to_str().unwrap().to_owned(),
            supported_versions: vec![String::from("v1.DRAPlugin")],
        };
        let mut servers = JoinSet::new();
        // An earlier one may have left it.
        let _ = fs::remove_file(&service);
        let listener = UnixListenerStream::new(UnixListener::bind(&service).unwrap());
        let server = Server::builder().add_service(DraPluginServer::new(Nothing));
        servers.spawn(async move { server.serve_with_incoming(listener).await.unwrap() });
        let listener = UnixListenerStream::new(UnixListener::bind(&registration_socket).unwrap());
        let server =
            Server::builder().add_service(RegistrationServer::new(Introduction { info, verdicts: sender }));
        servers.spawn(async move { server.serve_with_incoming(listener).await.unwrap() });
        Self { registration_socket, verdicts, _servers: servers }
    }

    /// The kubelet's next verdict.
    pub async fn verdict(&mut self) -> RegistrationStatus {
        time::timeout(DEADLINE, self.verdicts.recv())
            .await
            .expect("a verdict in time")
            .expect("the server runs")
    }
}

impl Drop for RunningPlugin {
    fn drop(&mut self) {
        // The kubelet deregisters a plugin whose socket goes.
        let _ = fs::remove_file(&self.registration_socket);
    }
}

struct Introduction {
    info: PluginInfo,
    verdicts: mpsc::UnboundedSender<RegistrationStatus>,
}

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        verdict: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.verdicts.send(verdict.into_inner()).map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

struct Nothing;

#[tonic::async_trait]
impl DraPlugin for Nothing {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter();
        let claims: HashMap<_, _> =
            claims.map(|claim| (claim.uid, NodePrepareResourceResponse::default())).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter();
        let claims = claims.map(|claim| (claim.uid, NodeUnprepareResourceResponse::default())).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
