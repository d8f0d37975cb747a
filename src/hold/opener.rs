//! Opens files of the file system for the holder, which must not wait.
//!
//! Whoever asks the kernel for a file of the file system waits for its server, and cannot be killed while it
//! waits. The holder must answer others meanwhile; and a server that waited for itself, killed at the wrong
//! moment, could never end. So another process does it, which has nothing to do with the connection.

use std::{
    collections::VecDeque,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::{
    Error,
    message::{receive, send},
};
use crate::program;

/// A process that opens files, and what each is wanted for.
pub(super) struct Opener<T> {
    socket: OwnedFd,
    child: Option<Child>,
    wanted: VecDeque<(PathBuf, T)>,
}

impl<T> Opener<T> {
    /// Starts one.
    pub(super) fn start() -> io::Result<Self> {
        let (socket, its) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let child =
            program::itself().arg("open").stdin(its).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { socket, child: Some(child), wanted: VecDeque::new() })
    }

    /// Wants a file, without the right to read it.
    pub(super) fn want(&mut self, path: PathBuf, wanted_for: T) -> Result<(), Error> {
        send(self.socket.as_fd(), &path.as_path(), None)
            .map_err(|source| Error::Open { path: path.clone(), source })?;
        self.wanted.push_back((path, wanted_for));
        Ok(())
    }

    /// The next file that was wanted, and what for; nothing more when the process has ended.
    pub(super) fn opened(&mut self) -> Option<(T, Result<OwnedFd, Error>)> {
        let answer = receive::<Result<(), String>>(self.socket.as_fd());
        let (path, wanted_for) = self.wanted.pop_front()?;
        let error = |source| Error::Open { path, source };
        let opened = match answer {
            Ok(Some((Ok(()), Some(file)))) => Ok(file),
            Ok(Some((Err(reason), _))) => Err(error(io::Error::other(reason))),
            Ok(_) => Err(error(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(error),
        };
        Some((wanted_for, opened))
    }

    /// Where its answers come.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether nothing more will come from it.
    pub(super) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

/// It can be waiting for a server that is gone, so its end is not waited for here.
impl<T> Drop for Opener<T> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            thread::spawn(move || child.wait());
        }
    }
}

/// What that process does, until whoever started it is gone.
pub fn open_for_standard_input() -> Result<(), Error> {
    let socket = io::stdin();
    while let Some((path, _)) = receive::<PathBuf>(socket.as_fd())? {
        let (answer, file) = match open(&path) {
            Ok(file) => (Ok(()), Some(file)),
            Err(error) => (Err(error.to_string()), None),
        };
        let sent = send::<Result<(), String>>(socket.as_fd(), &answer, file.as_ref().map(AsFd::as_fd));
        if sent.is_err() {
            break;
        }
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)
}
