//! The tree: folders, and files of which every version is whole. Pure data, without a kernel or a disk.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use sha2::{Digest, Sha256};

use super::Refusal;

/// What the kernel knows a file or folder by: made of its path and of whom it is about, so that it is the
/// same after a restart and never that of something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

impl Inode {
    /// The folder that everything is in.
    pub const ROOT: Self = Self(1);

    fn below(self, step: &Step) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0.to_le_bytes());
        hasher.update(step.name.as_bytes());
        hasher.update([0]);
        hasher.update(step.identity.as_bytes());
        let digest: [u8; 32] = hasher.finalize().into();
        let first = digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte));
        // Neither nothing nor the root; and positive for those who think of it as signed.
        Self((first >> 1) | 0x100)
    }
}

/// One part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    name: String,
    identity: String,
}

impl Step {
    /// A name that always means the same.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), identity: String::new() }
    }

    /// A name that can mean one thing today and another tomorrow.
    #[must_use]
    pub fn of(name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self { name: name.into(), identity: identity.into() }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// One state of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Which one; later ones are higher. A file that is made again begins anew.
    pub generation: u64,
    /// Which one of all that ever were.
    pub id: u64,
    /// All of it.
    pub bytes: Box<[u8]>,
    /// Since when.
    pub modified: SystemTime,
}

/// What a reader has opened: one version of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The file.
    pub inode: Inode,
    /// The version, by its `id`.
    pub id: u64,
}

/// What something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// With so many folders in it.
    Folder {
        /// How many.
        folders: usize,
    },
    /// With this as its newest version.
    File(Arc<Version>),
    /// To here, from the folder that it is in.
    Link(Arc<Path>),
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// What has it.
    pub inode: Inode,
    /// Whether that is a folder or a file.
    pub kind: Kind,
}

#[derive(Debug)]
struct Node {
    parent: Inode,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Folder(BTreeMap<String, Inode>),
    File(Arc<Version>),
    Link(Arc<Path>),
}

/// A version that somebody has opened.
#[derive(Debug)]
struct Open {
    version: Arc<Version>,
    times: usize,
}

/// What a change means for those who have looked before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// The file has another version.
    Content(Inode),
    /// The name in this folder means something else, or nothing.
    Name(Inode, String),
    /// The name in this folder is new, as far as this process knows.
    NewName(Inode, String),
}

/// All folders and files.
#[derive(Debug)]
pub struct Tree {
    nodes: HashMap<Inode, Node>,
    open: HashMap<Handle, Open>,
    /// What a folder's time is.
    since: SystemTime,
}

impl Tree {
    /// With nothing but a root.
    #[must_use]
    pub fn new(since: SystemTime) -> Self {
        let root = Node { parent: Inode::ROOT, content: Content::Folder(BTreeMap::new()) };
        Self { nodes: HashMap::from([(Inode::ROOT, root)]), open: HashMap::new(), since }
    }

    /// The number that a path has, whether it is there or not.
    #[must_use]
    pub fn inode(path: &[Step]) -> Inode {
        path.iter().fold(Inode::ROOT, Inode::below)
    }

