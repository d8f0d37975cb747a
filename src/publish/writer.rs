//! Makes the slices in the cluster what they should be, and keeps them so.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt;
use k8s_openapi::{
    api::{
        core::v1::Node,
        resource::v1::{ResourceSlice, ResourceSliceSpec},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PostParams, Preconditions},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    plan::{Adopted, Echo, Existing, Write, plan},
    slices, wire,
};
use crate::{
    api_version::{ApiVersion, VersionError},
    device::{DriverName, NodeName},
    discover::Found,
};

/// Everything that one round may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Several changes at once are one.
const SETTLE: Duration = Duration::from_millis(100);
/// After a failure: twice as long each time.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Rounds that write: so many at once, and then one in so long a time, however much devices flap.
const BURST: u32 = 8;
const PACE: Duration = Duration::from_secs(3);

/// Why a round ended early. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No version to speak.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The API server refused, or could not be reached.
    #[error("{what}: {source}")]
    Api {
        /// What was tried.
        what: String,
        /// Why not.
        source: kube::Error,
    },
    /// The API server sent something that is no slice.
    #[error("slice {name} cannot be read: {source}")]
    Decode {
        /// The slice.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The API server did not answer.
    #[error("the API server did not answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

impl Error {
    fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        |source| Self::Api { what: what.into(), source }
    }
}

/// Whether the cluster knows the devices of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Not yet.
    Waiting,
    /// It did when last looked at.
    Yes,
}

/// What is published, and where.
pub struct Settings {
    /// Our driver.
    pub driver: DriverName,
    /// This node.
    pub node: NodeName,
}

/// Keeps the slices of a node up to date.
pub struct Publisher {
    client: Client,
    settings: Settings,
    inventory: watch::Receiver<Arc<Found>>,
    published: watch::Sender<Published>,
}

/// What is asked once and kept.
struct Cluster {
    version: ApiVersion,
    slices: Api<DynamicObject>,
    owner: OwnerReference,
}

impl Publisher {
    /// Will publish the inventory with a client.
    #[must_use]
    pub fn new(client: Client, settings: Settings, inventory: watch::Receiver<Arc<Found>>) -> Self {
        Self { client, settings, inventory, published: watch::Sender::new(Published::Waiting) }
    }

    /// Whether it is done: now, and every change.
    #[must_use]
    pub fn published(&self) -> watch::Receiver<Published> {
        self.published.subscribe()
    }

    /// Publishes until the shutdown is asked for. The slices stay: whoever comes next finds them.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut retry = RETRY;
        while !shutdown.is_cancelled() {
            let failure = tokio::select! {
                () = shutdown.cancelled() => return,
                failure = self.follow(&mut retry) => failure,
            };
            warn!(error = %failure, retry_ms = retry.as_millis(), "cannot publish the devices");
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = time::sleep(retry) => {}
            }
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// One round after the other, until one fails.
    async fn follow(&mut self, retry: &mut Duration) -> Error {
        let cluster = match bounded(self.connect()).await {
            Ok(cluster) => cluster,
            Err(error) => return error,
        };
        let selector = self.selector();
        let changes =
            watcher(cluster.slices.clone(), watcher::Config::default().fields(&selector)).default_backoff();
        let changes = changes.touched_objects();
        tokio::pin!(changes);
        let mut adopted = Adopted::default();
        let mut budget = Budget::new();
        loop {
            self.inventory.mark_unchanged();
            budget.wait().await;
            match bounded(self.round(&cluster, &mut adopted)).await {
                Ok(0) => {}
                Ok(_) => budget.spend(),
                Err(error) => return error,
            }
            self.published.send_replace(Published::Yes);
            *retry = RETRY;
            tokio::select! {
                Ok(()) = self.inventory.changed() => {}
                change = changes.try_next() => if let Err(error) = change {
                    // The watcher starts anew by itself; what was missed meanwhile is seen in the next round.
                    info!(%error, "watching the slices was interrupted");
                },
            }
            time::sleep(SETTLE).await;
        }
    }

