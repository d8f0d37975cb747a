//! Claims from a folder: one YAML file each, for a node without a cluster.
//!
//! What is in the folder is in memory, too; whoever changes one changes both. A file is written beside its place
//! and renamed, and both are on the disk before anybody is told: unlike what is prepared, a claim outlives a boot.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::resource::v1::ResourceClaim;
use nix::fcntl::Flock;

use super::{ClaimMetadata, ClaimObject, ClaimRef, Claims, Error};
use crate::{
    device::{ClaimUid, NameError, NodeName},
    lock,
    objects::{self, Objects},
};

/// The ending of the files' names; others are passed over.
const ENDING: &str = "yaml";

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file or the folder cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else gives these devices away.
    #[error("another claimfs has the claims in {}\nfix: end it; one beside it needs an --objects-dir of its own", .path.display())]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A file or the folder cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what we have written. Who has its devices cannot be told, so nothing is given away.
    #[error("{source}\nfix: it may hold devices; remove {} when nothing uses them any more", .path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// Why.
        source: objects::Error,
    },
    /// A file is about another claim than its name says, or about none.
    #[error("{}: it is not one claim with the UID that the file is named after\nfix: move it away, and make the claim with claimfs claim create", .path.display())]
    Stranger {
        /// The file.
        path: PathBuf,
    },
    /// A claim has a name that it cannot have.
    #[error("{}: {source}\nfix: move it away, and make the claim with claimfs claim create", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// Why.
        source: NameError,
    },
}

/// A claim and what identifies it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Which claim it is.
    pub claim: ClaimRef,
    /// All of it.
    pub object: ResourceClaim,
}

impl Stored {
    /// Checks that an object has everything that identifies a claim.
    pub fn new(object: ResourceClaim) -> Result<Self, NameError> {
        let metadata = &object.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let claim = ClaimRef {
            namespace: text(&metadata.namespace).parse()?,
            name: text(&metadata.name).parse()?,
            uid: text(&metadata.uid).parse()?,
        };
        Ok(Self { claim, object })
    }
}

/// All claims of a node without a cluster.
pub struct Folder {
    path: PathBuf,
    claims: Mutex<BTreeMap<ClaimUid, Arc<Stored>>>,
    /// Two who write would give a device to two.
    _lock: Flock<File>,
}

/// What a daemon that was killed has just started has its lock for a moment.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

fn take(path: &Path) -> Result<Flock<File>, FolderError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let taken = File::open(path).and_then(lock::try_take);
        match taken.map_err(|source| FolderError::Read { path: path.to_owned(), source })? {
            Ok(lock) => return Ok(lock),
            Err(_) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Err(_) => return Err(FolderError::Taken { path: path.to_owned() }),
        }
    }
}

impl Folder {
    /// Reads what is there, and makes the folder where there is none.
    pub fn open(path: PathBuf) -> Result<Self, FolderError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|source| FolderError::Write { path: path.clone(), source })?;
        let lock = take(&path)?;
        for file in listed(&path)?.into_iter().filter(|file| is_unfinished(file)) {
            fs::remove_file(&file).map_err(|source| FolderError::Write { path: file, source })?;
        }
        let mut claims = BTreeMap::new();
        for file in Self::files(&path)? {
            let stored = load(&file)?;
            claims.insert(stored.claim.uid.clone(), Arc::new(stored));
        }
        Ok(Self { path, claims: Mutex::new(claims), _lock: lock })
    }

    /// The files of all claims in a folder, also in one that somebody has open.
    pub fn files(path: &Path) -> Result<Vec<PathBuf>, FolderError> {
        Ok(listed(path)?.into_iter().filter(|file| !is_unfinished(file)).collect())
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Stored>> {
        self.claims().values().cloned().collect()
    }

    /// One of them.
    #[must_use]
    pub fn find(&self, claim: &ClaimUid) -> Option<Arc<Stored>> {
        self.claims().get(claim).cloned()
    }

    /// Writes a claim, in the place of what it was before.
    pub fn put(&self, stored: Stored) -> Result<(), FolderError> {
        let mut claims = self.claims();
        let uid = stored.claim.uid.clone();
        write(&self.path, &uid, &stored.object)?;
        claims.insert(uid, Arc::new(stored));
        Ok(())
    }

    /// There need not be one.
    pub fn remove(&self, claim: &ClaimUid) -> Result<(), FolderError> {
        let mut claims = self.claims();
        let path = self.path.join(format!("{claim}.{ENDING}"));
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(FolderError::Write { path, source });
            }
            _ => {}
        }
        claims.remove(claim);
        sync(&self.path).map_err(|source| FolderError::Write { path, source })
    }

    /// What is in it is whole at every moment, so a panic elsewhere does not spoil it.
    fn claims(&self) -> MutexGuard<'_, BTreeMap<ClaimUid, Arc<Stored>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims for Arc<Folder> {
    async fn get(&self, claim: &ClaimRef) -> Result<ClaimObject, Error> {
        let stored = self
            .all()
            .into_iter()
            .find(|stored| stored.claim.namespace == claim.namespace && stored.claim.name == claim.name);
        let stored = stored.ok_or_else(|| Error::NotFound { claim: claim.clone() })?;
        let metadata = ClaimMetadata {
            uid: stored.claim.uid.to_string(),
            annotations: stored.object.metadata.annotations.clone().unwrap_or_default(),
        };
        Ok(ClaimObject { metadata, status: stored.object.status.clone().unwrap_or_default() })
    }

    /// Nothing names a claim but the claim itself.
    async fn is_named(&self, _: &ClaimRef, _: &NodeName) -> Result<bool, Error> {
        Ok(false)
    }
}

