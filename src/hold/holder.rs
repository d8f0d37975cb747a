//! The process itself: one thread, one list of sockets, two deadlines.

mod lock;
mod point;

pub(super) use self::point::refuse_others;

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::fcntl::Flock;
use tracing::{info, warn};

use super::{
    Answer, Error, Places, RUNS, Request,
    anchors::Anchors,
    callers::{CallerId, Callers, Ready},
    keepers, kernel,
    manager::{self, Manager},
    mounts::{self, Mounted},
    opener::Opener,
    swap::Swapping,
};
use crate::{device::ClaimUid, fs::Inode, memory, metadata};

/// It is there for as long as the node, and has nothing to do most of the time.
const REST: Duration = Duration::from_secs(1);

/// Keeps the connection to the kernel.
pub struct Holder {
    places: Places,
    callers: Callers,
    /// Which of the callers serves.
    server: Option<CallerId>,
    manager: Manager,
    /// There once a file was wanted.
    opener: Option<Opener<Wanted>>,
    kept: Option<Kept>,
    /// The file system as it is mounted now.
    point: Option<Mounted>,
    anchors: Anchors,
    /// When readers have waited long enough for a server that is gone.
    deadline: Option<Instant>,
    /// When it has had nothing to do for long enough to make itself small.
    rest: Option<Instant>,
    /// Whether it was asked to end.
    life: Life,
    lock: Flock<fs::File>,
}

/// Whether a holder goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Going,
    Ending,
}

/// What a file is opened for.
struct Wanted {
    caller: CallerId,
    path: PathBuf,
    inode: Inode,
}

