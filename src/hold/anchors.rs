//! What containers mount: one path a request, over which its newest file is put.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs, io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use tracing::{info, warn};

use super::{
    Error, Places,
    detached::Detached,
    mounts::{self, Mounted},
    swap::{Swap, Swapping},
    unstarted::Unstarted,
};
use crate::{
    device::ClaimUid,
    fs::{Inode, VersionName},
    metadata,
};

/// More than anybody wants to read at once.
const MAX_UNHEALED: usize = 20;

/// All anchors, by path. They are read from the mount table once: it grows with every claim, and the kernel
/// takes as long for it as for everything else together.
pub(super) struct Anchors {
    served: BTreeMap<PathBuf, Served>,
    swapped: BTreeMap<PathBuf, Swap>,
    /// The numbers of file systems of ours that nobody serves any more.
    dead: BTreeSet<String>,
    swapping: Swapping,
}

/// A file of the file system that is mounted.
struct Served {
    /// The number of the file system that it is of.
    device: String,
    /// Which file it is, for its versions; unknown until its server has said so.
    inode: Option<Inode>,
}

impl Anchors {
    /// As another holder has left them.
    pub(super) fn found(places: &Places, swapping: Swapping) -> io::Result<Self> {
        fs::create_dir_all(&places.anchors)?;
        let table = mounts::table()?;
        let (mut served, mut swapped) = (BTreeMap::new(), BTreeMap::new());
        // Of several on one path the last is the one that is seen.
        for mounted in table.iter().filter(|mounted| is_anchor(&places.anchors, &mounted.path)) {
            let path = mounted.path.clone();
            if mounted.kind == mounts::TYPE {
                served.insert(path, Served { device: mounted.device.clone(), inode: None });
            } else if !served.contains_key(&path) {
                swapped.insert(path.clone(), Swap::found(path, &table));
            }
        }
        Ok(Self { served, swapped, dead: BTreeSet::new(), swapping })
    }

    /// Puts a file of the file system where containers mount it, unless it is there already. It must be one of
    /// what is mounted at `point`; that is seen without asking the file system.
    pub(super) fn put(
        &mut self,
        path: PathBuf,
        inode: Inode,
        file: BorrowedFd<'_>,
        point: &Mounted,
    ) -> Result<(), Error> {
        let error = |source| Error::Mount { path: path.clone(), source };
        if mounts::mount_of(file).map_err(error)? != point.id {
            return Err(Error::Refused(String::from("the file is not one of the file system")));
        }
        let there = match self.served.get(&path) {
            // Somebody else may have taken it away.
            Some(served) if mounts::is_covered(&path).map_err(error)? => Some(served.device.clone()),
            _ => None,
        };
        match there {
            Some(device) if device == point.device => {}
            Some(device) => {
                mounts::cover(&path, file).map_err(error)?;
                self.dead.insert(device);
            }
            None => {
                make_place(&path).map_err(error)?;
                mounts::cover_first(&path, file).map_err(error)?;
            }
        }
        let device = point.device.clone();
        self.served.insert(path, Served { device, inode: Some(inode) });
        Ok(())
    }

    /// Puts a version that is a plain file where containers mount it.
    pub(super) fn swap(&mut self, path: &Path, version: &Path) -> Result<(), Error> {
        let error = |source| Error::Mount { path: path.to_owned(), source };
        make_place(path).map_err(error)?;
        let swap = self.swapped.entry(path.to_owned()).or_insert_with(|| Swap::found(path.to_owned(), &[]));
        swap.show(version, self.swapping).map_err(error)
    }

    /// Takes away what a claim has.
    pub(super) fn drop_all_of(&mut self, folder: &Path) -> Result<(), Error> {
        let error = |source| Error::Mount { path: folder.to_owned(), source };
        for path in below(&self.served, folder) {
            mounts::unmount_all(&path).map_err(error)?;
            self.served.remove(&path);
        }
        for path in below(&self.swapped, folder) {
            if let Some(swap) = self.swapped.remove(&path) {
                swap.end().map_err(error)?;
            }
        }
        match fs::remove_dir_all(folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(error(source)),
            _ => Ok(()),
        }
    }