/// All files that are about claims.
fn listed(path: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let read = |source| FolderError::Read { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(read)? {
        let file = entry.map_err(read)?.path();
        if file.extension().is_some_and(|ending| ending == ENDING) {
            files.push(file);
        }
    }
    Ok(files)
}

/// Whether it was written by somebody who did not live to give it its name.
fn is_unfinished(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn load(path: &Path) -> Result<Stored, FolderError> {
    let mut objects = Objects::default();
    objects.read(path).map_err(|source| FolderError::Object { path: path.to_owned(), source })?;
    let stranger = || FolderError::Stranger { path: path.to_owned() };
    let object = objects.claims.pop().filter(|_| objects.claims.is_empty()).ok_or_else(stranger)?;
    let stored = Stored::new(object).map_err(|source| FolderError::Name { path: path.to_owned(), source })?;
    let is_named_so = path.file_stem().is_some_and(|stem| stem == stored.claim.uid.as_str());
    is_named_so.then_some(stored).ok_or_else(stranger)
}

fn write(folder: &Path, claim: &ClaimUid, object: &ResourceClaim) -> Result<(), FolderError> {
    let path = folder.join(format!("{claim}.{ENDING}"));
    let hidden = folder.join(format!(".{claim}.{ENDING}"));
    let error = |source| FolderError::Write { path: path.clone(), source };
    let text = serde_saphyr::to_string(object).map_err(|invalid| error(io::Error::other(invalid)))?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&hidden).map_err(error)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&hidden, &path)).and_then(|()| sync(folder)).map_err(error)
}

/// What is in a folder is on the disk when the folder is.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    const UID: &str = "0f9e8d7c-1234-4abc-9def-001122334455";

    fn stored() -> Stored {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "train", "namespace": "default", "uid": UID, "annotations": {"a": "1.0", "b": "no"}},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "c", "count": 2}}],
                "config": [{"opaque": {"driver": "claimfs.dev", "parameters": {"env": {"A": "yes", "B": ": #"}}}}]}},
            "status": {"allocation": {"devices": {"results":
                [{"request": "gpu", "driver": "claimfs.dev", "pool": "n1", "device": "gpu-0", "consumedCapacity": {"shares": "1"}}]}}},
        });
        Stored::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn what_is_written_is_read_by_the_next_process() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("claims");
        let folder = Folder::open(path.clone()).unwrap();
        folder.put(stored()).unwrap();
        assert!(matches!(Folder::open(path.clone()), Err(FolderError::Taken { .. })));
        drop(folder);
        let again = Arc::new(Folder::open(path.clone()).unwrap());
        assert_eq!(*again.all()[0], stored());
        let object = again.get(&stored().claim).await.unwrap();
        assert_eq!(object.metadata.annotations["a"], "1.0");
        assert!(object.status.allocation.is_some());
        again.remove(&stored().claim.uid).unwrap();
        again.remove(&stored().claim.uid).unwrap();
        assert!(matches!(again.get(&stored().claim).await, Err(Error::NotFound { .. })));
        drop(again);
        assert!(Folder::open(path).unwrap().all().is_empty());
    }

    #[test]
    fn a_file_that_is_not_ours_is_named_and_one_that_was_never_finished_is_removed() {
        let place = TempDir::new().unwrap();
        let path = place.path().to_owned();
        fs::write(path.join(".x.yaml"), "half").unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        assert!(Folder::open(path.clone()).unwrap().all().is_empty());
        assert!(!path.join(".x.yaml").exists() && path.join("notes.txt").exists());
        for (name, text, expected) in [
            ("a.yaml", "a: [", "fix: it may hold devices"),
            ("a.yaml", "", "not one claim with the UID"),
            (
                "a.yaml",
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: ../x, namespace: d, uid: a}\nspec: {}",
                "claim name",
            ),
            (
                "b.yaml",
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: x, namespace: d, uid: a}\nspec: {}",
                "not one claim with the UID",
            ),
        ] {
            fs::write(path.join(name), text).unwrap();
            let error = Folder::open(path.clone()).err().unwrap().to_string();
            assert!(error.contains(expected) && error.contains(name), "{text}: {error}");
            fs::remove_file(path.join(name)).unwrap();
        }
    }
}
