//! What is prepared, for the process that comes after us: one file a claim.
//!
//! The name of a file says how far its claim has come: `<uid>.preparing` before anybody can have been told
//! that it is prepared, `<uid>.json` after. So the second phase is a rename, and the first needs no care:
//! whatever is in such a file, its claim is undone.
//!
//! The files stand beside the sockets and the CDI specs in `/run` and carry the boot that they were written
//! in: a record of another boot describes nothing that still exists. So nothing waits for a disk here; a
//! power cut is a new boot. A checksum tells a record that is whole from one that is not.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tracing::{error, info};

use crate::{
    cdi::Spec,
    claims::{Allocation, ClaimRef},
    device::{ClaimUid, DeviceName, PodClaimName, Sharing},
    exhibit::Prepared,
};

/// The form of the files. A process of another form refuses to guess.
const VERSION: u32 = 1;

/// Endings of the files' names.
const BEGUN: &str = "preparing";
const PREPARED: &str = "json";
const CORRUPT: &str = "corrupt";

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or the folder cannot be written.
    #[error("cannot write the journal {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or the folder cannot be read.
    #[error("cannot read the journal {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What tells one boot of a machine from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(String);

impl BootId {
    /// Where the kernel tells it.
    pub const PATH: &str = "/proc/sys/kernel/random/boot_id";

    /// Reads it from a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Ok(Self(text.trim().to_owned()))
    }
}

/// What is prepared for a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) claim: ClaimRef,
    pub(super) allocations: Vec<Allocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pod_claim_name: Option<PodClaimName>,
    /// Of each allocation's device.
    sharing: Vec<Sharing>,
    pub(super) spec: Spec,
}

impl Record {
    pub(super) fn new(
        claim: ClaimRef,
        allocations: Vec<Allocation>,
        pod_claim_name: Option<PodClaimName>,
        sharing: Vec<Sharing>,
        spec: Spec,
    ) -> Self {
        Self { claim, allocations, pod_claim_name, sharing, spec }
    }

    /// Whether it is what this allocation asks for.
    pub(super) fn is_for(&self, claim: &ClaimRef, allocations: &[Allocation]) -> bool {
        self.claim == *claim && self.allocations == allocations
    }

    /// The devices that belong to the claim while it holds them; an administrator's do not.
    pub(super) fn owned(&self) -> impl Iterator<Item = (&DeviceName, Sharing)> {
        let devices = self.allocations.iter().zip(&self.sharing);
        devices
            .filter(|(allocation, _)| !allocation.admin_access)
            .map(|(allocation, &sharing)| (&allocation.device, sharing))
    }

    /// What is shown to containers.
    pub(super) fn shown(&self) -> Prepared {
        Prepared {
            claim: self.claim.clone(),
            pod_claim_name: self.pod_claim_name.clone(),
            allocations: self.allocations.clone(),
        }
    }

    pub(super) fn device_names(&self) -> String {
        let names: Vec<&str> = self.allocations.iter().map(|allocation| allocation.device.as_str()).collect();
        names.join(",")
    }
}

/// A record as it stands in its file.
#[derive(Serialize, Deserialize)]
struct Entry<R> {
    version: u32,
    boot: BootId,
    record: R,
}

#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    sha256: String,
    #[serde(borrow)]
    entry: &'a RawValue,
}

/// What the journal says at the start.
pub(super) struct Loaded {
    pub(super) prepared: Vec<Record>,
    /// Claims that nobody has been told of.
    pub(super) begun: Vec<ClaimUid>,
    /// Claims whose records cannot be read; they are kept aside.
    pub(super) unreadable: BTreeSet<ClaimUid>,
}

/// The folder with one file a claim.
pub struct Journal {
    folder: PathBuf,
    boot: BootId,
}