    /// Puts the last versions over files that nobody serves any more.
    pub(super) fn leave_last_versions(&mut self, versions: &Path) {
        for (path, served) in &mut self.served {
            let Some(inode) = served.inode else { continue };
            let cover =
                || Detached::read_only(&newest(&versions.join(VersionName::folder(inode)))?)?.put_on(path);
            match cover() {
                // It is of no file system that will be mounted again.
                Ok(()) => served.device.clear(),
                Err(error) => {
                    warn!(%error, path = %path.display(), "cannot leave the last version behind");
                }
            }
        }
    }

    /// Those of some claims whose files a process sees where containers look for them, in whichever namespace.
    pub(super) fn used(claims: &[ClaimUid]) -> io::Result<Vec<ClaimUid>> {
        let tables = mounts::all_tables()?;
        let is_used = |claim: &&ClaimUid| tables.iter().any(|(_, table)| shows(table, claim));
        Ok(claims.iter().filter(is_used).cloned().collect())
    }

    /// Ends containers of some claims that were made and that nobody will start: each has a process and a namespace of
    /// its own.
    pub(super) fn end_unstarted(claims: &[ClaimUid]) -> io::Result<Vec<ClaimUid>> {
        let mut ended = Vec::new();
        for (process, table) in mounts::all_tables()? {
            let Some(claim) = claims.iter().find(|claim| shows(&table, claim)) else { continue };
            if let Some(unstarted) = Unstarted::find(&process)? {
                info!(container = describe(&process), %claim, "ending a container that nobody starts");
                unstarted.kill()?;
                ended.push(claim.clone());
            }
        }
        Ok(ended)
    }

    /// Who has a file of a dead file system and was not reached by what was put over it.
    pub(super) fn unhealed(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        if self.dead.is_empty() {
            return Ok(found);
        }
        for (process, table) in mounts::all_tables()? {
            let tops: BTreeMap<&Path, &Mounted> =
                table.iter().map(|mounted| (mounted.path.as_path(), mounted)).collect();
            let is_dead =
                |mounted: &Mounted| mounted.kind == mounts::TYPE && self.dead.contains(&mounted.device);
            for mounted in tops.values().filter(|mounted| is_dead(mounted) && is_read(&mounted.path)) {
                found.push(format!("{}: {}", describe(&process), mounted.path.display()));
            }
        }
        found.truncate(MAX_UNHEALED);
        Ok(found)
    }
}

/// Whether a namespace has files of a claim where containers look for them.
fn shows(table: &[Mounted], claim: &ClaimUid) -> bool {
    let shows =
        |mounted: &Mounted| is_read(&mounted.path) && mounted.root.iter().any(|part| part == claim.as_str());
    table.iter().any(shows)
}

/// Whether it is where a container reads it: others have copies of everything that is mounted, and read none of it.
fn is_read(path: &Path) -> bool {
    path.to_string_lossy().ends_with(metadata::SUFFIX)
}

/// `ANCHORS/UID/REQUEST`; what begins with a dot is no request.
fn is_anchor(anchors: &Path, path: &Path) -> bool {
    let is_plain = |name: &std::ffi::OsStr| !name.as_encoded_bytes().starts_with(b".");
    path.parent().and_then(Path::parent) == Some(anchors) && path.file_name().is_some_and(is_plain)
}

fn make_place(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn below<T>(all: &BTreeMap<PathBuf, T>, folder: &Path) -> Vec<PathBuf> {
    let paths = all.range(folder.to_owned()..).map(|(path, _)| path);
    paths.take_while(|path| path.starts_with(folder)).cloned().collect()
}

/// The newest version in a folder: the last by name.
fn newest(folder: &Path) -> io::Result<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        // What begins with a dot was never finished.
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    let newest = names.into_iter().max().ok_or_else(|| io::Error::other("no version is kept"))?;
    Ok(folder.join(newest))
}

/// A process and its container, as far as its control group tells.
fn describe(process: &Path) -> String {
    let id = process.file_name().map(OsString::from).unwrap_or_default();
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let group = groups.lines().filter_map(|line| line.rsplit('/').next()).max_by_key(|name| name.len());
    match group {
        Some(group) if !group.is_empty() => format!("process {} ({group})", id.display()),
        _ => format!("process {}", id.display()),
    }
}
