//! What the rest of the daemon says to the file system: publish this, remove that.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, SystemTime},
};

use super::{Error, Handle, Inode, Kind, Mirror, Refusal, Step, Store, Tree, Version, tree::Change};

/// Whoever tells the kernel what has changed.
pub(super) struct Listener {
    pub(super) news: mpsc::Sender<News>,
    /// Whether the kernel can know names from one who served before.
    pub(super) before: Predecessor,
    /// How much of it the kernel has not been told yet.
    pub(super) untold: Arc<AtomicUsize>,
}

/// Whether a connection was served before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Predecessor {
    None,
    Some,
}

/// What the kernel is to be told, and by when somebody wants to know that it was.
pub(super) enum News {
    Change(Change),
    Told(mpsc::Sender<()>),
}

/// Whether others have the same version open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Nobody has it open any more.
    Last,
    /// Somebody has, or it was not opened here.
    NotLast,
}

/// Far longer than the kernel takes.
const TELL_WITHIN: Duration = Duration::from_secs(2);

/// The tree and its versions.
pub struct Live {
    tree: RwLock<Tree>,
    store: Store,
    /// Up to which version of a file somebody may have opened it before us.
    inherited: Mutex<HashMap<Inode, u64>>,
    changes: Mutex<Option<Listener>>,
    /// Where the same is as plain files, if it is.
    mirror: Option<Mirror>,
    /// Held while a version is made of the one before.
    publishing: Mutex<()>,
}

