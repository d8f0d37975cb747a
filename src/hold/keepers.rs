//! Who has a file open.

use std::{fs, io, path::Path};

/// What the processes are called that have it open, wherever they are; each name once.
pub(super) fn of(file: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for process in fs::read_dir("/proc")? {
        let process = process?.path();
        // Most of what is there are no processes, and some end while we look.
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else { continue };
        let has_it = |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target == file);
        if descriptors.flatten().any(has_it) {
            names.push(fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned());
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn whoever_has_it_open_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("x");
        fs::write(&file, "").unwrap();
        assert_eq!(of(&file).unwrap(), [""; 0]);
        let open = fs::File::open(&file).unwrap();
        let both = open.try_clone().unwrap();
        let start = |open| Command::new("cat").stdin(Stdio::piped()).stdout(open).spawn().unwrap();
        let mut children = [start(open), start(both)];
        // What other tests start just now has it as well, for a moment.
        assert_eq!(of(&file).unwrap().iter().filter(|name| *name == "cat").count(), 1);
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
