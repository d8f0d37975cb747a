//! Mounts that are nowhere yet: what they are is settled before anybody can see them.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

/// A file, to be read and nothing else. What is put over it later reaches whoever has mounted it as a slave.
pub(super) struct Detached(OwnedFd);

impl Detached {
    #[allow(unsafe_code)]
    pub(super) fn read_only(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
        // SAFETY: the path ends with a zero and outlives the call.
        let made = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
        let number = i32::try_from(answered(made)?).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made it for us, and nobody else knows its number.
        let tree = Self(unsafe { OwnedFd::from_raw_fd(number) });
        let only_read = libc::MOUNT_ATTR_RDONLY
            | libc::MOUNT_ATTR_NOSUID
            | libc::MOUNT_ATTR_NODEV
            | libc::MOUNT_ATTR_NOEXEC;
        // Away from the group of the mount that it is a copy of, and then into one of its own.
        tree.set(only_read, libc::MS_PRIVATE)?;
        tree.set(0, libc::MS_SHARED)?;
        Ok(tree)
    }

    #[allow(unsafe_code)]
    fn set(&self, attributes: u64, propagation: libc::c_ulong) -> io::Result<()> {
        let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation, userns_fd: 0 };
        // SAFETY: both pointers are to values that outlive the call, and the size is that of the second.
        let set = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const wanted,
                size_of_val(&wanted),
            )
        };
        answered(set).map(drop)
    }

    /// Over what is there.
    pub(super) fn put_on(self, path: &Path) -> io::Result<()> {
        self.put(path, 0)
    }

    /// Under what is mounted there last, so that it is seen when that goes. Kernel 6.5 or newer.
    pub(super) fn put_beneath(self, path: &Path) -> io::Result<()> {
        self.put(path, libc::MOVE_MOUNT_BENEATH)
    }

    #[allow(unsafe_code)]
    fn put(self, path: &Path, how: u32) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: both texts end with a zero and outlive the call.
        let moved = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH | how,
            )
        };
        answered(moved).map(drop)
    }
}

fn answered(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
