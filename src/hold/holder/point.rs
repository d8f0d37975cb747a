//! Where the file system is mounted: by us and nobody else.

use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
};

use tracing::info;

use super::{
    super::{
        Error, Places,
        detached::Detached,
        mounts::{self, Mounted},
    },
    Holder,
};

impl Holder {
    pub(super) fn mount(&self) -> Result<OwnedFd, Error> {
        let point = &self.places.mount_point;
        let error = |source| Error::Mount { path: point.clone(), source };
        refuse_others(&self.places)?;
        mounts::unmount_fuse(point).map_err(error)?;
        fs::create_dir_all(point).map_err(error)?;
        let device = mounts::mount_fuse(point, self.places.run_dir()).map_err(error)?;
        info!(path = %point.display(), "mounted");
        Ok(device)
    }

    /// Puts the plain files of the tree where the file system would be.
    pub(super) fn expose(&self) -> Result<(), Error> {
        let point = &self.places.mount_point;
        let error = |source| Error::Mount { path: point.clone(), source };
        refuse_others(&self.places)?;
        mounts::unmount_fuse(point).map_err(error)?;
        fs::create_dir_all(point).map_err(error)?;
        // A runtime may live in another namespace, and must find the newest version there.
        mounts::share(&self.places.anchors).map_err(error)?;
        let tree = here(&self.places.tree).map_err(error)?;
        if here(point).map_err(error)? == tree {
            return Ok(());
        }
        Detached::read_only(&self.places.tree).and_then(|tree| tree.put_on(point)).map_err(error)?;
        info!(path = %point.display(), "the plain files are mounted");
        Ok(())
    }

    /// Leaves nothing that is mounted, and no way to ask.
    pub(super) fn take_away(&mut self) -> Result<(), Error> {
        let Places { mount_point: point, anchors, tree, socket, .. } = &self.places;
        let error = |source| Error::Mount { path: point.clone(), source };
        for claim in self.claims()? {
            self.anchors.drop_all_of(&anchors.join(claim.as_str()))?;
        }
        self.kept = None;
        if self.is_mounted()? {
            mounts::abort(point).and_then(|()| mounts::unmount_fuse(point)).map_err(error)?;
        } else if matches!((here(point), here(tree)), (Ok(one), Ok(other)) if one == other) {
            mounts::unmount(point).map_err(error)?;
        }
        mounts::unmount_all(anchors).map_err(error)?;
        // What is not there cannot be asked.
        let _ = fs::remove_file(socket);
        Ok(())
    }

    pub(super) fn is_mounted(&self) -> Result<bool, Error> {
        Ok(mounted(&self.places)?.is_some_and(|mounted| mounted.source == self.places.run_dir()))
    }
}

/// Refuses a place where the file system of another daemon is.
pub(in crate::hold) fn refuse_others(places: &Places) -> Result<(), Error> {
    match mounted(places)?.filter(|mounted| mounted.source != places.run_dir()) {
        None => Ok(()),
        Some(other) => Err(Error::Refused(format!(
            "{} is mounted by the daemon of {}: end that one, or give this one folders of its own (--mount-point, --cdi-dir) and another driver",
            places.mount_point.display(),
            other.source.display()
        ))),
    }
}

/// What of our kind is mounted on the mount point, by whomever.
pub(super) fn mounted(places: &Places) -> Result<Option<Mounted>, Error> {
    let point = &places.mount_point;
    let table = mounts::table().map_err(|source| Error::Mount { path: point.clone(), source })?;
    let is_there = |mounted: &Mounted| mounted.path == *point && mounted.kind == mounts::TYPE;
    Ok(table.into_iter().rev().find(is_there))
}

/// Which file or folder it is.
fn here(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}
