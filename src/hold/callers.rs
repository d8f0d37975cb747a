//! Who speaks to the holder: root, one message after another.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{SigSet, Signal},
    sys::signalfd::{SfdFlags, SignalFd},
    sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept, bind, getsockopt, listen, socket,
        sockopt::PeerCredentials,
    },
};
use tracing::warn;

use super::{
    Answer, Error, Request,
    message::{receive, send},
};

/// A server, the one that replaces it, and somebody who asks.
const MAX_CALLERS: usize = 8;

/// One that has connected; nobody else ever has this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallerId(u64);

/// Who has something to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Somebody new.
    Stranger,
    /// A caller.
    Caller(CallerId),
    /// The helper.
    Helper,
    /// Whoever wants us to end.
    Signal,
}

/// All who have connected.
pub(super) struct Callers {
    listener: OwnedFd,
    signals: SignalFd,
    all: Vec<(CallerId, OwnedFd)>,
    last: u64,
}

impl Callers {
    /// A socket that only root can use, at its path only when it listens.
    pub(super) fn listen_on(path: &Path) -> io::Result<Self> {
        let hidden = path.with_extension("new");
        match fs::remove_file(&hidden) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        bind(listener.as_raw_fd(), &UnixAddr::new(&hidden)?)?;
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))?;
        listen(&listener, Backlog::new(8)?)?;
        fs::rename(&hidden, path)?;
        Ok(Self { listener, signals: signals()?, all: Vec::new(), last: 0 })
    }

    /// Waits until somebody has something to say, or until a moment.
    pub(super) fn wait(
        &self,
        helper: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> io::Result<Vec<Ready>> {
        let callers = self.all.iter().map(|(id, socket)| (Ready::Caller(*id), socket.as_fd()));
        let others = helper.into_iter().map(|helper| (Ready::Helper, helper));
        let (who, sockets): (Vec<Ready>, Vec<BorrowedFd<'_>>) =
            [(Ready::Signal, self.signals.as_fd()), (Ready::Stranger, self.listener.as_fd())]
                .into_iter()
                .chain(others)
                .chain(callers)
                .unzip();
        let mut polled: Vec<PollFd<'_>> =
            sockets.into_iter().map(|socket| PollFd::new(socket, PollFlags::POLLIN)).collect();
        let timeout = match until {
            None => PollTimeout::NONE,
            Some(moment) => {
                let left = moment.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |polled: &PollFd<'_>| polled.revents().is_some_and(|events| !events.is_empty());
        Ok(who.into_iter().zip(&polled).filter(|(_, polled)| is_ready(polled)).map(|(who, _)| who).collect())
    }

    pub(super) fn accept(&mut self) {
        let Ok(caller) = accept_from(self.listener.as_fd()) else { return };
        let peer = getsockopt(&caller, PeerCredentials).map(|peer| peer.uid());
        let allowed = matches!(peer, Ok(uid) if uid == 0 || uid == nix::unistd::geteuid().as_raw());
        if !allowed || self.all.len() >= MAX_CALLERS {
            warn!(?peer, "refused a caller");
            return;
        }
        self.last += 1;
        self.all.push((CallerId(self.last), caller));
    }

    /// What a caller says; nothing when it has gone.
    pub(super) fn hear(&self, caller: CallerId) -> Result<Option<(Request, Option<OwnedFd>)>, Error> {
        self.socket(caller).map_or(Ok(None), receive)
    }

    /// Answers a caller. One that has gone does not want to know.
    pub(super) fn tell(
        &self,
        caller: CallerId,
        answer: &Answer,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.socket(caller).map_or(Ok(()), |socket| send(socket, answer, descriptor))
    }

    /// Whether it is still there.
    pub(super) fn knows(&self, caller: CallerId) -> bool {
        self.socket(caller).is_some()
    }

    pub(super) fn remove(&mut self, caller: CallerId) {
        self.all.retain(|(id, _)| *id != caller);
    }

    fn socket(&self, caller: CallerId) -> Option<BorrowedFd<'_>> {
        self.all.iter().find(|(id, _)| *id == caller).map(|(_, socket)| socket.as_fd())
    }
}

/// As the first process of a container it would not be ended by these otherwise.
fn signals() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?)
}

#[allow(unsafe_code)]
fn accept_from(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let accepted = accept(listener.as_raw_fd())?;
    // SAFETY: the kernel has just made it for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
}