/// When a caller is answered.
enum Outcome {
    /// A connection may come along.
    Now(Answer, Option<OwnedFd>),
    /// When the helper has done its part.
    Later,
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
        let lock = lock::take(&lock_path, places.starter)?;
        let kept = manager::kept().map_err(at(&lock_path))?;
        let kept = kept.map(|(device, greeting)| Kept { device, greeting: Some(greeting) });
        let deadline = kept.as_ref().map(|_| Instant::now() + places.grace);
        let manager = Manager::from_environment().map_err(at(&places.socket))?;
        let callers = Callers::listen_on(&places.socket).map_err(at(&places.socket))?;
        let swapping = if kernel::is_at_least(6, 5) { Swapping::Live } else { Swapping::Once };
        let anchors = Anchors::found(&places, swapping).map_err(at(&places.anchors))?;
        Ok(Self {
            places,
            callers,
            server: None,
            opener: None,
            kept,
            manager,
            point: None,
            anchors,
            deadline,
            rest: Some(Instant::now()),
            life: Life::Going,
            lock,
        })
    }

    /// Answers until it is asked to end.
    pub fn run(mut self) -> Result<(), Error> {
        info!(socket = %self.places.socket.display(), "holding");
        let ready = self.manager.ready();
        ready.map_err(|source| Error::Socket { path: self.places.socket.clone(), source })?;
        loop {
            let until = self.deadline.into_iter().chain(self.rest).min();
            let helper = self.opener.as_ref().map(Opener::socket);
            let ready = self.callers.wait(helper, until);
            let ready = ready.map_err(|source| Error::Socket { path: self.places.socket.clone(), source })?;
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
            for who in ready {
                match who {
                    Ready::Signal => {
                        info!("ending; what is mounted stays");
                        return Ok(());
                    }
                    Ready::Stranger => self.callers.accept(),
                    Ready::Caller(caller) => self.serve(caller),
                    Ready::Helper => self.anchor_next(),
                }
            }
            if self.life == Life::Ending {
                info!("ending; nothing stays");
                let Self { callers, lock, .. } = self;
                // Whoever sees us hang up may start another at once.
                drop(lock);
                drop(callers);
                return Ok(());
            }
        }
    }

    fn serve(&mut self, caller: CallerId) {
        let outcome = match self.callers.hear(caller) {
            Ok(Some((request, descriptor))) => self.answer(caller, request, descriptor),
            Ok(None) => return self.hang_up(caller),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Outcome::Now(answer, descriptor)) => self.tell(caller, &answer, descriptor.as_ref()),
            Ok(Outcome::Later) => {}
            Err(error) => self.tell(caller, &Answer::Refused(error.reason()), None),
        }
    }

    fn tell(&mut self, caller: CallerId, answer: &Answer, descriptor: Option<&OwnedFd>) {
        if let Err(error) = self.callers.tell(caller, answer, descriptor.map(AsFd::as_fd)) {
            warn!(%error, "cannot answer");
            self.hang_up(caller);
        }
    }

    fn hang_up(&mut self, caller: CallerId) {
        self.callers.remove(caller);
        if self.server == Some(caller) {
            self.server = None;
            self.deadline = self.kept.as_ref().map(|_| Instant::now() + self.places.grace);
            info!(seconds = self.places.grace.as_secs(), "the server is gone; readers wait for another");
        }
    }

    /// Lets the helper open a file that containers are to mount.
    fn want(&mut self, file: PathBuf, wanted: Wanted) -> Result<(), Error> {
        let error = |source| Error::Open { path: file.clone(), source };
        // Whoever waits for one that has ended asks again.
        let running = self.opener.take_if(|opener| !opener.has_ended());
        let opener = running.map_or_else(Opener::start, Ok).map_err(error)?;
        self.opener.insert(opener).want(file, wanted)
    }

    /// Takes the next file from the helper.
    fn anchor_next(&mut self) {
        let Some(opener) = &mut self.opener else { return };
        let Some((wanted, opened)) = opener.opened() else {
            self.opener = None;
            return;
        };
        let Wanted { caller, path, inode } = wanted;
        // Whoever comes after one that is gone wants its own.
        if !self.callers.knows(caller) {
            return;
        }
        let point = self.point.as_ref().ok_or_else(|| Error::Refused(String::from("nothing is mounted")));
        let anchored = opened.and_then(|file| self.anchors.put(path, inode, file.as_fd(), point?));
        let answer = match anchored {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Refused(error.reason()),
        };
        self.tell(caller, &answer, None);
    }

    fn served_by(&mut self, caller: CallerId) -> Result<(), Error> {
        self.point = point::mounted(&self.places)?;
        self.server = Some(caller);
        self.deadline = None;
        Ok(())
    }

    fn answer(
        &mut self,
        caller: CallerId,
        request: Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<Outcome, Error> {
        let done = Outcome::Now(Answer::Done, None);
        match request {
            Request::Take => {
                // What is not mounted any more is of no use to anybody.
                if !self.is_mounted()? {
                    self.kept = None;
                }
                let Some(Kept { device, greeting: Some(greeting) }) = &self.kept else {
                    return Ok(Outcome::Now(Answer::Nothing, None));
                };
                let answer = Answer::Taken { greeting: greeting.clone() };
                let device = self.copy(device)?;
                self.served_by(caller)?;
                Ok(Outcome::Now(answer, Some(device)))
            }
            Request::Mount => {
                let device = self.mount()?;
                let copy = self.copy(&device)?;
                self.kept = Some(Kept { device, greeting: None });
                self.served_by(caller)?;
                Ok(Outcome::Now(Answer::Done, Some(copy)))
            }
            Request::Keep { greeting } => {
                let device = match (descriptor, self.kept.take()) {
                    (Some(device), _) => device,
                    (None, Some(kept)) => kept.device,
                    (None, None) => return Err(Error::Refused(String::from("there is nothing to keep"))),
                };
                // Without it the next holder gets the connection from the server.
                if let Err(error) = self.manager.keep(device.as_fd(), &greeting) {
                    warn!(%error, "systemd does not keep the connection");
                }
                self.kept = Some(Kept { device, greeting: Some(greeting) });
                self.served_by(caller)?;
                Ok(done)
            }
            Request::Anchor { claim, request, driver, inode } => {
                let file = self.places.mount_point.join("by-uid").join(claim.as_str());
                let file = file.join(request.as_str()).join(metadata::file_name(&driver));
                let path = self.places.anchor(&claim, &request);
                self.want(file, Wanted { caller, path, inode: Inode(inode) })?;
                Ok(Outcome::Later)
            }
            Request::Expose => {
                self.expose()?;
                Ok(done)
            }
            Request::Swap { claim, request, inode, version } => {
                let version = self.places.versions.join(version.path(Inode(inode)));
                self.anchors.swap(&self.places.anchor(&claim, &request), &version)?;
                Ok(done)
            }
            Request::Drop { claims } => {
                for claim in claims {
                    self.anchors.drop_all_of(&self.places.anchors.join(claim.as_str()))?;
                }
                Ok(done)
            }
            Request::Unhealed => {
                let unhealed = self.anchors.unhealed();
                let path = self.places.anchors.clone();
                let unhealed = unhealed.map_err(|source| Error::Mount { path, source })?;
                Ok(Outcome::Now(Answer::Unhealed(unhealed), None))
            }
            Request::Used { claims } => self.claims_that(Anchors::used(&claims)),
            Request::EndUnstarted { claims } => self.claims_that(Anchors::end_unstarted(&claims)),
            Request::Keepers { run } => {
                let path = self.places.run_dir().join(RUNS).join(run.as_str());
                let names = keepers::of(&path).map_err(|source| Error::Open { path, source })?;
                Ok(Outcome::Now(Answer::Keepers(names), None))
            }
            Request::End => {
                self.take_away()?;
                self.life = Life::Ending;
                Ok(done)
            }
            Request::List => Ok(Outcome::Now(Answer::Claims(self.claims()?), None)),
        }
    }

    fn claims_that(&self, found: io::Result<Vec<ClaimUid>>) -> Result<Outcome, Error> {
        let found = found.map_err(|source| Error::Mount { path: self.places.anchors.clone(), source })?;
        Ok(Outcome::Now(Answer::Claims(found), None))
    }

    fn copy(&self, device: &OwnedFd) -> Result<OwnedFd, Error> {
        device.try_clone().map_err(|source| Error::Mount { path: self.places.mount_point.clone(), source })
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
