//! The kernel's questions: decode, ask the tree, encode.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, PollEvents, PollFlags, PollNotifier,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll, ReplyXattr, Request,
};

use tracing::info;

use super::{Entry, Handle, Inode, Kind, Live, Refusal, live::Released, waiting::Waiting};

/// Until the kernel is told otherwise, which it is at every change.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of a file's version, for those who do not want to read it.
const GENERATION: &str = "user.claimfs.generation";
const BLOCK: u32 = 512;

/// What fuser calls.
pub(super) struct Adapter {
    pub(super) live: Arc<Live>,
    pub(super) waiting: Arc<Waiting>,
}

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Self::ENOENT,
            Refusal::NotAFolder => Self::ENOTDIR,
            Refusal::IsAFolder => Self::EISDIR,
            Refusal::IsALink => Self::ELOOP,
            // Whoever is told so about a copy reads by itself.
            Refusal::NotALink | Refusal::Shared => Self::EINVAL,
            Refusal::ReadOnly => Self::EROFS,
            Refusal::Stale => Self::ESTALE,
            Refusal::NoAttribute => Self::NO_XATTR,
            Refusal::Range => Self::ERANGE,
        }
    }
}

fn attributes(inode: Inode, kind: &Kind, since: SystemTime) -> FileAttr {
    let (file_type, size, permissions, links, time) = match kind {
        Kind::Folder { folders } => {
            (FileType::Directory, 0, 0o755, u32::try_from(2 + folders).unwrap_or(u32::MAX), since)
        }
        Kind::File(version) => {
            (FileType::RegularFile, version.bytes.len() as u64, 0o444, 1, version.modified)
        }
        Kind::Link(target) => (FileType::Symlink, target.as_os_str().len() as u64, 0o777, 1, since),
    };
    FileAttr {
        ino: INodeNo(inode.0),
        size,
        blocks: size.div_ceil(u64::from(BLOCK)),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type,
        perm: permissions,
        nlink: links,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn handle(inode: INodeNo, handle: FileHandle) -> Handle {
    Handle { inode: Inode(inode.0), id: handle.0 }
}

impl Adapter {
    fn attributes(&self, inode: Inode) -> Result<FileAttr, Refusal> {
        let (kind, since) = self.live.kind(inode)?;
        Ok(attributes(inode, &kind, since))
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Refusal> {
        let name = name.to_str().ok_or(Refusal::NotFound)?;
        let Entry { inode, .. } = self.live.lookup(Inode(parent.0), name)?;
        self.attributes(inode)
    }

    fn extended(&self, inode: INodeNo, name: &OsStr) -> Result<Vec<u8>, Refusal> {
        match self.live.kind(Inode(inode.0))? {
            (Kind::File(version), _) if name == GENERATION => Ok(version.generation.to_string().into_bytes()),
            _ => Err(Refusal::NoAttribute),
        }
    }
}

/// An extended attribute, or its size when no room is given for it.
fn answer_extended(value: Result<Vec<u8>, Refusal>, room: u32, reply: ReplyXattr) {
    match value {
        Err(refusal) => reply.error(refusal.into()),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(size) if room == 0 => reply.size(size),
            Ok(size) if size <= room => reply.data(&value),
            _ => reply.error(Refusal::Range.into()),
        },
    }
}

impl Filesystem for Adapter {
    /// Runtimes mount what a container with a user namespace of its own reads so that root is root there.
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if config.add_capabilities(InitFlags::FUSE_ALLOW_IDMAP).is_err() {
            info!("before kernel 6.12, containers with user namespaces cannot mount the live file system");
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(Inode(inode.0)) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.live.kind(Inode(inode.0)) {
            Ok((Kind::Link(target), _)) => reply.data(target.as_os_str().as_bytes()),
            Ok(_) => reply.error(Refusal::NotALink.into()),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Refusal::ReadOnly.into());
        }
        match self.live.open(Inode(inode.0)) {
            // Without the page cache: two versions could share a page there.
            Ok(handle) => {
                reply.opened(FileHandle(handle.id), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    /// For a reader, whom the kernel names. For its page cache, which `sendfile`, `splice` and mappings use even without
    /// our leave, it names nobody: there all readers of a file share pages, and its size is that of any version.
    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        reader: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let opened = match reader {
            Some(_) => self.live.opened(handle(inode, file)),
            None => Err(Refusal::Shared),
        };
        match opened {
            Ok(version) => {
                let bytes = &version.bytes;
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(size as usize).min(bytes.len());
                reply.data(&bytes[from..to]);
            }
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let handle = handle(inode, file);
        if self.live.release(handle) == Released::Last {
            self.waiting.forget(handle);
        }
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.live.entries(Inode(inode.0)) {
            Err(refusal) => reply.error(refusal.into()),
            Ok(entries) => {
                let rest = entries.iter().zip(1..).skip(usize::try_from(offset).unwrap_or(usize::MAX));
                for (entry, next) in rest {
                    let kind = match entry.kind {
                        Kind::Folder { .. } => FileType::Directory,
                        Kind::File(_) => FileType::RegularFile,
                        Kind::Link(_) => FileType::Symlink,
                    };
                    if reply.add(INodeNo(entry.inode.0), next, kind, &entry.name) {
                        break;
                    }
                }
                reply.ok();
            }
        }
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer_extended(self.extended(inode, name), size, reply);
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.live.kind(Inode(inode.0)).map(|(kind, _)| match kind {
            Kind::File(_) => format!("{GENERATION}\0").into_bytes(),
            Kind::Folder { .. } | Kind::Link(_) => Vec::new(),
        });
        answer_extended(names, size, reply);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Always readable; `POLLPRI` when there is a newer version than the one that was opened, as in sysfs.
    fn poll(
        &self,
        _: &Request,
        inode: INodeNo,
        file: FileHandle,
        notifier: PollNotifier,
        _: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let handle = handle(inode, file);
        // First the waiting, then the look: a version that comes in between is not missed.
        if flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY) {
            self.waiting.add(handle, notifier);
        }
        let mut events = PollEvents::POLLIN | PollEvents::POLLRDNORM;
        if self.live.is_old(handle) {
            events |= PollEvents::POLLPRI | PollEvents::POLLERR;
        }
        reply.poll(events);
    }
}
