//! A stand-in for the kubelet on its plugin sockets, for tests that need faults on demand.
//!
//! It does what kubelet 1.34 to 1.37 does there: watches `plugins_registry` with inotify, asks each
//! socket that appears who it is, takes the first of its versions that it knows, connects to the service
//! and tells the verdict; deregisters when the socket goes. What it does not do is decide: tests call
//! [`Plugin::prepare`] and the others when they want to, drop the call to cancel it, drop the plugin to
//! hang up, and stop and start the whole to restart it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
};

use claimfs::kubelet::api::{
    dra, health,
    registration::{InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient},
};
use inotify::{EventMask, Inotify, WatchMask};
use tokio::{sync::mpsc, task::JoinSet, time};
use tokio_stream::StreamExt;
use tonic::{
    Streaming,
    codegen::http::uri::{Authority, Uri},
    transport::{Channel, Endpoint},
};

use super::DEADLINE;

const GET_INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(5);
const BACK_OFF: Duration = Duration::from_millis(500);
const BACK_OFF_MAX: Duration = Duration::from_secs(122);

/// What a kubelet of some age knows, and how it judges.
#[derive(Clone)]
pub struct Behaviour {
    /// The DRA services that it speaks.
    pub versions: &'static [DraVersion],
    /// Refuses every registration with this text.
    pub refuse: Option<&'static str>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { versions: &[DraVersion::V1, DraVersion::V1beta1], refuse: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraVersion {
    V1,
    V1beta1,
}

impl DraVersion {
    const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAPlugin",
            Self::V1beta1 => "v1beta1.DRAPlugin",
        }
    }
}

/// What happened on the registry folder.
#[derive(Debug)]
pub enum Event {
    Registered(Plugin),
    /// An attempt failed; there will be another.
    Failed {
        socket: PathBuf,
        reason: String,
    },
    Deregistered {
        socket: PathBuf,
    },
}

pub struct Kubelet {
    events: mpsc::UnboundedReceiver<Event>,
    tasks: JoinSet<()>,
}

impl Kubelet {
    /// Starts on a kubelet folder; sockets that are there already are found, as after a restart.
    pub fn start(folder: &Path, behaviour: Behaviour) -> Self {
        let registry = folder.join("plugins_registry");
        fs::create_dir_all(&registry).unwrap();
        fs::create_dir_all(folder.join("plugins")).unwrap();
        let inotify = Inotify::init().unwrap();
        inotify.watches().add(&registry, WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE).unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(registry, inotify, behaviour, sender));
        Self { events, tasks }
    }

    /// The next thing that happens.
    pub async fn event(&mut self) -> Event {
        time::timeout(DEADLINE, self.events.recv())
            .await
            .expect("an event in time")
            .expect("the watcher runs")
    }

    /// Waits for the next registration, past failed attempts.
    pub async fn registered(&mut self) -> Plugin {
        loop {
            if let Event::Registered(plugin) = self.event().await {
                return plugin;
            }
        }
    }

    /// Ends it as a kubelet ends: its connections close, its memory is gone.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// One task a socket, which dies with its socket.
async fn watch(
    registry: PathBuf,
    inotify: Inotify,
    behaviour: Behaviour,
    events: mpsc::UnboundedSender<Event>,
) {
    let mut registrations: BTreeMap<PathBuf, JoinSet<()>> = BTreeMap::new();
    let start = |socket: PathBuf, registrations: &mut BTreeMap<PathBuf, JoinSet<()>>| {
        let hidden = socket.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let is_socket = fs::symlink_metadata(&socket).is_ok_and(|metadata| metadata.file_type().is_socket());
        if !hidden && is_socket {
            let mut task = JoinSet::new();
            task.spawn(register(socket.clone(), behaviour.clone(), events.clone()));
            registrations.insert(socket, task);
        }
    };
    let mut stream = inotify.into_event_stream([0; 4096]).unwrap();
    for entry in fs::read_dir(&registry).unwrap() {
        start(entry.unwrap().path(), &mut registrations);
    }
    while let Some(event) = stream.next().await {
        let event = event.unwrap();
        let Some(name) = event.name else { continue };
        let socket = registry.join(name);
        if registrations.remove(&socket).is_some() {
            let _ = events.send(Event::Deregistered { socket: socket.clone() });
        }
        if event.mask.intersects(EventMask::CREATE | EventMask::MOVED_TO) {
            start(socket, &mut registrations);
        }
    }
}

