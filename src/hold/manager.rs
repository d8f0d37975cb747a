//! systemd, where it starts the holder: it is told that the holder listens, and keeps the connection in its
//! descriptor store, for the next holder.

use std::{
    env, fs,
    io::{self, IoSlice, Read, Seek, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    socket::{ControlMessage, MsgFlags, sendmsg},
};

/// What the descriptors are called in the store.
const CONNECTION: &str = "claimfs-connection";
const GREETING: &str = "claimfs-greeting";
/// The first one that is passed on.
const FIRST: i32 = 3;

/// The way to systemd.
pub(super) struct Manager(Option<UnixDatagram>);

impl Manager {
    /// As the environment says; without systemd there is none.
    pub(super) fn from_environment() -> io::Result<Self> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(Self(None)) };
        let address = match path.as_encoded_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        Ok(Self(Some(socket)))
    }

    /// The holder can be asked from now on.
    pub(super) fn ready(&self) -> io::Result<()> {
        self.say("READY=1", None)
    }

    /// Keeps the connection and the kernel's greeting, in the place of those that it had.
    pub(super) fn keep(&self, connection: BorrowedFd<'_>, greeting: &[u8]) -> io::Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        let memory = memfd_create(GREETING, MFdFlags::MFD_CLOEXEC)?;
        fs::File::from(memory.try_clone()?).write_all(greeting)?;
        for (name, descriptor) in [(CONNECTION, connection), (GREETING, memory.as_fd())] {
            self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None)?;
            self.say(&format!("FDSTORE=1\nFDNAME={name}"), Some(descriptor))?;
        }
        Ok(())
    }

    fn say(&self, message: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let Some(socket) = &self.0 else { return Ok(()) };
        let descriptors: Vec<i32> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let message = [IoSlice::new(message.as_bytes())];
        sendmsg::<()>(socket.as_raw_fd(), &message, control, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }
}

/// The connection and the greeting that systemd has kept for us.
pub(super) fn kept() -> io::Result<Option<(OwnedFd, Vec<u8>)>> {
    let number = |name: &str| env::var(name).ok()?.parse::<i32>().ok();
    let is_for_us = number("LISTEN_PID").is_some_and(|pid| pid == nix::unistd::getpid().as_raw());
    let (Some(count), true) = (number("LISTEN_FDS"), is_for_us) else { return Ok(None) };
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let (mut connection, mut greeting) = (None, None);
    for (name, descriptor) in names.split(':').zip(FIRST..FIRST.saturating_add(count)) {
        match name {
            CONNECTION => connection = Some(own(descriptor)?),
            GREETING => greeting = Some(own(descriptor)?),
            _ => {}
        }
    }
    let (Some(connection), Some(greeting)) = (connection, greeting) else { return Ok(None) };
    let mut bytes = Vec::new();
    let mut memory = fs::File::from(greeting);
    memory.rewind()?;
    memory.read_to_end(&mut bytes)?;
    Ok(Some((connection, bytes)))
}

#[allow(unsafe_code)]
fn own(descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: systemd has passed it on to this process, which has opened nothing with this number since.
    let ours = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // What is executed from here is not to have it.
    nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    Ok(ours)
}
