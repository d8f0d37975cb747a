//! The way to a cluster's API server: one connection, on which everything is asked at the same time.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{BoxError, ServiceExt, util::option_layer};

/// A connection on which nothing has come for so long is asked whether it is still one.
const ASK_AFTER: Duration = Duration::from_secs(15);
/// How long its answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long a new connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Why there is no way to the cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be used.
    #[error("cannot use the kubeconfig {}: {source}", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
    /// There is no file, and no service account.
    #[error("no kubeconfig is given, and this is no pod with a service account: {0}")]
    InCluster(#[from] InClusterError),
    /// What was given cannot be made into a client.
    #[error("cannot use the cluster's address or credentials: {0}")]
    Client(#[from] kube::Error),
}

/// How to reach a cluster: by a file, or in a pod by its service account.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let Some(path) = kubeconfig else { return Ok(Config::incluster()?) };
    let error = |source| Error::Kubeconfig { path: path.to_owned(), source };
    let file = Kubeconfig::read_from(path).map_err(error)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(error)
}

/// A client without a throttle of its own. It speaks HTTP/2 where the server does: kube's own speaks
/// HTTP/1.1, in which each request under way has a connection of its own.
pub fn connect(config: Config) -> Result<Client, Error> {
    if config.proxy_url.is_some() || config.tls_server_name.is_some() {
        // Rare, and kube knows how.
        return Ok(Client::try_from(config)?);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_WITHIN));
    let tls = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(ASK_AFTER)
        .http2_keep_alive_timeout(ANSWER_WITHIN)
        .http2_keep_alive_while_idle(true)
        .build(tls);
    let namespace = config.default_namespace.clone();
    // One type of error below the layer that may or may not be there.
    Ok(ClientBuilder::new(http.map_err(BoxError::from), namespace)
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .build())
}