/// Tries until it succeeds, ever more slowly.
async fn register(socket: PathBuf, behaviour: Behaviour, events: mpsc::UnboundedSender<Event>) {
    let mut pause = BACK_OFF;
    loop {
        let event = match attempt(&socket, &behaviour).await {
            Ok(plugin) => Event::Registered(plugin),
            Err(reason) => Event::Failed { socket: socket.clone(), reason },
        };
        let done = matches!(event, Event::Registered(_));
        if events.send(event).is_err() || done {
            return;
        }
        time::sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF_MAX);
    }
}

async fn attempt(socket: &Path, behaviour: &Behaviour) -> Result<Plugin, String> {
    let channel = dial(socket, Some(kubelet_authority(socket)?)).await?;
    let mut client = RegistrationClient::new(channel);
    let info = time::timeout(GET_INFO, client.get_info(InfoRequest {}))
        .await
        .map_err(|_| String::from("GetInfo took longer than a second"))?
        .map_err(|status| format!("GetInfo: {status}"))?
        .into_inner();
    let verdict = match behaviour.refuse {
        Some(reason) => Err(reason.to_owned()),
        None => accept(info, behaviour).await,
    };
    let status = RegistrationStatus {
        plugin_registered: verdict.is_ok(),
        error: verdict.as_ref().err().cloned().unwrap_or_default(),
    };
    time::timeout(NOTIFY, client.notify_registration_status(status))
        .await
        .map_err(|_| String::from("NotifyRegistrationStatus took longer than five seconds"))?
        .map_err(|status| format!("NotifyRegistrationStatus: {status}"))?;
    verdict
}

/// The kubelet dials this socket by its bare path, which gRPC for Go escapes into the authority. What is
/// not an authority in HTTP never reaches a server that checks it.
fn kubelet_authority(socket: &Path) -> Result<Authority, String> {
    let escaped: String = socket.to_str().expect("a path of ours").replace('/', "%2F");
    escaped.parse().map_err(|error| format!("PROTOCOL_ERROR: the authority {escaped:?} is refused: {error}"))
}