    async fn connect(&self) -> Result<Cluster, Error> {
        let version = ApiVersion::discover(&self.client).await?;
        let node = Api::<Node>::all(self.client.clone()).get(self.settings.node.as_str()).await;
        let node = node.map_err(Error::api(format!("get node {}", self.settings.node)))?;
        let owner = OwnerReference {
            api_version: String::from("v1"),
            kind: String::from("Node"),
            name: node.name_any(),
            uid: node.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let resource = version.resource("ResourceSlice", "resourceslices");
        Ok(Cluster { version, slices: Api::all_with(self.client.clone(), &resource), owner })
    }

    fn selector(&self) -> String {
        format!("spec.driver={},spec.nodeName={}", self.settings.driver, self.settings.node)
    }

    /// Looks at what is there and writes what differs; answers with the number of writes.
    async fn round(&self, cluster: &Cluster, adopted: &mut Adopted) -> Result<usize, Error> {
        let present = cluster.slices.list(&ListParams::default().fields(&self.selector())).await;
        let present = present.map_err(Error::api("list the slices of this node"))?;
        let existing =
            present.items.into_iter().map(|slice| cluster.decode(slice)).collect::<Result<Vec<_>, _>>()?;
        let found = Arc::clone(&self.inventory.borrow());
        let desired = slices(&self.settings.driver, &self.settings.node, &found.devices);
        let writes = plan(&desired, &existing, adopted);
        let count = writes.len();
        for write in writes {
            cluster.write(write, adopted).await?;
        }
        if count > 0 {
            info!(devices = found.devices.len(), slices = desired.len(), writes = count, "published");
        }
        Ok(count)
    }
}

impl Cluster {
    async fn write(&self, write: Write, adopted: &mut Adopted) -> Result<(), Error> {
        let (index, sent, stored) = match write {
            Write::Delete(existing) => return self.delete(existing).await,
            Write::Update { existing, spec, index } => {
                let object = self.encode(
                    &spec,
                    json!({
                        "name": existing.name,
                        "resourceVersion": existing.resource_version,
                        "ownerReferences": [self.owner],
                    }),
                );
                let stored = self.slices.replace(&existing.name, &PostParams::default(), &object).await;
                let stored = stored.map_err(Error::api(format!("update slice {}", existing.name)))?;
                (index, spec, stored)
            }
            Write::Create { slice, index } => {
                let ResourceSlice { metadata, spec } = slice;
                let name = metadata.generate_name.unwrap_or_default();
                let object =
                    self.encode(&spec, json!({"generateName": name, "ownerReferences": [self.owner]}));
                let stored = self.slices.create(&PostParams::default(), &object).await;
                (index, spec, stored.map_err(Error::api(format!("create slice {name}")))?)
            }
        };
        let stored = self.decode(stored)?;
        if adopted.remember(index, &sent, &stored.spec) == Echo::Different {
            warn!(
                slice = stored.name,
                "the API server does not store all that was published; is a feature gate off there?"
            );
        }
        Ok(())
    }

    async fn delete(&self, existing: Existing) -> Result<(), Error> {
        let Existing { name, uid, resource_version, .. } = existing;
        let preconditions = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.slices.delete(&name, &parameters).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()).map_err(Error::api(format!("delete slice {name}"))),
        }
    }

    fn encode(&self, spec: &ResourceSliceSpec, metadata: serde_json::Value) -> DynamicObject {
        let spec = wire::encode(self.version, json!(spec));
        DynamicObject {
            types: Some(kube::core::TypeMeta {
                api_version: format!("resource.k8s.io/{}", self.version.as_str()),
                kind: String::from("ResourceSlice"),
            }),
            // Invariant: the metadata are made above, of known fields.
            metadata: serde_json::from_value(metadata).unwrap_or_default(),
            data: json!({"spec": spec}),
        }
    }

    fn decode(&self, mut slice: DynamicObject) -> Result<Existing, Error> {
        let name = slice.name_any();
        let spec = wire::decode(self.version, slice.data["spec"].take());
        let spec =
            serde_json::from_value(spec).map_err(|source| Error::Decode { name: name.clone(), source })?;
        let (uid, resource_version) =
            (slice.uid().unwrap_or_default(), slice.resource_version().unwrap_or_default());
        Ok(Existing { name, uid, resource_version, spec })
    }
}

async fn bounded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    time::timeout(TIMEOUT, work).await.unwrap_or(Err(Error::Timeout))
}

/// How many rounds may still write.
struct Budget {
    left: u32,
    since: time::Instant,
}

impl Budget {
    fn new() -> Self {
        Self { left: BURST, since: time::Instant::now() }
    }

    fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Waits until there is a round to spend.
    async fn wait(&mut self) {
        if self.left == 0 {
            time::sleep_until(self.since + PACE).await;
        }
        let earned = u32::try_from(self.since.elapsed().as_millis() / PACE.as_millis()).unwrap_or(BURST);
        if earned > 0 || self.left == BURST {
            self.left = (self.left + earned).min(BURST);
            self.since = time::Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn flapping_devices_are_written_at_a_bounded_pace() {
        let mut budget = Budget::new();
        let started = time::Instant::now();
        let mut rounds = 0;
        while started.elapsed() < Duration::from_secs(60) {
            budget.wait().await;
            budget.spend();
            rounds += 1;
        }
        assert!((20..=30).contains(&rounds), "{rounds} rounds in a minute");
    }
}
