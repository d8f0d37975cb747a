//! Opens files of the file system for the one that serves it.
//!
//! Whoever asks the kernel for a file of the file system waits for its server, and cannot be killed while it
//! waits. The server must not wait for itself: killed at the wrong moment, it could never end. So another
//! process does it, which has nothing to do with the connection.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::sys::{
    socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::ReceiveTimeout},
    time::{TimeVal, TimeValLike},
};

use super::{
    Error,
    message::{receive, send},
};

/// The server answers in microseconds.
const TIMEOUT: i64 = 5;

/// A process that opens files for us.
pub struct Opener {
    socket: OwnedFd,
    child: Child,
}

impl Opener {
    /// Starts one.
    pub fn start() -> io::Result<Self> {
        let (socket, its) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(TIMEOUT))?;
        let child = Command::new(std::env::current_exe()?)
            .arg("open")
            .stdin(its)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { socket, child })
    }

    /// The file, without the right to read it.
    pub fn open(&self, path: &Path) -> Result<OwnedFd, Error> {
        let error = |source| Error::Open { path: path.to_owned(), source };
        send(self.socket.as_fd(), &path, None).map_err(error)?;
        match receive::<Result<(), String>>(self.socket.as_fd())? {
            Some((Ok(()), Some(file))) => Ok(file),
            Some((Err(reason), _)) => Err(error(io::Error::other(reason))),
            _ => Err(error(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// It ends by itself when its socket closes; this only takes note of it.
impl Drop for Opener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

/// What that process does, until whoever started it is gone.
pub fn open_for_standard_input() -> Result<(), Error> {
    let socket = io::stdin();
    while let Some((path, _)) = receive::<PathBuf>(socket.as_fd())? {
        let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
        let (answer, file) = match opened {
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
