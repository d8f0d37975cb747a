//! The folder in which container runtimes look for specs.
//!
//! Runtimes watch it with inotify and miss a file that does not get there by a rename within the folder, so
//! a spec is written beside its place and renamed. Each change makes them read the whole folder again, so
//! there is one small file a claim, written only when it differs and removed at once.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::Spec;
use crate::device::{ClaimUid, DriverName};

/// Why a spec is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be written.
    #[error("cannot write the CDI spec {}: {source}", .path.display())]
    Write {
        /// The spec.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be removed.
    #[error("cannot remove the CDI spec {}: {source}", .path.display())]
    Remove {
        /// The spec.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder could not be read.
    #[error("cannot read the CDI folder {}: {source}", .path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The file is new, or was something else.
    Written,
    /// It was so already.
    Unchanged,
}

/// The folder, and the files in it that belong to one driver.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    driver: DriverName,
}

impl Folder {
    /// Uses a folder, and makes it where there is none.
    pub fn open(path: &Path, driver: DriverName) -> Result<Self, Error> {
        let write = |source| Error::Write { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(write)?;
        Ok(Self { path: path.to_owned(), driver })
    }

    /// Puts the spec of a claim where runtimes find it.
    pub fn write(&self, claim: &ClaimUid, spec: &Spec) -> Result<Outcome, Error> {
        let path = self.file(claim);
        let error = |source| Error::Write { path: path.clone(), source };
        let mut text = serde_json::to_vec_pretty(spec).map_err(|invalid| error(invalid.into()))?;
        text.push(b'\n');
        if fs::read(&path).is_ok_and(|present| present == text) {
            return Ok(Outcome::Unchanged);
        }
        let temporary = self.temporary(claim);
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| {
            // Best effort: the folder may be the very thing that is broken, and a start removes what is left.
            let _ = fs::remove_file(&temporary);
            error(source)
        })?;
        Ok(Outcome::Written)
    }

    /// Removes the spec of a claim; there need not be one.
    pub fn remove(&self, claim: &ClaimUid) -> Result<(), Error> {
        remove(self.file(claim))
    }

    /// Removes what belongs to no claim of these: specs of claims that are gone, and files that were being
    /// written when we were killed. Touches nothing that is not named as ours. Answers with what it removed.
    pub fn retain(&self, keep: impl Fn(&ClaimUid) -> bool) -> Result<Vec<PathBuf>, Error> {
        let read = |source| Error::Read { path: self.path.clone(), source };
        let mut removed = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_orphan = match self.claim_of(name) {
                Some(File::Spec(claim)) => !keep(&claim),
                Some(File::Temporary) => true,
                None => false,
            };
            if is_orphan {
                remove(entry.path())?;
                removed.push(entry.path());
            }
        }
        Ok(removed)
    }

    /// Where the spec of a claim is.
    #[must_use]
    pub fn file(&self, claim: &ClaimUid) -> PathBuf {
        self.path.join(format!("{}-{claim}.json", self.driver))
    }

    /// Runtimes read `.json` and `.yaml` only.
    fn temporary(&self, claim: &ClaimUid) -> PathBuf {
        self.path.join(format!(".{}-{claim}.tmp", self.driver))
    }

    fn claim_of(&self, name: &str) -> Option<File> {
        let claim = |rest: &str| rest.strip_prefix(self.driver.as_str())?.strip_prefix('-')?.parse().ok();
        if let Some(rest) = name.strip_suffix(".json") {
            claim(rest).map(File::Spec)
        } else {
            let rest = name.strip_prefix('.')?.strip_suffix(".tmp")?;
            claim(rest).map(|_: ClaimUid| File::Temporary)
        }
    }
}

/// A file of ours.
enum File {
    Spec(ClaimUid),
    Temporary,
}

fn remove(path: PathBuf) -> Result<(), Error> {
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Remove { path, source }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use tempfile::TempDir;

    use super::*;
    use crate::cdi::{ContainerEdits, Device};

    fn spec(env: &str) -> Spec {
        let container_edits = ContainerEdits { env: vec![env.to_owned()], ..ContainerEdits::default() };
        Spec::new(&DriverName::default(), vec![Device { name: String::from("x"), container_edits }])
    }

    fn uid(text: &str) -> ClaimUid {
        text.parse().unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_already_so_is_not_written() {
        let place = TempDir::new().unwrap();
        let folder = Folder::open(&place.path().join("cdi"), DriverName::default()).unwrap();
        assert_eq!(folder.write(&uid("1"), &spec("A=1")).unwrap(), Outcome::Written);
        let first = fs::metadata(folder.file(&uid("1"))).unwrap();
        assert_eq!(first.mode() & 0o777, 0o644);
        assert_eq!(folder.write(&uid("1"), &spec("A=1")).unwrap(), Outcome::Unchanged);
        assert_eq!(fs::metadata(folder.file(&uid("1"))).unwrap().ino(), first.ino());
        assert_eq!(folder.write(&uid("1"), &spec("A=2")).unwrap(), Outcome::Written);
        folder.remove(&uid("1")).unwrap();
        folder.remove(&uid("1")).unwrap();
        assert_eq!(names(&place.path().join("cdi")), [""; 0]);
    }

    #[test]
    fn only_orphans_of_ours_are_removed() {
        let place = TempDir::new().unwrap();
        let folder = Folder::open(place.path(), DriverName::default()).unwrap();
        for claim in ["kept", "gone"] {
            folder.write(&uid(claim), &spec("A=1")).unwrap();
        }
        for name in [
            ".claimfs.dev-late.tmp",
            "nvidia.json",
            "claimfs.dev.json",
            "claimfs.dev-a_b.json",
            "claimfs.device-x.json",
        ] {
            fs::write(place.path().join(name), "{}").unwrap();
        }
        let removed = folder.retain(|claim| claim.as_str() == "kept").unwrap();
        assert_eq!(removed.len(), 2);
        assert_eq!(
            names(place.path()),
            [
                "claimfs.dev-a_b.json",
                "claimfs.dev-kept.json",
                "claimfs.dev.json",
                "claimfs.device-x.json",
                "nvidia.json"
            ]
        );
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let place = TempDir::new().unwrap();
        let folder = Folder::open(place.path(), DriverName::default()).unwrap();
        // A folder in place of the temporary file fails for root, too.
        fs::create_dir(place.path().join(".claimfs.dev-1.tmp")).unwrap();
        let error = folder.write(&uid("1"), &spec("A=1")).unwrap_err();
        assert!(error.to_string().contains("claimfs.dev-1.json: Is a directory"), "{error}");
    }
}
