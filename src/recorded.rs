//! Recorded answers of the reference implementation, for tests. They are data of another project and not part of
//! this one: where they are not there, that is said and nothing is compared.

use std::{env, fs, path::PathBuf, process::Command};

/// A recorded file.
pub(crate) struct Recorded {
    /// Its name.
    pub(crate) name: String,
    /// One JSON object a line.
    pub(crate) text: String,
}

/// All files of one kind, from the folder that `CLAIMFS_CONFORMANCE` names.
pub(crate) fn recorded(prefix: &str) -> Vec<Recorded> {
    let folder = env::var_os("CLAIMFS_CONFORMANCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    );
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("NOT COMPARED WITH THE REFERENCE: {} is not there", folder.display());
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            let text = match name.strip_prefix(prefix)?.rsplit_once(".jsonl")?.1 {
                "" => fs::read(&path).unwrap(),
                ".gz" => Command::new("gzip").arg("-dc").arg(&path).output().unwrap().stdout,
                _ => return None,
            };
            Some(Recorded { name, text: String::from_utf8(text).unwrap() })
        })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(!files.is_empty(), "no file {prefix}*.jsonl in {}", folder.display());
    files
}
