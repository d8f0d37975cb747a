//! Prepare and unprepare, in both versions.

use std::{collections::HashMap, sync::Arc};

use futures::future::join_all;
use tonic::{Request, Response, Status};
use tracing::warn;

use super::{
    Late,
    api::dra::{v1, v1beta1},
};
use crate::{
    claims::{ClaimRef, Claims},
    device::NameError,
    prepare::PreparedDevice,
};

/// Answers the kubelet.
pub(super) struct DraService<C> {
    preparer: Late<C>,
}

impl<C> Clone for DraService<C> {
    fn clone(&self) -> Self {
        Self { preparer: Arc::clone(&self.preparer) }
    }
}

/// A claim as the kubelet names it.
struct Asked {
    namespace: String,
    name: String,
    uid: String,
}

impl TryFrom<&Asked> for ClaimRef {
    type Error = NameError;

    fn try_from(asked: &Asked) -> Result<Self, NameError> {
        Ok(Self { namespace: asked.namespace.parse()?, name: asked.name.parse()?, uid: asked.uid.parse()? })
    }
}

impl<C: Claims> DraService<C> {
    pub(super) fn new(preparer: Late<C>) -> Self {
        Self { preparer }
    }

    async fn prepare(&self, asked: Asked) -> Result<Vec<PreparedDevice>, String> {
        let claim = ClaimRef::try_from(&asked).map_err(|error| error.to_string())?;
        self.preparer.wait().await.prepare(claim).await.map_err(|error| {
            warn!(claim = %format_args!("{}/{}", asked.namespace, asked.name), uid = asked.uid, %error, "not prepared");
            error.to_string()
        })
    }

    /// Only the UID matters: what is gone needs no name.
    async fn unprepare(&self, asked: Asked) -> Result<(), String> {
        let uid = asked.uid.parse().map_err(|error: NameError| error.to_string())?;
        self.preparer.wait().await.unprepare(uid).await.map_err(|error| {
            warn!(claim = %format_args!("{}/{}", asked.namespace, asked.name), uid = asked.uid, %error, "not unprepared");
            error.to_string()
        })
    }
}

/// Both versions say the same in messages of different types.
macro_rules! serve {
    ($version:ident, $device:expr) => {
        #[tonic::async_trait]
        impl<C: Claims> $version::dra_plugin_server::DraPlugin for DraService<C> {
            async fn node_prepare_resources(
                &self,
                request: Request<$version::NodePrepareResourcesRequest>,
            ) -> Result<Response<$version::NodePrepareResourcesResponse>, Status> {
                let calls = request.into_inner().claims.into_iter().map(|claim| async move {
                    let $version::Claim { namespace, name, uid } = claim;
                    let outcome = self.prepare(Asked { namespace, name, uid: uid.clone() }).await;
                    let answer = match outcome {
                        Ok(devices) => $version::NodePrepareResourceResponse {
                            devices: devices.into_iter().map($device).collect(),
                            error: String::new(),
                        },
                        Err(error) => $version::NodePrepareResourceResponse { devices: Vec::new(), error },
                    };
                    (uid, answer)
                });
                let claims: HashMap<_, _> = join_all(calls).await.into_iter().collect();
                Ok(Response::new($version::NodePrepareResourcesResponse { claims }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$version::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$version::NodeUnprepareResourcesResponse>, Status> {
                let calls = request.into_inner().claims.into_iter().map(|claim| async move {
                    let $version::Claim { namespace, name, uid } = claim;
                    let error = self.unprepare(Asked { namespace, name, uid: uid.clone() }).await.err();
                    (uid, $version::NodeUnprepareResourceResponse { error: error.unwrap_or_default() })
                });
                let claims: HashMap<_, _> = join_all(calls).await.into_iter().collect();
                Ok(Response::new($version::NodeUnprepareResourcesResponse { claims }))
            }
        }
    };
}

serve!(v1, |device: PreparedDevice| v1::Device {
    request_names: vec![device.request.to_string()],
    pool_name: device.pool.to_string(),
    device_name: device.device.to_string(),
    cdi_device_ids: vec![device.cdi_id.to_string()],
    share_id: device.share.map(|share| share.0),
});
serve!(v1beta1, |device: PreparedDevice| v1beta1::Device {
    request_names: vec![device.request.to_string()],
    pool_name: device.pool.to_string(),
    device_name: device.device.to_string(),
    cdi_device_ids: vec![device.cdi_id.to_string()],
});
