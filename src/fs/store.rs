//! Versions as small files that never change: `<file>/<generation>.<id>`. Whoever takes over reads on from them.
//!
//! A version is kept while it is the newest, while somebody is known to have it open, and when it was there
//! before this process: nobody knows who has opened it then. Of the last kind, each file keeps the newest
//! [`INHERITED`]; all go with the file.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};

use super::{Error, Handle, Inode, Version};

/// How many versions of a file are kept for those who have opened them before we came.
pub(super) const INHERITED: usize = 32;

/// The folder with one folder a file.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Uses a folder, and makes it where there is none.
    pub fn open(folder: PathBuf) -> Result<Self, Error> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder);
        made.map_err(|source| Error::Store { path: folder.clone(), source })?;
        Ok(Self { folder })
    }

    /// Where the versions of a file are.
    #[must_use]
    pub fn folder_of(&self, inode: Inode) -> PathBuf {
        self.folder.join(VersionName::folder(inode))
    }

    /// Where it is noted who waits for newer versions.
    pub(super) fn notes(&self) -> PathBuf {
        self.folder.with_extension("waiting")
    }

    fn file(&self, inode: Inode, name: VersionName) -> PathBuf {
        self.folder.join(name.path(inode))
    }

    /// Keeps a version. It is there as a whole or not at all.
    pub fn put(&self, inode: Inode, version: &Version) -> Result<(), Error> {
        let path = self.file(inode, VersionName::of(version));
        let folder = self.folder_of(inode);
        let temporary = folder.join(".tmp");
        let write = || {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            fs::write(&temporary, &version.bytes)?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|source| Error::Store { path: path.clone(), source })
    }

    /// A version that was kept.
    pub fn get(&self, handle: Handle) -> Result<Option<Version>, Error> {
        let name = self.names(handle.inode)?.into_iter().find(|name| name.id == handle.id);
        name.map_or(Ok(None), |name| self.read(handle.inode, name))
    }

    fn read(&self, inode: Inode, name: VersionName) -> Result<Option<Version>, Error> {
        let path = self.file(inode, name);
        let read = || {
            let modified = fs::metadata(&path)?.modified()?;
            let bytes = fs::read(&path)?.into();
            Ok::<_, io::Error>(Version { generation: name.generation, id: name.id, bytes, modified })
        };
        match read() {
            Ok(version) => Ok(Some(version)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Store { path, source }),
        }
    }

    /// The newest version of a file. Of the others, only as many stay as are kept for those before us.
    pub fn inherit(&self, inode: Inode) -> Result<Option<Version>, Error> {
        let mut names = self.names(inode)?;
        let Some(newest) = names.pop() else { return Ok(None) };
        let surplus = names.len().saturating_sub(INHERITED);
        for name in names.drain(..surplus) {
            self.remove_named(inode, name)?;
        }
        self.read(inode, newest)
    }

    /// The versions of a file that are kept, the newest last.
    fn names(&self, inode: Inode) -> Result<Vec<VersionName>, Error> {
        let mut names: Vec<VersionName> =
            list(&self.folder_of(inode))?.iter().filter_map(|name| VersionName::parse(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Lets go of a version; it need not be there.
    pub fn remove(&self, inode: Inode, version: &Version) -> Result<(), Error> {
        self.remove_named(inode, VersionName::of(version))
    }

    fn remove_named(&self, inode: Inode, name: VersionName) -> Result<(), Error> {
        let path = self.file(inode, name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Store { path, source }),
            _ => Ok(()),
        }
    }

    /// Lets go of a file.
    pub fn forget(&self, inode: Inode) -> Result<(), Error> {
        remove_all(&self.folder_of(inode))
    }

    /// Lets go of every file but these.
    pub fn retain(&self, keep: impl Fn(Inode) -> bool) -> Result<(), Error> {
        for name in list(&self.folder)? {
            let inode = u64::from_str_radix(&name, 16).ok().filter(|_| name.len() == 16).map(Inode);
            if inode.is_some_and(|inode| !keep(inode)) {
                remove_all(&self.folder.join(name))?;
            }
        }
        Ok(())
    }
}

/// What a version's file is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionName {
    generation: u64,
    id: u64,
}

impl VersionName {
    /// What a version is called.
    #[must_use]
    pub fn of(version: &Version) -> Self {
        Self { generation: version.generation, id: version.id }
    }

    /// Where the versions of a file are in the folder of all of them.
    #[must_use]
    pub fn folder(inode: Inode) -> PathBuf {
        PathBuf::from(format!("{:016x}", inode.0))
    }

    /// Where it is in the folder of all versions. Names are of one length: the newest is the last by name.
    #[must_use]
    pub fn path(self, inode: Inode) -> PathBuf {
        Self::folder(inode).join(format!("{:020}.{:016x}", self.generation, self.id))
    }

    fn parse(text: &str) -> Option<Self> {
        let (generation, id) = text.split_once('.')?;
        Some(Self { generation: generation.parse().ok()?, id: u64::from_str_radix(id, 16).ok()? })
    }
}

impl Version {
    /// From now on.
    #[must_use]
    pub fn now(generation: u64, bytes: Vec<u8>) -> Self {
        let modified = SystemTime::now();
        Self { generation, id: unique(modified), bytes: bytes.into(), modified }
    }
}

/// A number that no version has had, nor that of another process before us: the time, or the next one.
fn unique(now: SystemTime) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let next = |last: u64| Some(now.max(last + 1));
    // Invariant: the closure always answers with something.
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(now);
    now.max(last + 1)
}

fn list(folder: &Path) -> Result<Vec<String>, Error> {
    let error = |source| Error::Store { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(error)?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(error)
}

fn remove_all(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Store { path: folder.to_owned(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_newest_is_inherited_and_the_others_are_bounded() {
        let folder = TempDir::new().unwrap();
        let store = Store::open(folder.path().join("versions")).unwrap();
        let inode = Inode(0x123);
        let mut first = None;
        for generation in 1..=40 {
            let version = Version::now(generation, format!("v{generation}").into());
            store.put(inode, &version).unwrap();
            first.get_or_insert(version.id);
        }
        assert_eq!(&*store.inherit(inode).unwrap().unwrap().bytes, b"v40");
        let kept: Vec<u64> = store.names(inode).unwrap().iter().map(|name| name.generation).collect();
        assert_eq!(kept, (8..=40).collect::<Vec<u64>>());
        assert_eq!(store.get(Handle { inode, id: first.unwrap() }).unwrap(), None);
        store.put(Inode(0x456), &Version::now(1, vec![])).unwrap();
        store.retain(|one| one == inode).unwrap();
        assert_eq!(list(&folder.path().join("versions")).unwrap(), ["0000000000000123"]);
        store.forget(inode).unwrap();
        store.forget(inode).unwrap();
        assert_eq!(store.inherit(inode).unwrap(), None);
    }
}
