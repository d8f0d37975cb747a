//! The sockets: what they are called, and who may speak on them.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::Stream;
use sha2::{Digest, Sha256};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::oneshot,
    time,
};
use tracing::warn;

use super::Error;
use crate::device::{DriverName, PodUid};

/// The longest path that the kernel takes for a socket.
const MAX_PATH: usize = 107;

/// What tells two processes of one driver on one node apart while one replaces the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instance {
    /// There is only one at a time.
    Only,
    /// One of several, by the UID of its pod.
    Pod(PodUid),
}

/// Where a driver's sockets are.
#[derive(Debug, Clone)]
pub struct Paths {
    kubelet: PathBuf,
    driver: DriverName,
    instance: Instance,
}

impl Paths {
    /// The sockets of a driver in the kubelet's folder.
    #[must_use]
    pub fn new(kubelet: PathBuf, driver: DriverName, instance: Instance) -> Self {
        Self { kubelet, driver, instance }
    }

    /// The service, as the kubelet is told.
    pub fn service(&self) -> Result<PathBuf, Error> {
        let folder = self.kubelet.join("plugins").join(self.driver.as_str());
        match &self.instance {
            Instance::Only => shortest([folder.join("dra.sock")]),
            Instance::Pod(uid) => shortest([
                folder.join(format!("dra-{uid}.sock")),
                folder.join(format!("{}.sock", hash(&[uid.as_str()], 8))),
                self.kubelet
                    .join("plugins")
                    .join(format!("{}.sock", hash(&[self.driver.as_str(), uid.as_str()], 8))),
            ]),
        }
    }

    /// The registration, as the kubelet finds it. The kubelet dials the bare path, which gRPC for Go escapes
    /// into the authority of its requests; only with an `@` in the name is that an authority in HTTP.
    pub fn registration(&self) -> Result<PathBuf, Error> {
        let folder = self.kubelet.join("plugins_registry");
        let driver = &self.driver;
        match &self.instance {
            Instance::Only => shortest([
                folder.join(format!("{driver}@reg.sock")),
                folder.join(format!("{}@reg.sock", hash(&[driver.as_str()], 8))),
            ]),
            Instance::Pod(uid) => shortest([
                folder.join(format!("{driver}-{uid}@reg.sock")),
                folder.join(format!("{driver}-{}@reg.sock", hash(&[uid.as_str()], 8))),
                folder.join(format!("{}@reg.sock", hash(&[driver.as_str(), uid.as_str()], 8))),
            ]),
        }
    }
}

/// The first that is short enough.
fn shortest<const N: usize>(paths: [PathBuf; N]) -> Result<PathBuf, Error> {
    let mut last = PathBuf::new();
    for path in paths {
        if path.as_os_str().len() <= MAX_PATH {
            return Ok(path);
        }
        last = path;
    }
    Err(Error::Long { path: last })
}

