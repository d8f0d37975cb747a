//! The process itself: one thread, one list of sockets, two deadlines.

use std::{
    fs,
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{Flock, FlockArg},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept, bind, getsockopt, listen, socket,
        sockopt::PeerCredentials,
    },
};
use tracing::{info, warn};

use super::{
    Answer, Error, Places, Request,
    anchors::Anchors,
    detached::Detached,
    kernel,
    message::{receive, send},
    mounts::{self, Mounted},
    swap::Swapping,
};
use crate::{device::ClaimUid, fs::Inode, memory};

/// It is there for as long as the node, and has nothing to do most of the time.
const REST: Duration = Duration::from_secs(1);
/// A server, the one that replaces it, and somebody who asks.
const MAX_CALLERS: usize = 8;

/// Keeps the connection to the kernel.
pub struct Holder {
    places: Places,
    listener: OwnedFd,
    callers: Vec<OwnedFd>,
    /// Which of the callers serves.
    server: Option<usize>,
    kept: Option<Kept>,
    /// The file system as it is mounted now.
    point: Option<Mounted>,
    anchors: Anchors,
    /// When readers have waited long enough for a server that is gone.
    deadline: Option<Instant>,
    /// When it has had nothing to do for long enough to make itself small.
    rest: Option<Instant>,
    _lock: Flock<fs::File>,
}

/// The kernel's end, and what it said first.
struct Kept {
    device: OwnedFd,
    greeting: Option<Vec<u8>>,
}