impl Live {
    /// With nothing in it, and the versions that others have left in the store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self::with(store, None)
    }

    /// The same, with a folder of plain files for those who cannot be served otherwise.
    #[must_use]
    pub fn mirrored(store: Store, mirror: Mirror) -> Self {
        Self::with(store, Some(mirror))
    }

    fn with(store: Store, mirror: Option<Mirror>) -> Self {
        Self {
            tree: RwLock::new(Tree::new(SystemTime::now())),
            store,
            inherited: Mutex::default(),
            changes: Mutex::default(),
            publishing: Mutex::default(),
            mirror,
        }
    }

    /// Makes a folder that stays.
    pub fn make_folder(&self, path: &[Step]) -> Result<(), Error> {
        if let Some(mirror) = &self.mirror {
            mirror.make_folder(path)?;
        }
        let changes = self.write().make_folders(path);
        self.tell(changes);
        Ok(())
    }

    /// Makes a name another way to something; where it is so already, nothing happens.
    pub fn link(&self, path: &[Step], target: PathBuf) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.publishing);
        if let Some(mirror) = &self.mirror {
            mirror.link(path, &target)?;
        }
        let changes = self.write().link(path, target);
        self.tell(changes);
        Ok(())
    }

    /// Makes a file what `make` says, given the number of the version. Where it is so already, nothing
    /// happens; otherwise it is the next version.
    pub fn publish(&self, path: &[Step], make: impl Fn(u64) -> Vec<u8>) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.publishing);
        let inode = Tree::inode(path);
        let newest = self.newest(inode)?;
        if let Some(newest) = newest.as_deref().filter(|newest| *make(newest.generation) == *newest.bytes) {
            if let Some(mirror) = &self.mirror {
                mirror.put_if_other(path, &newest.bytes)?;
            }
            let changes = self.write().put(path, newest.clone());
            self.tell(changes);
            return Ok(());
        }
        let generation = newest.as_ref().map_or(1, |newest| newest.generation + 1);
        let version = Version::now(generation, make(generation));
        // It is kept before anybody can open it.
        self.store.put(inode, &version)?;
        if let Some(mirror) = &self.mirror {
            mirror.put(path, &version.bytes)?;
        }
        let changes = self.write().put(path, version);
        if let Some(before) = newest {
            self.drop_unless_needed(inode, &before)?;
        }
        self.tell(changes);
        Ok(())
    }

    fn newest(&self, inode: Inode) -> Result<Option<Arc<Version>>, Error> {
        if let Ok(Kind::File(version)) = self.read().kind(inode) {
            return Ok(Some(version));
        }
        let inherited = self.store.inherit(inode)?;
        if let Some(version) = &inherited {
            lock(&self.inherited).insert(inode, version.generation);
        }
        Ok(inherited.map(Arc::new))
    }

    /// Removes a file or folder with all that is in it, and the folders above that it leaves empty, but for
    /// the first `stay` of the path.
    pub fn remove(&self, path: &[Step], stay: usize) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.publishing);
        if let Some(mirror) = &self.mirror {
            mirror.remove(path, stay)?;
        }
        let (files, changes) = {
            let mut tree = self.write();
            (files(&tree, Tree::inode(path)), tree.remove(path, stay))
        };
        self.tell(changes);
        for inode in files {
            lock(&self.inherited).remove(&inode);
            self.store.forget(inode)?;
        }
        Ok(())
    }

    /// Forgets versions of files that are not there any more.
    pub fn sweep(&self) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.publishing);
        self.store.retain(|inode| self.read().kind(inode).is_ok())?;
        let tree = self.read();
        let is_there = |path: &std::path::Path| {
            let steps = path.iter().filter_map(|name| name.to_str());
            let find = |folder, name: &str| Some(tree.lookup(folder?, name).ok()?.inode);
            steps.fold(Some(Inode::ROOT), find).is_some()
        };
        self.mirror.as_ref().map_or(Ok(()), |mirror| mirror.retain(is_there))
    }

    /// The newest version of a file.
    #[must_use]
    pub fn version(&self, path: &[Step]) -> Option<Arc<Version>> {
        match self.read().kind(Tree::inode(path)) {
            Ok(Kind::File(version)) => Some(version),
            _ => None,
        }
    }

    /// Where the versions of a file are kept.
    #[must_use]
    pub fn versions_of(&self, path: &[Step]) -> PathBuf {
        self.store.folder_of(Tree::inode(path))
    }

    /// What has a name in a folder.
    pub fn lookup(&self, parent: Inode, name: &str) -> Result<super::Entry, Refusal> {
        self.read().lookup(parent, name)
    }

    /// What something is, and since when there are folders.
    pub fn kind(&self, inode: Inode) -> Result<(Kind, SystemTime), Refusal> {
        let tree = self.read();
        Ok((tree.kind(inode)?, tree.since()))
    }

    /// All names in a folder.
    pub fn entries(&self, inode: Inode) -> Result<Vec<super::Entry>, Refusal> {
        self.read().entries(inode)
    }

    /// Opens the newest version of a file.
    pub fn open(&self, inode: Inode) -> Result<Handle, Refusal> {
        self.write().open(inode)
    }

    /// The version that was opened, by whomever.
    pub fn opened(&self, handle: Handle) -> Result<Arc<Version>, Refusal> {
        if let Some(version) = self.read().opened(handle) {
            return Ok(version);
        }
        match self.store.get(handle) {
            Ok(Some(version)) => Ok(Arc::new(version)),
            Ok(None) | Err(_) => Err(Refusal::Stale),
        }
    }

    /// Whether a newer version is there than the one that was opened.
    #[must_use]
    pub fn is_old(&self, handle: Handle) -> bool {
        self.read().is_old(handle)
    }

    /// Lets go of what was opened.
    pub fn release(&self, handle: Handle) -> Released {
        let Some(version) = self.write().release(handle) else { return Released::NotLast };
        if let Err(error) = self.drop_unless_needed(handle.inode, &version) {
            tracing::warn!(%error, "an old version of the metadata stays behind");
        }
        Released::Last
    }

    /// Where it is noted who waits for newer versions.
    pub(super) fn notes(&self) -> PathBuf {
        self.store.notes()
    }

    fn drop_unless_needed(&self, inode: Inode, version: &Version) -> Result<(), Error> {
        let is_inherited =
            lock(&self.inherited).get(&inode).is_some_and(|newest| version.generation <= *newest);
        let handle = Handle { inode, id: version.id };
        let tree = self.read();
        if is_inherited || tree.is_open(handle) || !tree.is_old(handle) {
            return Ok(());
        }
        self.store.remove(inode, version)
    }

    /// Where changes are told from now on; first of all that every file may have changed, because whoever
    /// listens has missed what came before.
    pub(super) fn tell_to(&self, listener: Listener) {
        *lock(&self.changes) = Some(listener);
        let all = self.read().files();
        self.tell(all.into_iter().map(Change::Content).collect());
    }

    fn tell(&self, changes: Vec<Change>) {
        let told = lock(&self.changes);
        let Some(Listener { news, before, untold }) = told.as_ref() else { return };
        for change in changes {
            // A name that nobody can know need not be forgotten.
            if *before == Predecessor::Some || !matches!(change, Change::NewName(..)) {
                untold.fetch_add(1, Ordering::Relaxed);
                // Whoever does not listen any more asks anew when it comes back.
                let _ = news.send(News::Change(change));
            }
        }
    }

    /// Waits until the kernel has been told all that was said so far: what it forgets after a file was looked
    /// up is not there to be mounted.
    pub fn settle(&self) {
        let (told, wait) = mpsc::channel();
        match &*lock(&self.changes) {
            // The kernel knows what those know who have told it.
            Some(Listener { news, untold, .. }) if untold.load(Ordering::Acquire) > 0 => {
                let _ = news.send(News::Told(told));
            }
            _ => return,
        }
        // Without an answer the next step fails by itself.
        let _ = wait.recv_timeout(TELL_WITHIN);
    }

    /// The tree is whole at every moment, so a panic elsewhere does not spoil it.
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every file below something, itself included.
fn files(tree: &Tree, inode: Inode) -> Vec<Inode> {
    match tree.kind(inode) {
        Ok(Kind::File(_)) => vec![inode],
        Ok(Kind::Folder { .. }) => {
            let entries = tree.entries(inode).unwrap_or_default();
            entries.iter().skip(2).flat_map(|entry| files(tree, entry.inode)).collect()
        }
        Ok(Kind::Link(_)) | Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn live(folder: &TempDir) -> Live {
        Live::new(Store::open(folder.path().join("versions")).unwrap())
    }

    fn path() -> Vec<Step> {
        ["a", "b"].map(Step::new).to_vec()
    }

    /// A document that has its own number in it.
    fn document(word: &str) -> impl Fn(u64) -> Vec<u8> {
        move |generation| format!("{word} {generation}").into_bytes()
    }

    fn versions(live: &Live, inode: Inode) -> Vec<u64> {
        let folder = std::fs::read_dir(live.store.folder_of(inode)).into_iter().flatten();
        let name =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut versions: Vec<u64> =
            folder.map(name).map(|name| name.split_once('.').unwrap().0.parse().unwrap()).collect();
        versions.sort_unstable();
        versions
    }

    fn text(live: &Live, handle: Handle) -> Result<String, Refusal> {
        Ok(String::from_utf8(live.opened(handle)?.bytes.to_vec()).unwrap())
    }

    #[test]
    fn only_a_change_is_a_new_version_also_after_a_restart() {
        let folder = TempDir::new().unwrap();
        let inode = Tree::inode(&path());
        for (word, expected) in [("x", "x 1"), ("x", "x 1"), ("y", "y 2"), ("y", "y 2"), ("x", "x 3")] {
            // Each time another process.
            let live = live(&folder);
            live.publish(&path(), document(word)).unwrap();
            live.publish(&path(), document(word)).unwrap();
            assert_eq!(text(&live, live.open(inode).unwrap()).unwrap(), expected);
        }
    }

    #[test]
    fn what_was_opened_is_read_to_the_end_whoever_serves() {
        let folder = TempDir::new().unwrap();
        let inode = Tree::inode(&path());
        let first = live(&folder);
        first.publish(&path(), document("a")).unwrap();
        let opened = first.open(inode).unwrap();
        let mut last = first;
        for restart in 0..3 {
            last = live(&folder);
            last.publish(&path(), document("a")).unwrap();
            for update in 0..10 {
                last.publish(&path(), document(&format!("{restart}{update}"))).unwrap();
            }
            assert_eq!(text(&last, opened).unwrap(), "a 1");
        }
        let kept = versions(&last, inode).len();
        assert!(kept <= 1 + super::super::store::INHERITED, "{kept} versions are kept");
        last.remove(&path(), 1).unwrap();
        assert_eq!(text(&last, opened), Err(Refusal::Stale));
        assert_eq!(versions(&last, inode), [0; 0]);
    }

    #[test]
    fn old_versions_go_with_their_last_reader() {
        let folder = TempDir::new().unwrap();
        let inode = Tree::inode(&path());
        let live = live(&folder);
        live.publish(&path(), document("a")).unwrap();
        let (one, two) = (live.open(inode).unwrap(), live.open(inode).unwrap());
        live.publish(&path(), document("b")).unwrap();
        live.publish(&path(), document("c")).unwrap();
        assert_eq!(versions(&live, inode), [1, 3]);
        live.release(one);
        assert_eq!(text(&live, two).unwrap(), "a 1");
        live.release(two);
        assert_eq!(versions(&live, inode), [3]);
        live.sweep().unwrap();
        assert_eq!(versions(&live, inode), [3]);
    }
}
