//! The health of devices, for as long as the kubelet watches.
//!
//! A device is as it is reported to be; one that a claim holds and that is gone is unhealthy. The kubelet
//! forgets what it is not told again within 30 seconds.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::Stream;
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::api::health::{v1, v1alpha1};
use crate::{
    device::{self, DeviceName, NodeName},
    discover::Found,
};

/// How often everything is said again.
const REPEAT: Duration = Duration::from_secs(10);
/// How long it is true without that.
const LEASE: Duration = Duration::from_secs(30);

/// Which devices claims hold now.
pub type HeldDevices = Arc<dyn Fn() -> Vec<DeviceName> + Send + Sync>;

/// What the kubelet is told about devices.
#[derive(Clone)]
pub struct Health {
    node: NodeName,
    inventory: watch::Receiver<Arc<Found>>,
    held: HeldDevices,
    shutdown: CancellationToken,
}

impl Health {
    /// Of the devices of a node.
    #[must_use]
    pub fn new(node: NodeName, inventory: watch::Receiver<Arc<Found>>, held: HeldDevices) -> Self {
        Self { node, inventory, held, shutdown: CancellationToken::new() }
    }

    /// Ends its streams with the shutdown, so that it does not wait for them.
    pub(super) fn until(self, shutdown: CancellationToken) -> Self {
        Self { shutdown, ..self }
    }

    fn conditions(&self) -> BTreeMap<DeviceName, device::Health> {
        let gone =
            || device::Health::Unhealthy { message: String::from("the device is gone from this node") };
        let held = (self.held)().into_iter().map(|device| (device, gone()));
        let found = Arc::clone(&self.inventory.borrow());
        let found =
            found.devices.values().map(|device| (device.name.clone(), device.condition.health.clone()));
        held.chain(found).collect()
    }

    /// Everything now, again when the inventory changes, and again before it expires.
    fn changes(mut self) -> impl Stream<Item = (NodeName, BTreeMap<DeviceName, device::Health>)> + Send {
        self.inventory.mark_changed();
        futures::stream::unfold(self, |mut health| async move {
            tokio::select! {
                () = health.shutdown.cancelled() => return None,
                _ = time::timeout(REPEAT, health.inventory.changed()) => {}
            }
            health.inventory.mark_unchanged();
            Some(((health.node.clone(), health.conditions()), health))
        })
    }
}

/// Both versions say the same in messages of different types.
macro_rules! serve {
    ($version:ident) => {
        #[tonic::async_trait]
        impl $version::dra_resource_health_server::DraResourceHealth for Health {
            type NodeWatchResourcesStream =
                Pin<Box<dyn Stream<Item = Result<$version::NodeWatchResourcesResponse, Status>> + Send>>;

            async fn node_watch_resources(
                &self,
                _: Request<$version::NodeWatchResourcesRequest>,
            ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
                let answers = futures::StreamExt::map(self.clone().changes(), |(node, conditions)| {
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    let device = |(device, health): (DeviceName, device::Health)| $version::DeviceHealth {
                        device: Some($version::DeviceIdentifier {
                            pool_name: node.to_string(),
                            device_name: String::from(device),
                        }),
                        health: match health {
                            device::Health::Healthy => $version::HealthStatus::Healthy.into(),
                            device::Health::Unhealthy { .. } => $version::HealthStatus::Unhealthy.into(),
                            device::Health::Unknown { .. } => $version::HealthStatus::Unknown.into(),
                        },
                        last_updated_time: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
                        health_check_timeout_seconds: i64::try_from(LEASE.as_secs()).unwrap_or(i64::MAX),
                        message: health.message().to_owned(),
                    };
                    let devices = conditions.into_iter().map(device).collect();
                    Ok($version::NodeWatchResourcesResponse { devices })
                });
                Ok(Response::new(Box::pin(answers)))
            }
        }
    };
}

serve!(v1);
serve!(v1alpha1);