impl Holder {
    /// Takes the lock and the socket, in the place of a holder that is dead.
    pub fn bind(places: Places) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Socket { path, source }
        };
        let folder = places.socket.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(at(folder))?;
        let lock_path = places.socket.with_extension("lock");
        let open = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&lock_path);
        let file = open.map_err(at(&lock_path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| Error::Locked { path: lock_path.clone() })?;
        // For people: who it is.
        let written = lock.set_len(0).and_then(|()| writeln!(&*lock, "{}", std::process::id()));
        written.map_err(at(&lock_path))?;
        let listener = listen_on(&places.socket).map_err(at(&places.socket))?;
        let swapping = if kernel::is_at_least(6, 5) { Swapping::Live } else { Swapping::Once };
        let anchors = Anchors::found(&places, swapping).map_err(at(&places.anchors))?;
        Ok(Self {
            places,
            listener,
            callers: Vec::new(),
            server: None,
            kept: None,
            point: None,
            anchors,
            deadline: None,
            rest: Some(Instant::now()),
            _lock: lock,
        })
    }

    /// Answers for ever.
    pub fn run(mut self) -> Result<(), Error> {
        info!(socket = %self.places.socket.display(), "holding");
        loop {
            let ready =
                self.wait().map_err(|source| Error::Socket { path: self.places.socket.clone(), source })?;
            if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                self.give_up();
            }
            if !ready.is_empty() {
                self.rest = Some(Instant::now() + REST);
            } else if self.rest.is_some_and(|rest| rest <= Instant::now()) {
                self.rest = None;
                memory::trim();
                memory::forget_files();
            }
            // From the last: those behind one that goes move up.
            for caller in ready.iter().rev().filter(|ready| **ready > 0) {
                self.serve(*caller - 1);
            }
            if ready.contains(&0) {
                self.accept();
            }
        }
    }

    /// What can be read: 0 is the listener, the callers are one higher than their numbers.
    fn wait(&self) -> io::Result<Vec<usize>> {
        let sockets = [&self.listener].into_iter().chain(&self.callers);
        let mut polled: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        let timeout = match self.deadline.into_iter().chain(self.rest).min() {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |polled: &PollFd<'_>| polled.revents().is_some_and(|events| !events.is_empty());
        Ok((0..polled.len()).filter(|index| is_ready(&polled[*index])).collect())
    }

    fn accept(&mut self) {
        let Ok(caller) = accept_from(self.listener.as_fd()) else { return };
        let peer = getsockopt(&caller, PeerCredentials).map(|peer| peer.uid());
        let allowed = matches!(peer, Ok(uid) if uid == 0 || uid == nix::unistd::geteuid().as_raw());
        if !allowed || self.callers.len() >= MAX_CALLERS {
            warn!(?peer, "refused a caller");
            return;
        }
        self.callers.push(caller);
    }

    fn serve(&mut self, caller: usize) {
        let received = receive::<Request>(self.callers[caller].as_fd());
        let (answer, descriptor) = match received {
            Ok(Some((request, descriptor))) => match self.answer(caller, request, descriptor) {
                Ok(answer) => answer,
                Err(error) => (Answer::Refused(error.to_string()), None),
            },
            Ok(None) => return self.hang_up(caller),
            Err(error) => (Answer::Refused(error.to_string()), None),
        };
        let descriptor = descriptor.as_ref().map(AsFd::as_fd);
        if let Err(error) = send(self.callers[caller].as_fd(), &answer, descriptor) {
            warn!(%error, "cannot answer");
            self.hang_up(caller);
        }
    }

    fn hang_up(&mut self, caller: usize) {
        self.callers.remove(caller);
        match self.server {
            Some(server) if server == caller => {
                self.server = None;
                self.deadline = self.kept.as_ref().map(|_| Instant::now() + self.places.grace);
                info!(seconds = self.places.grace.as_secs(), "the server is gone; readers wait for another");
            }
            Some(server) if server > caller => self.server = Some(server - 1),
            _ => {}
        }
    }

    fn served_by(&mut self, caller: usize) -> Result<(), Error> {
        self.point = self.mounted()?;
        self.server = Some(caller);
        self.deadline = None;
        Ok(())
    }

    fn answer(
        &mut self,
        caller: usize,
        request: Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<(Answer, Option<OwnedFd>), Error> {
        match request {
            Request::Take => {
                // What is not mounted any more is of no use to anybody.
                if !self.is_mounted()? {
                    self.kept = None;
                }
                let Some(Kept { device, greeting: Some(greeting) }) = &self.kept else {
                    return Ok((Answer::Nothing, None));
                };
                let answer = Answer::Taken { greeting: greeting.clone() };
                let device = self.copy(device)?;
                self.served_by(caller)?;
                Ok((answer, Some(device)))
            }
            Request::Mount => {
                let device = self.mount()?;
                let copy = self.copy(&device)?;
                self.kept = Some(Kept { device, greeting: None });
                self.served_by(caller)?;
                Ok((Answer::Done, Some(copy)))
            }
            Request::Keep { greeting } => {
                let device = match (descriptor, self.kept.take()) {
                    (Some(device), _) => device,
                    (None, Some(kept)) => kept.device,
                    (None, None) => return Err(Error::Refused(String::from("there is nothing to keep"))),
                };
                self.kept = Some(Kept { device, greeting: Some(greeting) });
                self.served_by(caller)?;
                Ok((Answer::Done, None))
            }
            Request::Anchor { claim, request, inode } => {
                let file = descriptor.ok_or_else(|| Error::Refused(String::from("no file came along")))?;
                let point =
                    self.point.as_ref().ok_or_else(|| Error::Refused(String::from("nothing is mounted")))?;
                let path = self.places.anchor(&claim, &request);
                self.anchors.put(path, Inode(inode), file.as_fd(), point)?;
                Ok((Answer::Done, None))
            }
            Request::Expose => {
                self.expose()?;
                Ok((Answer::Done, None))
            }
            Request::Swap { claim, request, inode, version } => {
                let version = self.places.versions.join(version.path(Inode(inode)));
                self.anchors.swap(&self.places.anchor(&claim, &request), &version)?;
                Ok((Answer::Done, None))
            }
            Request::Drop { claims } => {
                for claim in claims {
                    self.anchors.drop_all_of(&self.places.anchors.join(claim.as_str()))?;
                }
                Ok((Answer::Done, None))
            }
            Request::Unhealed => {
                let unhealed = self.anchors.unhealed();
                let path = self.places.anchors.clone();
                Ok((Answer::Unhealed(unhealed.map_err(|source| Error::Mount { path, source })?), None))
            }
            Request::List => Ok((Answer::Claims(self.claims()?), None)),
        }
    }

    fn copy(&self, device: &OwnedFd) -> Result<OwnedFd, Error> {
        device.try_clone().map_err(|source| Error::Mount { path: self.places.mount_point.clone(), source })
    }

    fn mount(&self) -> Result<OwnedFd, Error> {
        let point = &self.places.mount_point;
        let error = |source| Error::Mount { path: point.clone(), source };
        if let Some(other) = self.mounted()?.filter(|mounted| mounted.source != self.run_dir()) {
            return Err(self.taken_by(&other));
        }
        mounts::unmount_fuse(point).map_err(error)?;
        fs::create_dir_all(point).map_err(error)?;
        let device = mounts::mount_fuse(point, self.run_dir()).map_err(error)?;
        info!(path = %point.display(), "mounted");
        Ok(device)
    }

    /// Puts the plain files of the tree where the file system would be.
    fn expose(&self) -> Result<(), Error> {
        let point = &self.places.mount_point;
        let error = |source| Error::Mount { path: point.clone(), source };
        let taken = self.mounted()?;
        if let Some(other) = taken.as_ref().filter(|mounted| mounted.source != self.run_dir()) {
            return Err(self.taken_by(other));
        }
        mounts::unmount_fuse(point).map_err(error)?;
        fs::create_dir_all(point).map_err(error)?;
        // A runtime may live in another namespace, and must find the newest version there.
        mounts::share(&self.places.anchors).map_err(error)?;
        let here = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
        let tree = here(&self.places.tree).map_err(error)?;
        if here(point).map_err(error)? == tree {
            return Ok(());
        }
        Detached::read_only(&self.places.tree).and_then(|tree| tree.put_on(point)).map_err(error)?;
        info!(path = %point.display(), "the plain files are mounted");
        Ok(())
    }

    fn taken_by(&self, other: &Mounted) -> Error {
        Error::Refused(format!(
            "{} is mounted by the daemon of {}; choose another --mount-point",
            self.places.mount_point.display(),
            other.source.display()
        ))
    }

    fn run_dir(&self) -> &Path {
        self.places.socket.parent().unwrap_or(Path::new("/"))
    }

    /// What of our kind is mounted on the mount point, by whomever.
    fn mounted(&self) -> Result<Option<Mounted>, Error> {
        let table = mounts::table();
        let table = table.map_err(|source| Error::Mount { path: self.places.mount_point.clone(), source })?;
        let is_there =
            |mounted: &Mounted| mounted.path == self.places.mount_point && mounted.kind == mounts::TYPE;
        Ok(table.into_iter().rev().find(is_there))
    }

    fn is_mounted(&self) -> Result<bool, Error> {
        Ok(self.mounted()?.is_some_and(|mounted| mounted.source == self.run_dir()))
    }

    /// By their folders: a holder that has come after another knows no more.
    fn claims(&self) -> Result<Vec<ClaimUid>, Error> {
        let error = |source| Error::Mount { path: self.places.anchors.clone(), source };
        let mut claims = Vec::new();
        for entry in fs::read_dir(&self.places.anchors).map_err(error)? {
            let name = entry.map_err(error)?.file_name();
            claims.extend(name.to_str().and_then(|name| name.parse().ok()));
        }
        Ok(claims)
    }

    /// No server has come back: readers get the last versions as plain files, and whoever hangs is let go.
    fn give_up(&mut self) {
        self.deadline = None;
        self.anchors.leave_last_versions(&self.places.versions);
        self.kept = None;
        self.point = None;
        // Not that of another daemon, which may have come there since.
        if matches!(self.is_mounted(), Ok(true)) {
            let ended = mounts::abort(&self.places.mount_point);
            if let Err(error) = ended.and_then(|()| mounts::unmount_fuse(&self.places.mount_point)) {
                warn!(%error, "cannot take the mount away");
            }
        }
        info!("no server has come back: the last versions stay as they are");
    }
}

/// A socket that only root can use, at its path only when it listens.
fn listen_on(path: &Path) -> io::Result<OwnedFd> {
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
    Ok(listener)
}

#[allow(unsafe_code)]
fn accept_from(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let accepted = accept(listener.as_raw_fd())?;
    // SAFETY: the kernel has just made it for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
}
