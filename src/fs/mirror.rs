//! The tree as plain files, for machines on which it cannot be served: each is replaced as a whole.

use std::{
    fs, io,
    os::unix::{self, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use super::{Error, Step};

/// A folder of plain files.
#[derive(Debug)]
pub struct Mirror {
    folder: PathBuf,
}

impl Mirror {
    /// Uses a folder, and makes it where there is none.
    pub fn open(folder: PathBuf) -> Result<Self, Error> {
        let mirror = Self { folder };
        mirror.make_folder(&[])?;
        Ok(mirror)
    }

    /// Removes everything but what is at these paths: another process may have left it.
    pub(super) fn retain(&self, is_wanted: impl Fn(&Path) -> bool) -> Result<(), Error> {
        self.doing(&[], |place| retain_below(place, Path::new(""), &is_wanted))
    }

    pub(super) fn make_folder(&self, path: &[Step]) -> Result<(), Error> {
        self.doing(path, |place| fs::create_dir_all(place))
    }

    pub(super) fn link(&self, path: &[Step], target: &Path) -> Result<(), Error> {
        self.doing(path, |place| replace(place, |new| unix::fs::symlink(target, new)))
    }

    pub(super) fn put(&self, path: &[Step], bytes: &[u8]) -> Result<(), Error> {
        self.doing(path, |place| {
            replace(place, |new| {
                fs::write(new, bytes)?;
                fs::set_permissions(new, fs::Permissions::from_mode(0o444))
            })
        })
    }

    /// Unless it is so already.
    pub(super) fn put_if_other(&self, path: &[Step], bytes: &[u8]) -> Result<(), Error> {
        let is_so = fs::read(self.place(path)).is_ok_and(|found| found == bytes);
        if is_so { Ok(()) } else { self.put(path, bytes) }
    }

    pub(super) fn remove(&self, path: &[Step], stay: usize) -> Result<(), Error> {
        self.doing(path, |place| {
            let removed = match fs::symlink_metadata(place) {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(place),
                Ok(_) => fs::remove_file(place),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // Those above go while they are empty.
            for folder in place.ancestors().skip(1).take(path.len().saturating_sub(stay + 1)) {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn place(&self, path: &[Step]) -> PathBuf {
        self.folder.join(path.iter().map(Step::name).collect::<PathBuf>())
    }

    fn doing(&self, path: &[Step], work: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Error> {
        let place = self.place(path);
        work(&place).map_err(|source| Error::Store { path: place, source })
    }
}

fn retain_below(place: &Path, path: &Path, is_wanted: &impl Fn(&Path) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(place.join(path))? {
        let entry = entry?;
        let (below, is_folder) = (path.join(entry.file_name()), entry.file_type()?.is_dir());
        match (is_wanted(&below), is_folder) {
            (true, true) => retain_below(place, &below, is_wanted)?,
            (true, false) => {}
            (false, true) => fs::remove_dir_all(entry.path())?,
            (false, false) => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Makes something under another name first: what is at the path is whole at every moment.
fn replace(place: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = place.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let new = folder.join(".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    make(&new)?;
    fs::rename(&new, place)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn steps(path: &str) -> Vec<Step> {
        path.split('/').map(Step::new).collect()
    }

    #[test]
    fn files_links_and_folders_come_and_go() {
        let folder = TempDir::new().unwrap();
        let place = |path: &str| folder.path().join(path);
        fs::create_dir_all(place("old/er")).unwrap();
        fs::write(place("oldest"), "").unwrap();
        let mirror = Mirror::open(folder.path().to_owned()).unwrap();
        mirror.retain(|path| path == Path::new("old")).unwrap();
        assert!(place("old").exists() && !place("old/er").exists() && !place("oldest").exists());
        mirror.make_folder(&steps("claims")).unwrap();
        mirror.put(&steps("by-uid/u/r/f"), b"1").unwrap();
        mirror.put(&steps("by-uid/u/r/f"), b"2").unwrap();
        mirror.put_if_other(&steps("by-uid/u/r/f"), b"2").unwrap();
        for _ in 0..2 {
            mirror.link(&steps("claims/ns/a"), Path::new("../../by-uid/u")).unwrap();
        }
        assert_eq!(fs::read_to_string(place("claims/ns/a/r/f")).unwrap(), "2");
        mirror.remove(&steps("claims/ns/a"), 1).unwrap();
        mirror.remove(&steps("by-uid/u"), 1).unwrap();
        mirror.remove(&steps("by-uid/u"), 1).unwrap();
        assert!(place("by-uid").exists() && place("claims").exists());
        assert!(!place("by-uid/u").exists() && !place("claims/ns").exists());
    }
}
