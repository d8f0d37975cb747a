//! Mounts: made, found and removed without ever looking into the file system that is mounted.

use std::{
    collections::HashSet,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// What mount tables call it.
pub(super) const TYPE: &str = "fuse.claimfs";

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    /// Its number in this namespace.
    pub(super) id: u64,
    /// The number of its file system.
    pub(super) device: String,
    /// Which file or folder of its file system it shows.
    pub(super) root: PathBuf,
    /// Where it is.
    pub(super) path: PathBuf,
    /// What it is.
    pub(super) kind: String,
    /// What it is of: of ours, the run folder.
    pub(super) source: PathBuf,
    /// The group whose members share what is mounted on one of them.
    pub(super) peers: Option<u64>,
    /// The group that it follows.
    pub(super) master: Option<u64>,
}

/// Mounts the file system afresh; answers with the kernel's end of it.
pub(super) fn mount_fuse(point: &Path, run_dir: &Path) -> io::Result<OwnedFd> {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let flags = MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOEXEC
        | MsFlags::MS_NOATIME;
    mount(Some(run_dir), point, Some(TYPE), flags, Some(options.as_str()))?;
    // Copies of it are to have groups of their own.
    mount(None::<&str>, point, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>)?;
    Ok(device.into())
}

/// Ends the connection of what is mounted on a path, whoever still has it: all who wait are let go.
pub(super) fn abort(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_FORCE | MntFlags::UMOUNT_NOFOLLOW) {
        // In use: it goes when it is not, but nobody waits any more.
        Ok(()) | Err(nix::errno::Errno::EBUSY | nix::errno::Errno::EINVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Takes away the file system that is mounted on a path. What is in use goes when it is not.
pub(super) fn unmount_fuse(path: &Path) -> io::Result<()> {
    let is_one = |mounted: &&Mounted| mounted.path == path && mounted.kind == TYPE;
    for _ in 0..table()?.iter().filter(is_one).count() {
        unmount(path)?;
    }
    Ok(())
}

/// Takes everything away that is mounted on a path of ours; it may go by itself meanwhile.
pub(crate) fn unmount_all(path: &Path) -> io::Result<()> {
    while let Unmounted::One = unmount(path)? {}
    Ok(())
}

pub(super) enum Unmounted {
    One,
    Nothing,
}

/// The one that was mounted last.
pub(super) fn unmount(path: &Path) -> io::Result<Unmounted> {
    match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => Ok(Unmounted::One),
        Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => Ok(Unmounted::Nothing),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether anything is mounted on a file: then it is on another mount than its folder.
pub(super) fn is_covered(path: &Path) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match (mount_at(path), mount_at(folder)) {
        (Ok(file), Ok(folder)) => Ok(file != folder),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Without opening what is there: whoever serves it need not answer.
fn mount_at(path: &Path) -> io::Result<u64> {
    let place = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    mount_of(place.as_fd())
}

/// Makes a folder a mount whose copies in other namespaces follow it.
pub(super) fn share(folder: &Path) -> io::Result<()> {
    if table()?.iter().any(|mounted| mounted.path == folder) {
        return Ok(());
    }
    bind(folder, folder)?;
    for propagation in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
        mount(None::<&str>, folder, None::<&str>, propagation, None::<&str>)?;
    }
    Ok(())
}

/// Puts a file over a path, in a group of its own: whoever has mounted the path as a slave gets what is put
/// over it later.
pub(super) fn cover_first(path: &Path, by: BorrowedFd<'_>) -> io::Result<()> {
    bind(&through(by), path)?;
    if let Err(errno) = mount(None::<&str>, path, None::<&str>, MsFlags::MS_SHARED, None::<&str>) {
        unmount_all(path)?;
        return Err(errno.into());
    }
    Ok(())
}

/// Puts a file over one that is there. It is shared as the one below it is; to make it private for a moment
/// would cut it off from those who have just got it.
pub(super) fn cover(path: &Path, by: BorrowedFd<'_>) -> io::Result<()> {
    bind(&through(by), path)
}

fn through(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Makes a file or folder seen at another path, too.
pub(super) fn bind(from: &Path, to: &Path) -> io::Result<()> {
    Ok(mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

/// The mount that a descriptor is on.
pub(super) fn mount_of(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::Error::other("the kernel does not tell the mount of a descriptor"))
}

/// What is mounted, in the order in which it was.
pub(super) fn table() -> io::Result<Vec<Mounted>> {
    table_of(Path::new("/proc/self"))
}

/// What is mounted in a folder of which the path has no links, in the order in which it was.
pub(crate) fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(table()?.into_iter().map(|mounted| mounted.path).filter(|path| path.starts_with(folder)).collect())
}

/// What is mounted in each namespace of this machine, by a process that sees it.
pub(super) fn all_tables() -> io::Result<Vec<(PathBuf, Vec<Mounted>)>> {
    all_tables_in(Path::new("/proc"))
}

fn all_tables_in(processes: &Path) -> io::Result<Vec<(PathBuf, Vec<Mounted>)>> {
    let (mut namespaces, mut tables) = (HashSet::new(), Vec::new());
    for process in fs::read_dir(processes)? {
        let process = process?.path();
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
        if namespaces.contains(&namespace) {
            continue;
        }
        // One that ends while we look can tell nothing; another of its namespace can.
        let Ok(table) = table_of(&process) else { continue };
        namespaces.insert(namespace);
        tables.push((process, table));
    }
    Ok(tables)
}

fn table_of(process: &Path) -> io::Result<Vec<Mounted>> {
    // Others may call theirs what they like.
    Ok(parse(&String::from_utf8_lossy(&fs::read(process.join("mountinfo"))?)))
}

fn parse(text: &str) -> Vec<Mounted> {
    let line = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut fields = left.split(' ');
        let id = fields.next()?.parse().ok()?;
        let device = fields.nth(1)?.to_owned();
        let root = PathBuf::from(unescape(fields.next()?));
        let path = PathBuf::from(unescape(fields.next()?));
        let groups: Vec<&str> = fields.skip(1).collect();
        let group = |name: &str| {
            groups.iter().find_map(|group| group.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
        };
        let (peers, master) = (group("shared"), group("master"));
        let mut fields = right.split(' ');
        let kind = fields.next()?.to_owned();
        let source = PathBuf::from(unescape(fields.next()?));
        Some(Mounted { id, device, root, path, kind, source, peers, master })
    };
    text.lines().filter_map(line).collect()
}

/// White space is written in octal.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_as_it_is_written() {
        let table = parse(
            "36 35 98:0 /mnt1 /mnt/with\\040space rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
             40 35 0:55 / /run/x ro shared:5 - fuse.claimfs /run/claimfs ro,allow_other\nbroken\n",
        );
        let expected = [
            (36, "98:0", "/mnt1", "/mnt/with space", "ext3", "/dev/root", (None, Some(1))),
            (40, "0:55", "/", "/run/x", TYPE, "/run/claimfs", (Some(5), None)),
        ];
        let expected = expected.map(|(id, device, root, path, kind, source, (peers, master))| Mounted {
            id,
            device: device.to_owned(),
            root: root.into(),
            path: path.into(),
            kind: kind.to_owned(),
            source: source.into(),
            peers,
            master,
        });
        assert_eq!(table, expected);
    }

    #[test]
    fn a_process_that_ends_does_not_hide_its_namespace() {
        let processes = tempfile::TempDir::new().unwrap();
        for process in 1..=20 {
            let folder = processes.path().join(process.to_string());
            fs::create_dir_all(folder.join("ns")).unwrap();
            std::os::unix::fs::symlink("mnt:[1]", folder.join("ns/mnt")).unwrap();
            if process == 20 {
                fs::write(folder.join("mountinfo"), "40 35 0:55 / /run/x ro shared:5 - tmpfs tmpfs ro\n")
                    .unwrap();
            }
        }
        let tables = all_tables_in(processes.path()).unwrap();
        assert_eq!(tables.iter().map(|(_, table)| table.len()).collect::<Vec<_>>(), [1]);
    }
}