async fn accept(info: PluginInfo, behaviour: &Behaviour) -> Result<Plugin, String> {
    if info.r#type != "DRAPlugin" {
        return Err(format!("no handler for plugins of type {:?}", info.r#type));
    }
    let endpoint = Path::new(&info.endpoint);
    if info.name.is_empty() || !endpoint.is_absolute() {
        return Err(format!("a plugin needs a name and an absolute endpoint: {info:?}"));
    }
    let known = |name: &String| behaviour.versions.iter().copied().find(|version| version.name() == name);
    let version = info
        .supported_versions
        .iter()
        .find_map(known)
        .ok_or_else(|| format!("none of the versions is supported: {:?}", info.supported_versions))?;
    let channel = dial(endpoint, None).await?;
    Ok(Plugin { info, version, channel })
}

async fn dial(socket: &Path, authority: Option<Authority>) -> Result<Channel, String> {
    let mut endpoint =
        Endpoint::try_from(format!("unix:{}", socket.display())).map_err(|error| error.to_string())?;
    if let Some(authority) = authority {
        let origin = Uri::builder().scheme("http").authority(authority).path_and_query("/").build();
        endpoint = endpoint.origin(origin.map_err(|error| error.to_string())?);
    }
    let dialled = time::timeout(Duration::from_secs(10), endpoint.connect()).await;
    dialled
        .map_err(|_| format!("dialling {} took too long", socket.display()))?
        .map_err(|error| format!("{error:?}"))
}

/// A registered plugin, over the kubelet's one connection to it.
#[derive(Debug, Clone)]
pub struct Plugin {
    pub info: PluginInfo,
    pub version: DraVersion,
    channel: Channel,
}

impl Plugin {
    /// The same plugin over another connection, as after the kubelet has hung up because nothing was to say.
    pub async fn reconnect(self) -> Self {
        let Self { info, version, channel } = self;
        drop(channel);
        let channel = dial(Path::new(&info.endpoint), None).await.unwrap();
        Self { info, version, channel }
    }
}

/// The devices of a claim, or why there are none.
pub type Prepared = BTreeMap<String, Result<Vec<dra::v1::Device>, String>>;
pub type Unprepared = BTreeMap<String, Result<(), String>>;

impl Plugin {
    /// `NodePrepareResources` in the version that was agreed on; dropping the future cancels the call.
    pub async fn prepare(&self, claims: &[dra::v1::Claim]) -> Result<Prepared, tonic::Status> {
        match self.version {
            DraVersion::V1 => {
                let request = dra::v1::NodePrepareResourcesRequest { claims: claims.to_vec() };
                let mut client = dra::v1::dra_plugin_client::DraPluginClient::new(self.channel.clone());
                let answer = client.node_prepare_resources(request).await?.into_inner();
                Ok(answer.claims.into_iter().map(|(uid, it)| (uid, verdict(it.devices, it.error))).collect())
            }
            DraVersion::V1beta1 => {
                let claims = claims.iter().map(older).collect();
                let request = dra::v1beta1::NodePrepareResourcesRequest { claims };
                let mut client = dra::v1beta1::dra_plugin_client::DraPluginClient::new(self.channel.clone());
                let answer = client.node_prepare_resources(request).await?.into_inner();
                let devices = |devices: Vec<dra::v1beta1::Device>| devices.into_iter().map(newer).collect();
                Ok(answer
                    .claims
                    .into_iter()
                    .map(|(uid, it)| (uid, verdict(devices(it.devices), it.error)))
                    .collect())
            }
        }
    }

    /// `NodeUnprepareResources` in the version that was agreed on.
    pub async fn unprepare(&self, claims: &[dra::v1::Claim]) -> Result<Unprepared, tonic::Status> {
        match self.version {
            DraVersion::V1 => {
                let request = dra::v1::NodeUnprepareResourcesRequest { claims: claims.to_vec() };
                let mut client = dra::v1::dra_plugin_client::DraPluginClient::new(self.channel.clone());
                let answer = client.node_unprepare_resources(request).await?.into_inner();
                Ok(answer.claims.into_iter().map(|(uid, it)| (uid, verdict((), it.error))).collect())
            }
            DraVersion::V1beta1 => {
                let claims = claims.iter().map(older).collect();
                let request = dra::v1beta1::NodeUnprepareResourcesRequest { claims };
                let mut client = dra::v1beta1::dra_plugin_client::DraPluginClient::new(self.channel.clone());
                let answer = client.node_unprepare_resources(request).await?.into_inner();
                Ok(answer.claims.into_iter().map(|(uid, it)| (uid, verdict((), it.error))).collect())
            }
        }
    }

    /// The health stream, as kubelet 1.37 opens it.
    pub async fn health(&self) -> Result<Streaming<health::v1::NodeWatchResourcesResponse>, tonic::Status> {
        let mut client =
            health::v1::dra_resource_health_client::DraResourceHealthClient::new(self.channel.clone());
        Ok(client.node_watch_resources(health::v1::NodeWatchResourcesRequest {}).await?.into_inner())
    }

    /// The health stream, as kubelet 1.36 opens it.
    pub async fn older_health(
        &self,
    ) -> Result<Streaming<health::v1alpha1::NodeWatchResourcesResponse>, tonic::Status> {
        let mut client =
            health::v1alpha1::dra_resource_health_client::DraResourceHealthClient::new(self.channel.clone());
        Ok(client.node_watch_resources(health::v1alpha1::NodeWatchResourcesRequest {}).await?.into_inner())
    }
}

fn verdict<T>(done: T, error: String) -> Result<T, String> {
    if error.is_empty() { Ok(done) } else { Err(error) }
}

fn older(claim: &dra::v1::Claim) -> dra::v1beta1::Claim {
    let dra::v1::Claim { namespace, uid, name } = claim.clone();
    dra::v1beta1::Claim { namespace, uid, name }
}

fn newer(device: dra::v1beta1::Device) -> dra::v1::Device {
    let dra::v1beta1::Device { request_names, pool_name, device_name, cdi_device_ids } = device;
    dra::v1::Device { request_names, pool_name, device_name, cdi_device_ids, share_id: None }
}
