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
    thread,
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
    child: Option<Child>,
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
        Ok(Self { socket, child: Some(child) })
    }

    /// The file, without the right to read it.
    pub fn open(&self, path: &Path) -> Result<OwnedFd, Error> {
        let error = |source| Error::Open { path: path.to_owned(), source };
        let line = |source| Error::Socket { path: path.to_owned(), source };
        send(self.socket.as_fd(), &path, None).map_err(line)?;
        match receive::<Result<(), String>>(self.socket.as_fd())? {
            Some((Ok(()), Some(file))) => Ok(file),
            Some((Err(reason), _)) => Err(error(io::Error::other(reason))),
            _ => Err(line(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// It can be waiting for a server that is gone, so its end is not waited for here.
impl Drop for Opener {
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
