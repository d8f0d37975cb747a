//! A connection to the kernel: a fresh one, or one that another process has served before us.

use std::{
    ffi::OsStr,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Arc, mpsc},
    thread,
};

use fuser::{Config, INodeNo, Notifier, Session, SessionACL};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::{
    Error, Live,
    adapter::Adapter,
    live::{Listener, News, Predecessor},
    tree::Change,
    waiting::{self, Waiting},
};

/// Two, so that one reader does not wait for another; more only wait for each other.
const THREADS: usize = 2;
/// `FUSE_NOTIFY_RESEND`: what was asked of the one before us and not answered is asked again.
const RESEND: i32 = 7;
/// The kernel's greeting is far shorter, but it insists on room for the largest request.
const GREETING: usize = 1 << 20;

/// The kernel's end.
pub struct Connection {
    /// `/dev/fuse`, mounted.
    pub device: OwnedFd,
    /// The kernel's greeting; it greets only once. Without it nobody has served the connection yet.
    pub greeting: Option<Vec<u8>>,
}

/// Answers the kernel for as long as the process lives.
pub struct Server {
    /// Says when the kernel has nothing more to ask: the mount is gone.
    pub ended: oneshot::Receiver<io::Result<()>>,
    /// The kernel's greeting, for whoever comes after us.
    pub greeting: Vec<u8>,
}

impl Server {
    /// Serves a connection on threads of its own.
    pub fn start(live: &Arc<Live>, connection: Connection) -> Result<Self, Error> {
        let Connection { device, greeting } = connection;
        let (waiting, before_us) = Waiting::open(&live.notes()).map_err(Error::Serve)?;
        let waiting = Arc::new(waiting);
        let adapter = Adapter { live: Arc::clone(live), waiting: Arc::clone(&waiting) };
        let is_fresh = greeting.is_none();
        let greeting = match greeting {
            Some(greeting) => greeting,
            None => greet(&device).map_err(Error::Serve)?,
        };
        let (session, answer) = session(adapter, device.as_fd(), &greeting).map_err(Error::Serve)?;
        let first = if is_fresh { answer } else { notification(RESEND).to_vec() };
        nix::unistd::write(&device, &first).map_err(|errno| Error::Serve(errno.into()))?;
        let notifier = session.notifier();
        let (changes, to_tell) = mpsc::channel();
        let untold = Arc::new(AtomicUsize::new(0));
        let before = if is_fresh { Predecessor::None } else { Predecessor::Some };
        live.tell_to(Listener { news: changes, before, untold: Arc::clone(&untold) });
        let (end, ended) = oneshot::channel();
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(work).map_err(Error::Serve)
        };
        // Not on the threads that answer: the kernel may want an answer before it takes the news.
        spawn(
            "news",
            Box::new(move || {
                waiting::wake(&notifier, before_us);
                tell(&notifier, &waiting, &to_tell, &untold);
            }),
        )?;
        spawn(
            "fuse",
            Box::new(move || {
                let _device = device;
                // Nobody waits for it at the end of the process.
                let _ = end.send(session.run());
            }),
        )?;
        Ok(Self { ended, greeting })
    }
}

/// A session of fuser on a connection that need not be fresh. fuser insists on being greeted, so it is greeted
/// by us, over a pair of sockets; then the real connection takes the socket's place. Answers with the session
/// and with what fuser replied.
fn session(
    adapter: Adapter,
    device: BorrowedFd<'_>,
    greeting: &[u8],
) -> io::Result<(Session<Adapter>, Vec<u8>)> {
    let (ours, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    nix::unistd::write(&ours, greeting)?;
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    let session = Session::from_fd(adapter, its, SessionACL::All, config)?;
    let mut answer = vec![0; 4096];
    let size = nix::unistd::read(&ours, &mut answer)?;
    answer.truncate(size);
    replace(session.as_fd(), device)?;
    Ok((session, answer))
}

/// Puts one descriptor in the place of another.
#[allow(unsafe_code)]
fn replace(place: BorrowedFd<'_>, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the number belongs to the session, which has not started to use it and keeps owning it; only
    // what it stands for changes.
    let done = unsafe { libc::dup3(by.as_raw_fd(), place.as_raw_fd(), libc::O_CLOEXEC) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The first thing that the kernel says on a new connection.
fn greet(device: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut greeting = vec![0; GREETING];
    loop {
        match nix::unistd::read(device, &mut greeting) {
            Ok(size) => {
                greeting.truncate(size);
                return Ok(greeting);
            }
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A message to the kernel that is no answer and says nothing but its name.
fn notification(code: i32) -> [u8; 16] {
    let mut message = [0; 16];
    message[..4].copy_from_slice(&16_u32.to_ne_bytes());
    message[4..8].copy_from_slice(&code.to_ne_bytes());
    message
}

/// Tells the kernel what it must not remember any more, and readers that there is something new.
fn tell(notifier: &Notifier, waiting: &Waiting, all: &mpsc::Receiver<News>, untold: &AtomicUsize) {
    for news in all {
        let change = match news {
            News::Change(change) => change,
            News::Told(somebody) => {
                // It may have stopped waiting.
                let _ = somebody.send(());
                continue;
            }
        };
        let told = match &change {
            Change::Content(inode) => {
                for reader in waiting.take(*inode) {
                    // A reader that has gone away does not wait.
                    let _ = reader.notify();
                }
                notifier.inval_inode(INodeNo(inode.0), 0, 0)
            }
            Change::Name(folder, name) | Change::NewName(folder, name) => {
                notifier.inval_entry(INodeNo(folder.0), OsStr::new(name))
            }
        };
        untold.fetch_sub(1, Ordering::Release);
        match told {
            Ok(()) => {}
            // The kernel had nothing to forget.
            Err(error) if error.kind() == io::ErrorKind::NotFound => debug!(?change, "nothing to forget"),
            Err(error) => warn!(%error, ?change, "the kernel may remember what is not so any more"),
        }
    }
}