    /// Since when there are folders.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Makes the folders of a path.
    pub(super) fn make_folders(&mut self, path: &[Step]) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut parent = Inode::ROOT;
        for step in path {
            parent = self.attach(parent, step, Content::Folder(BTreeMap::new()), &mut changes);
        }
        changes
    }

    /// Makes a name another way to something, and its folders where they are not there.
    pub(super) fn link(&mut self, path: &[Step], target: PathBuf) -> Vec<Change> {
        let Some((last, folders)) = path.split_last() else { return Vec::new() };
        let mut changes = self.make_folders(folders);
        self.attach(Self::inode(folders), last, Content::Link(target.into()), &mut changes);
        changes
    }

    /// Gives a file its newest version, and makes it with its folders where it is not there.
    pub(super) fn put(&mut self, path: &[Step], version: Version) -> Vec<Change> {
        let Some((last, folders)) = path.split_last() else { return Vec::new() };
        let mut changes = self.make_folders(folders);
        let version = Arc::new(version);
        let inode =
            self.attach(Self::inode(folders), last, Content::File(Arc::clone(&version)), &mut changes);
        if let Some(Node { content: Content::File(current), .. }) = self.nodes.get_mut(&inode) {
            if current.id != version.id {
                changes.push(Change::Content(inode));
            }
            *current = version;
        }
        changes
    }

    /// Puts a node in its place, unless it is there; something else of its name goes.
    fn attach(&mut self, parent: Inode, step: &Step, content: Content, changes: &mut Vec<Change>) -> Inode {
        let inode = parent.below(step);
        if self.nodes.contains_key(&inode) {
            return inode;
        }
        let Some(Node { content: Content::Folder(names), .. }) = self.nodes.get_mut(&parent) else {
            // A file is never made into a folder: paths of both are ours, and differ in depth.
            return inode;
        };
        let before = names.insert(step.name.clone(), inode);
        self.nodes.insert(inode, Node { parent, content });
        match before {
            Some(before) => {
                changes.push(Change::Name(parent, step.name.clone()));
                self.detach(before, changes);
            }
            None => changes.push(Change::NewName(parent, step.name.clone())),
        }
        inode
    }

    /// Removes a file or a folder with all that is in it, and then folders above it that are empty, but for
    /// the first `stay` of the path. Others who have the name since are left alone.
    pub(super) fn remove(&mut self, path: &[Step], stay: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        for depth in (stay + 1..=path.len()).rev() {
            let (inode, parent) = (Self::inode(&path[..depth]), Self::inode(&path[..depth - 1]));
            let name = &path[depth - 1].name;
            let is_last = depth == path.len();
            let is_empty = self.nodes.get(&inode).is_none_or(|node| match &node.content {
                Content::Folder(names) => names.is_empty(),
                Content::File(_) | Content::Link(_) => false,
            });
            if !is_last && !is_empty {
                break;
            }
            if let Some(Node { content: Content::Folder(names), .. }) = self.nodes.get_mut(&parent)
                && names.get(name) == Some(&inode)
            {
                names.remove(name);
                changes.push(Change::Name(parent, name.clone()));
            }
            self.detach(inode, &mut changes);
        }
        changes
    }

    /// Forgets a node and all below it. What is open of it can still be read, and whoever waits for a newer
    /// version waits no longer.
    fn detach(&mut self, inode: Inode, changes: &mut Vec<Change>) {
        match self.nodes.remove(&inode).map(|node| node.content) {
            Some(Content::Folder(names)) => {
                for child in names.into_values() {
                    self.detach(child, changes);
                }
            }
            Some(Content::File(_)) => changes.push(Change::Content(inode)),
            Some(Content::Link(_)) | None => {}
        }
    }

    /// Every file.
    pub(super) fn files(&self) -> Vec<Inode> {
        let is_file = |node: &Node| matches!(node.content, Content::File(_));
        self.nodes.iter().filter(|(_, node)| is_file(node)).map(|(inode, _)| *inode).collect()
    }

    /// What has a name in a folder.
    pub fn lookup(&self, parent: Inode, name: &str) -> Result<Entry, Refusal> {
        let inode = *self.folder(parent)?.get(name).ok_or(Refusal::NotFound)?;
        Ok(Entry { name: name.to_owned(), inode, kind: self.kind(inode)? })
    }

    /// What something is.
    pub fn kind(&self, inode: Inode) -> Result<Kind, Refusal> {
        match &self.nodes.get(&inode).ok_or(Refusal::NotFound)?.content {
            Content::File(version) => Ok(Kind::File(Arc::clone(version))),
            Content::Link(target) => Ok(Kind::Link(Arc::clone(target))),
            Content::Folder(names) => {
                let is_folder = |inode: &&Inode| {
                    self.nodes.get(inode).is_some_and(|node| matches!(node.content, Content::Folder(_)))
                };
                Ok(Kind::Folder { folders: names.values().filter(is_folder).count() })
            }
        }
    }

    /// All names in a folder, sorted, after `.` and `..`.
    pub fn entries(&self, inode: Inode) -> Result<Vec<Entry>, Refusal> {
        let names = self.folder(inode)?;
        let parent = self.nodes.get(&inode).map_or(Inode::ROOT, |node| node.parent);
        let dots = [(".", inode), ("..", parent)].map(|(name, inode)| (name.to_owned(), inode));
        let all = dots.into_iter().chain(names.iter().map(|(name, inode)| (name.clone(), *inode)));
        all.map(|(name, inode)| Ok(Entry { name, inode, kind: self.kind(inode)? })).collect()
    }

    fn folder(&self, inode: Inode) -> Result<&BTreeMap<String, Inode>, Refusal> {
        match &self.nodes.get(&inode).ok_or(Refusal::NotFound)?.content {
            Content::Folder(names) => Ok(names),
            Content::File(_) | Content::Link(_) => Err(Refusal::NotAFolder),
        }
    }

    /// Opens the newest version of a file.
    pub fn open(&mut self, inode: Inode) -> Result<Handle, Refusal> {
        let version = match self.kind(inode)? {
            Kind::File(version) => version,
            Kind::Folder { .. } => return Err(Refusal::IsAFolder),
            Kind::Link(_) => return Err(Refusal::IsALink),
        };
        let handle = Handle { inode, id: version.id };
        self.open.entry(handle).or_insert_with(|| Open { version, times: 0 }).times += 1;
        Ok(handle)
    }

    /// The version that was opened, as far as it was opened here.
    #[must_use]
    pub fn opened(&self, handle: Handle) -> Option<Arc<Version>> {
        if let Some(open) = self.open.get(&handle) {
            return Some(Arc::clone(&open.version));
        }
        match self.kind(handle.inode) {
            Ok(Kind::File(version)) if version.id == handle.id => Some(version),
            _ => None,
        }
    }

    /// Whether a newer version is there than the one that was opened.
    #[must_use]
    pub fn is_old(&self, handle: Handle) -> bool {
        !matches!(self.kind(handle.inode), Ok(Kind::File(version)) if version.id == handle.id)
    }

    /// Lets go of what was opened; answers with it when nobody has it open any more.
    pub fn release(&mut self, handle: Handle) -> Option<Arc<Version>> {
        let open = self.open.get_mut(&handle)?;
        open.times -= 1;
        if open.times > 0 {
            return None;
        }
        self.open.remove(&handle).map(|open| open.version)
    }

    /// Whether somebody has a version open.
    #[must_use]
    pub fn is_open(&self, handle: Handle) -> bool {
        self.open.contains_key(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<Step> {
        text.split('/')
            .map(|part| {
                part.split_once('#')
                    .map_or_else(|| Step::new(part), |(name, identity)| Step::of(name, identity))
            })
            .collect()
    }

    fn version(generation: u64) -> Version {
        Version {
            generation,
            id: generation,
            bytes: format!("v{generation}").into_bytes().into(),
            modified: SystemTime::UNIX_EPOCH,
        }
    }

    fn names(tree: &Tree, folder: &str) -> Vec<String> {
        let folder = if folder.is_empty() { Inode::ROOT } else { Tree::inode(&path(folder)) };
        tree.entries(folder).unwrap().into_iter().skip(2).map(|entry| entry.name).collect()
    }

    #[test]
    fn an_open_file_stays_as_it_was_opened() {
        let mut tree = Tree::new(SystemTime::UNIX_EPOCH);
        tree.put(&path("a/b/c"), version(1));
        let file = Tree::inode(&path("a/b/c"));
        let old = tree.open(file).unwrap();
        assert!(!tree.is_old(old));
        assert_eq!(tree.put(&path("a/b/c"), version(2)), [Change::Content(file)]);
        let new = tree.open(file).unwrap();
        assert!(tree.is_old(old) && !tree.is_old(new));
        assert_eq!(&*tree.opened(old).unwrap().bytes, b"v1");
        tree.remove(&path("a/b/c"), 1);
        assert_eq!(&*tree.opened(old).unwrap().bytes, b"v1");
        assert_eq!(tree.open(file), Err(Refusal::NotFound));
        assert!(tree.release(old).is_some() && tree.release(new).is_some() && tree.release(new).is_none());
        assert_eq!(tree.opened(old), None);
    }

    #[test]
    fn folders_come_and_go_with_what_is_in_them() {
        let mut tree = Tree::new(SystemTime::UNIX_EPOCH);
        tree.make_folders(&path("a"));
        tree.put(&path("a/x/1"), version(1));
        tree.put(&path("a/x/2"), version(1));
        let names_of = |changes: Vec<Change>| {
            changes.into_iter().filter(|change| matches!(change, Change::Name(..))).count()
        };
        assert_eq!(names_of(tree.remove(&path("a/x/1"), 1)), 1);
        assert_eq!(names(&tree, "a/x"), ["2"]);
        assert_eq!(names_of(tree.remove(&path("a/x/2"), 1)), 2);
        assert_eq!((names(&tree, ""), names(&tree, "a")), (vec![String::from("a")], vec![]));
        tree.remove(&path("a/never"), 1);
        assert_eq!(tree.nodes.len(), 2, "nothing is forgotten to be forgotten");
    }

    #[test]
    fn a_name_that_means_something_else_has_another_number() {
        let mut tree = Tree::new(SystemTime::UNIX_EPOCH);
        tree.put(&path("a/c#u1/f"), version(1));
        let first = tree.lookup(Tree::inode(&path("a")), "c").unwrap().inode;
        let changes = tree.put(&path("a/c#u2/f"), version(1));
        let second = tree.lookup(Tree::inode(&path("a")), "c").unwrap().inode;
        assert_ne!(first, second);
        assert!(changes.contains(&Change::Name(Tree::inode(&path("a")), String::from("c"))));
        // The late end of the first does not touch the second.
        tree.remove(&path("a/c#u1"), 1);
        assert_eq!(tree.lookup(Tree::inode(&path("a")), "c").unwrap().inode, second);
    }
}
