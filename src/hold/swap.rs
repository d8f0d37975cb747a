//! Anchors of plain files: a new version takes the place of the one before, in running containers, too.
//!
//! What is put over a mount reaches those who have mounted *it*, so a container follows the version that it
//! was started with: its *base*. Each version that was ever at the anchor stays as a base, under a name that
//! begins with a dot, and has the newest version over it. One that no container has any more is dropped.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    detached::Detached,
    mounts::{self, Mounted},
};

/// How many bases there may be before it is looked which are needed: that takes as long as some swaps.
const ROOM: usize = 8;
/// A runtime that has just taken a copy of the anchor shows it to nobody for a moment.
const UNSEEN: Duration = Duration::from_secs(1);

/// What containers mount for one request.
pub(super) struct Swap {
    path: PathBuf,
    bases: Vec<Base>,
    room: usize,
}

/// A version that containers may have been started with.
struct Base {
    path: PathBuf,
    cover: Cover,
    since: Instant,
}

/// What is over a base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    /// It is the newest itself.
    Nothing,
    /// The newest.
    Newest,
}

/// What the kernel can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swapping {
    /// Replace a version.
    Live,
    /// Show the first one.
    Once,
}

impl Swap {
    /// As another holder has left it.
    pub(super) fn found(path: PathBuf, table: &[Mounted]) -> Self {
        let hidden = hidden(&path);
        let mut bases: Vec<Base> = Vec::new();
        for mounted in table.iter().filter(|mounted| mounted.path.parent() == Some(&hidden)) {
            match bases.iter_mut().find(|base| base.path == mounted.path) {
                Some(base) => base.cover = Cover::Newest,
                None => bases.push(Base {
                    path: mounted.path.clone(),
                    cover: Cover::Nothing,
                    since: Instant::now(),
                }),
            }
        }
        bases.sort_by(|one, other| one.path.cmp(&other.path));
        Self { path, bases, room: ROOM }
    }

    /// Shows a version to all who have mounted the anchor, and to those who will.
    pub(super) fn show(&mut self, version: &Path, swapping: Swapping) -> io::Result<()> {
        let hidden = hidden(&self.path);
        // A copy of our own: what is mounted on a file goes with it, and its owner removes the other.
        let name = version.file_name().map(OsString::from).unwrap_or_default();
        let base = hidden.join(&name);
        let is_there = mounts::is_covered(&self.path)?;
        let newest = self.bases.last().filter(|base| base.cover == Cover::Nothing);
        if is_there && newest.is_some_and(|newest| newest.path == base) {
            return Ok(());
        }
        if is_there && swapping == Swapping::Once {
            return Ok(());
        }
        fs::create_dir_all(&hidden)?;
        if !base.exists() {
            let new = hidden.join(".new");
            fs::copy(version, &new)?;
            fs::rename(&new, &base)?;
        }
        let next = || Detached::read_only(&base);
        if is_there {
            next()?.put_beneath(&self.path)?;
            mounts::unmount(&self.path)?;
        } else {
            next()?.put_on(&self.path)?;
        }
        // After the anchor: whoever has taken a copy before that is reached now.
        for before in &mut self.bases {
            match before.cover {
                Cover::Nothing => next()?.put_on(&before.path)?,
                Cover::Newest => {
                    next()?.put_beneath(&before.path)?;
                    mounts::unmount(&before.path)?;
                }
            }
            before.cover = Cover::Newest;
        }
        mounts::bind(&self.path, &base)?;
        self.bases.push(Base { path: base, cover: Cover::Nothing, since: Instant::now() });
        if self.bases.len() > self.room {
            self.prune()?;
        }
        Ok(())
    }

    /// Drops the bases of which no container has a copy.
    fn prune(&mut self) -> io::Result<()> {
        let table = mounts::table()?;
        let followed = followed(&hidden(&self.path))?;
        let is_followed = |base: &Base| {
            let bottom = table.iter().find(|mounted| mounted.path == base.path);
            bottom.and_then(|mounted| mounted.peers).is_some_and(|group| followed.contains(&group))
        };
        let (needed, others): (Vec<Base>, Vec<Base>) = self.bases.drain(..).partition(|base| {
            base.cover == Cover::Nothing || base.since.elapsed() < UNSEEN || is_followed(base)
        });
        self.bases = needed;
        self.room = ROOM.max(2 * self.bases.len());
        others.iter().try_for_each(|base| remove(&base.path))
    }

    /// Takes all of it away.
    pub(super) fn end(self) -> io::Result<()> {
        mounts::unmount_all(&self.path)?;
        self.bases.iter().try_for_each(|base| remove(&base.path))
    }
}

fn remove(base: &Path) -> io::Result<()> {
    mounts::unmount_all(base)?;
    match fs::remove_file(base) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where the bases of an anchor are. The name of a request does not begin with a dot.
fn hidden(anchor: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(anchor.file_name().unwrap_or_default());
    anchor.with_file_name(name)
}

/// The groups that somebody on this machine follows, other than by a copy of our own folder.
fn followed(hidden: &Path) -> io::Result<HashSet<u64>> {
    let ours: PathBuf = hidden.iter().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect();
    let is_copy = |mounted: &Mounted| mounted.path.parent().is_some_and(|folder| folder.ends_with(&ours));
    let mut groups = HashSet::new();
    for (_, table) in mounts::all_tables()? {
        groups.extend(table.iter().filter(|mounted| !is_copy(mounted)).filter_map(|mounted| mounted.master));
    }
    Ok(groups)
}