fn hash(parts: &[&str], bytes: usize) -> String {
    let digest = Sha256::digest(parts.join("\0"));
    digest[..bytes].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How long to wait for what passes.
const AGAIN: Duration = Duration::from_millis(100);

/// A socket that is there for as long as this value.
pub(crate) struct Listener {
    socket: UnixListener,
    file: SocketFile,
}

/// Removes the socket at the end: neither tokio nor tonic does.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already, with its folder.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens in the place of whatever an earlier process has left there. The socket appears at its path only
    /// when it listens, and only root can connect: the kubelet never meets a half-made one.
    pub(crate) fn bind(path: PathBuf) -> Result<Self, Error> {
        let error = |source| Error::Bind { path: path.clone(), source };
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(error)?;
        // Names that begin with a dot are passed over by the kubelet.
        let mut hidden = OsString::from(".");
        hidden.push(path.file_name().unwrap_or_default());
        let hidden = folder.join(hidden);
        let hidden = if hidden.as_os_str().len() <= MAX_PATH { hidden } else { folder.join(".s") };
        remove(&hidden).map_err(error)?;
        let socket = UnixListener::bind(&hidden).map_err(error)?;
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600)).map_err(error)?;
        fs::rename(&hidden, &path).map_err(error)?;
        Ok(Self { socket, file: SocketFile(path) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.0
    }

    /// Waits until somebody who may speak has connected.
    pub(crate) async fn knocked(&self) -> io::Result<()> {
        loop {
            let (stream, _) = self.socket.accept().await?;
            if may_speak(&stream)? {
                return Ok(());
            }
        }
    }

    /// The connections of those who may speak: root, and whoever we are. The file goes with the stream. A
    /// socket that is broken ends it, and says why on the other channel: tonic would ask it for ever.
    pub(crate) fn incoming(
        self,
    ) -> (impl Stream<Item = io::Result<UnixStream>> + Send, oneshot::Receiver<io::Error>) {
        let (broken, why) = oneshot::channel();
        let connections = futures::stream::unfold((self, broken), |(listener, broken)| async move {
            loop {
                let accepted = listener.socket.accept().await.and_then(|(stream, _)| {
                    let allowed = may_speak(&stream)?;
                    Ok(allowed.then_some(stream))
                });
                match accepted {
                    Ok(Some(stream)) => return Some((Ok(stream), (listener, broken))),
                    Ok(None) => {}
                    Err(error) if passes(&error) => {
                        warn!(%error, "cannot take a connection at the moment");
                        time::sleep(AGAIN).await;
                    }
                    Err(error) => {
                        // Nobody listens any more when everything ends.
                        let _ = broken.send(error);
                        return None;
                    }
                }
            }
        });
        (connections, why)
    }
}

/// Whether it is not the socket's fault: others have taken the descriptors or the memory, or the caller has
/// gone away.
fn passes(error: &io::Error) -> bool {
    use libc::{ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOTCONN};
    matches!(error.raw_os_error(), Some(ECONNABORTED | EMFILE | ENFILE | ENOBUFS | ENOMEM | ENOTCONN))
}

fn may_speak(stream: &UnixStream) -> io::Result<bool> {
    let peer = stream.peer_cred()?.uid();
    let allowed = peer == 0 || peer == nix::unistd::geteuid().as_raw();
    if !allowed {
        warn!(uid = peer, "refused a connection that is not root's");
    }
    Ok(allowed)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(driver: &str, instance: Instance) -> Paths {
        Paths::new("/var/lib/kubelet".into(), driver.parse().unwrap(), instance)
    }

    #[test]
    fn sockets_are_where_the_kubelet_looks() {
        let paths = paths("claimfs.dev", Instance::Only);
        assert_eq!(paths.service().unwrap(), Path::new("/var/lib/kubelet/plugins/claimfs.dev/dra.sock"));
        assert_eq!(
            paths.registration().unwrap(),
            Path::new("/var/lib/kubelet/plugins_registry/claimfs.dev@reg.sock")
        );
    }

    #[test]
    fn long_names_are_shortened_and_stay_apart() {
        let uid = "0f9e8d7c-1234-4abc-9def-001122334455";
        let other = "0f9e8d7c-1234-4abc-9def-001122334456";
        let long = format!("{}.{}", "a".repeat(31), "b".repeat(31));
        for driver in ["claimfs.dev", &long] {
            let of = |uid: &str| paths(driver, Instance::Pod(uid.parse().unwrap()));
            for paths in [of(uid), of(other), paths(driver, Instance::Only)] {
                let registration = paths.registration().unwrap();
                assert!(registration.to_str().unwrap().ends_with("@reg.sock"));
                assert!(registration.as_os_str().len() <= MAX_PATH);
                assert!(paths.service().unwrap().as_os_str().len() <= MAX_PATH);
            }
            assert_ne!(of(uid).registration().unwrap(), of(other).registration().unwrap());
            assert_ne!(of(uid).service().unwrap(), of(other).service().unwrap());
        }
        let deep =
            Paths::new(PathBuf::from("/").join("d".repeat(100)), long.parse().unwrap(), Instance::Only);
        assert!(deep.service().unwrap_err().to_string().contains("choose a shorter --kubelet-dir"));
    }
}
