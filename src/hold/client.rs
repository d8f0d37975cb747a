//! The way to a holder.

use std::{
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::{
    socket::{
        AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket,
        sockopt::{ReceiveTimeout, SendTimeout},
    },
    time::{TimeVal, TimeValLike},
};

use super::{
    Answer, Error, Request,
    message::{receive, send},
};
use crate::{
    device::{ClaimUid, DriverName, RequestName},
    fs::VersionName,
};

/// A holder answers in microseconds, or it is stuck.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a holder. Whoever has taken the file system over it serves it until it is closed.
pub struct Client {
    socket: OwnedFd,
    path: PathBuf,
}

impl Client {
    /// Connects to a holder that runs.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let error = |errno: nix::errno::Errno| Error::Socket { path: path.to_owned(), source: errno.into() };
        let ours =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(error)?;
        let timeout = TimeVal::milliseconds(i64::try_from(TIMEOUT.as_millis()).unwrap_or(i64::MAX));
        setsockopt(&ours, ReceiveTimeout, &timeout).map_err(error)?;
        setsockopt(&ours, SendTimeout, &timeout).map_err(error)?;
        connect(ours.as_raw_fd(), &UnixAddr::new(path).map_err(error)?).map_err(error)?;
        Ok(Self { socket: ours, path: path.to_owned() })
    }

    /// The bare socket, to wait for the holder's end on.
    pub fn into_socket(self) -> Result<UnixStream, Error> {
        let Self { socket, path } = self;
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true).map_err(|source| Error::Socket { path, source })?;
        Ok(socket)
    }

    /// Takes over what another server has served; none where nothing is mounted.
    pub fn take(&self) -> Result<Option<(OwnedFd, Vec<u8>)>, Error> {
        match self.ask(&Request::Take, None)? {
            (Answer::Taken { greeting }, Some(device)) => Ok(Some((device, greeting))),
            (Answer::Nothing, _) => Ok(None),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Mounts afresh.
    pub fn mount(&self) -> Result<OwnedFd, Error> {
        match self.ask(&Request::Mount, None)? {
            (Answer::Done, Some(device)) => Ok(device),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Lets the holder keep the greeting of what it has mounted, or a connection that it has lost.
    pub fn keep(&self, greeting: Vec<u8>, device: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        self.do_so(&Request::Keep { greeting }, device)
    }

    /// Lets containers mount the file of a request.
    pub fn anchor(
        &self,
        claim: ClaimUid,
        request: RequestName,
        driver: DriverName,
        inode: u64,
    ) -> Result<(), Error> {
        self.do_so(&Request::Anchor { claim, request, driver, inode }, None)
    }

    /// Lets those who read without a server see the plain files of the tree.
    pub fn expose(&self) -> Result<(), Error> {
        self.do_so(&Request::Expose, None)
    }

    /// Lets containers mount a version that is kept as a plain file.
    pub fn swap(
        &self,
        claim: ClaimUid,
        request: RequestName,
        inode: u64,
        version: VersionName,
    ) -> Result<(), Error> {
        self.do_so(&Request::Swap { claim, request, inode, version }, None)
    }

    /// Takes the files of claims away.
    pub fn drop_anchors(&self, claims: Vec<ClaimUid>) -> Result<(), Error> {
        self.do_so(&Request::Drop { claims }, None)
    }

    /// The claims that have anchors.
    pub fn claims(&self) -> Result<Vec<ClaimUid>, Error> {
        self.ask_for_claims(&Request::List)
    }

    /// Who was not reached when a file system was mounted in the place of another.
    pub fn unhealed(&self) -> Result<Vec<String>, Error> {
        match self.ask(&Request::Unhealed, None)? {
            (Answer::Unhealed(unhealed), _) => Ok(unhealed),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Those of some claims that a container uses.
    pub fn used(&self, claims: Vec<ClaimUid>) -> Result<Vec<ClaimUid>, Error> {
        self.ask_for_claims(&Request::Used { claims })
    }

    /// Ends containers of some claims that were made and that nobody will start; answers with the claims that had one.
    pub fn end_unstarted(&self, claims: Vec<ClaimUid>) -> Result<Vec<ClaimUid>, Error> {
        self.ask_for_claims(&Request::EndUnstarted { claims })
    }

    /// What those are called that keep a run of `claimfs run` open.
    pub fn keepers(&self, run: ClaimUid) -> Result<Vec<String>, Error> {
        match self.ask(&Request::Keepers { run }, None)? {
            (Answer::Keepers(names), _) => Ok(names),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Lets the holder take everything away and end, and waits until it has.
    pub fn end(&self) -> Result<(), Error> {
        self.do_so(&Request::End, None)?;
        match receive::<Answer>(self.socket.as_fd())? {
            None => Ok(()),
            Some((other, _)) => Err(unexpected(&other)),
        }
    }

    fn ask_for_claims(&self, request: &Request) -> Result<Vec<ClaimUid>, Error> {
        match self.ask(request, None)? {
            (Answer::Claims(claims), _) => Ok(claims),
            other => Err(unexpected(&other.0)),
        }
    }

    fn do_so(&self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        match self.ask(request, descriptor)?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Answer, Option<OwnedFd>), Error> {
        send(self.socket.as_fd(), request, descriptor)
            .map_err(|source| Error::Socket { path: self.path.clone(), source })?;
        match receive(self.socket.as_fd())? {
            Some((Answer::Refused(reason), _)) => Err(Error::Refused(reason)),
            Some(answer) => Ok(answer),
            None => Err(Error::Message(String::from("it has hung up"))),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::Message(format!("an answer to something else: {answer:?}"))
}