impl Journal {
    /// Uses a folder, and makes it where there is none.
    pub fn open(folder: PathBuf, boot: BootId) -> Result<Self, Error> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|source| Error::Write { path: folder.clone(), source })?;
        Ok(Self { folder, boot })
    }

    /// The first phase: from here on a crash is followed by an undoing.
    pub(super) fn begin(&self, record: &Record) -> Result<(), Error> {
        let path = self.file(&record.claim.uid, BEGUN);
        let error = |source: io::Error| Error::Write { path: path.clone(), source };
        let text = self.seal(record).map_err(|invalid| error(invalid.into()))?;
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path).and_then(|mut file| file.write_all(&text)).map_err(error)
    }

    /// The second phase: from here on a crash is followed by the same answer.
    pub(super) fn commit(&self, claim: &ClaimUid) -> Result<(), Error> {
        let path = self.file(claim, PREPARED);
        fs::rename(self.file(claim, BEGUN), &path).map_err(|source| Error::Write { path, source })
    }

    /// The second phase of a claim whose undoing has failed in between; most have it behind them.
    pub(super) fn commit_if_begun(&self, claim: &ClaimUid) -> Result<(), Error> {
        match self.commit(claim) {
            Err(Error::Write { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// There need not be one.
    pub(super) fn remove(&self, claim: &ClaimUid) -> Result<(), Error> {
        for extension in [BEGUN, CORRUPT, PREPARED] {
            let path = self.file(claim, extension);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Write { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Every record of this boot. Those of another are removed; what is not whole is kept aside.
    pub(super) fn load(&self) -> Result<Loaded, Error> {
        let read = |source| Error::Read { path: self.folder.clone(), source };
        let mut loaded = Loaded { prepared: Vec::new(), begun: Vec::new(), unreadable: BTreeSet::new() };
        for entry in fs::read_dir(&self.folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let claim = path.file_stem().and_then(|stem| stem.to_str()?.parse::<ClaimUid>().ok());
            let Some(claim) = claim else { continue };
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(PREPARED) => self.load_one(&path, claim, &mut loaded)?,
                Some(BEGUN) => loaded.begun.push(claim),
                Some(CORRUPT) => drop(loaded.unreadable.insert(claim)),
                _ => {}
            }
        }
        Ok(loaded)
    }

    fn load_one(&self, path: &Path, claim: ClaimUid, loaded: &mut Loaded) -> Result<(), Error> {
        let text = fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        match unseal(&text) {
            Ok(entry) if entry.boot != self.boot => {
                info!(claim = %entry.record.claim, "forgetting a claim of an earlier boot");
                remove(path)
            }
            Ok(entry) if entry.record.claim.uid == claim => {
                loaded.prepared.push(entry.record);
                Ok(())
            }
            other => {
                let reason = other.err().unwrap_or_else(|| String::from("it is about another claim"));
                let aside = path.with_extension(CORRUPT);
                error!(file = %path.display(), aside = %aside.display(), %claim, reason,
                    "a journal file cannot be read; it is kept aside, and its claim is forgotten until it is prepared again");
                loaded.unreadable.insert(claim);
                fs::rename(path, &aside).map_err(|source| Error::Write { path: aside, source })
            }
        }
    }

    fn file(&self, claim: &ClaimUid, extension: &str) -> PathBuf {
        self.folder.join(format!("{claim}.{extension}"))
    }

    fn seal(&self, record: &Record) -> serde_json::Result<Vec<u8>> {
        let entry = Entry { version: VERSION, boot: self.boot.clone(), record };
        let entry = RawValue::from_string(serde_json::to_string(&entry)?)?;
        let mut text = serde_json::to_vec(&Sealed { sha256: digest(entry.get()), entry: &entry })?;
        text.push(b'\n');
        Ok(text)
    }
}

/// As much of an entry as every version has.
#[derive(Deserialize)]
struct Form {
    version: u32,
}

fn unseal(text: &[u8]) -> Result<Entry<Record>, String> {
    let sealed: Sealed<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if digest(sealed.entry.get()) != sealed.sha256 {
        return Err(String::from("its checksum does not fit"));
    }
    let Form { version } = serde_json::from_str(sealed.entry.get()).map_err(|error| error.to_string())?;
    if version != VERSION {
        return Err(format!("it has version {version}, and this claimfs knows {VERSION}"));
    }
    serde_json::from_str(sealed.entry.get()).map_err(|error| error.to_string())
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(|source| Error::Write { path: path.to_owned(), source })
}
