//! The folder of a demonstration, of which nothing is left.

use std::{
    env, fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::MetadataExt,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        prctl,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{Error, interrupt};
use crate::hold;

/// How often it is looked whether others have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long those may take who were started by what we have started.
const ENDING: Duration = Duration::from_secs(10);
/// How often it is looked for more that is mounted.
const ATTEMPTS: usize = 3;

/// An empty folder, and the right to show something: demonstrations have a driver and a folder of specs in common.
pub(super) struct Place {
    path: PathBuf,
    _turn: UnixListener,
}

impl Place {
    /// Waits until no other demonstration is shown.
    pub(super) fn make(cdi: &Path) -> Result<Self, Error> {
        let turn = take_turn(cdi)?;
        // What watches over a container goes on after the runtime that started it, and we wait for it.
        prctl::set_child_subreaper(true)
            .map_err(|errno| Error::io("cannot adopt processes")(errno.into()))?;
        let path = env::temp_dir().join(format!("claimfs-demo-{}", process::id()));
        let unusable = |source| Error::Folder { path: path.clone(), source };
        fs::create_dir(&path).map_err(unusable)?;
        // The kernel lists mounts without links.
        let path = path.canonicalize().map_err(unusable)?;
        Ok(Self { path, _turn: turn })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What is mounted in it.
    pub(super) fn mounts(&self) -> Result<Vec<PathBuf>, Error> {
        hold::mounts_below(&self.path).map_err(Error::io("cannot read which mounts there are"))
    }

    /// Takes it away, with what a runtime that was killed has left mounted there. Nobody holds a child process any more.
    pub(super) fn clear(self) -> Result<(), Error> {
        wait_for_all();
        // What is mounted by somebody who is still there would be emptied with the folder.
        for _ in 0..ATTEMPTS {
            for mount in self.mounts()?.into_iter().rev() {
                hold::unmount_all(&mount).map_err(|source| Error::Mounted { path: mount, source })?;
            }
        }
        if let Some(path) = self.mounts()?.pop() {
            return Err(Error::Mounted { path, source: io::ErrorKind::ResourceBusy.into() });
        }
        match fs::remove_dir_all(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Folder { path: self.path, source })
            }
            _ => Ok(()),
        }
    }
}

/// Whoever is still there after a while would not end by itself.
pub(super) fn wait_for_all() {
    let end = Instant::now() + ENDING;
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if Instant::now() < end => thread::sleep(LOOK_EVERY),
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// A name that the kernel gives to one process at a time and leaves on no disk, for each folder of specs.
fn take_turn(cdi: &Path) -> Result<UnixListener, Error> {
    let cannot = || Error::io("cannot find out whether there is another demonstration");
    fs::create_dir_all(cdi).map_err(cannot())?;
    let folder = fs::metadata(cdi).map_err(cannot())?;
    let name = format!("claimfs-demo-{}-{}", folder.dev(), folder.ino());
    let address = SocketAddr::from_abstract_name(name).map_err(cannot())?;
    let mut is_told = false;
    loop {
        match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if !is_told {
                    eprintln!("waiting for the end of another demonstration");
                    is_told = true;
                }
                interrupt::check()?;
                thread::sleep(LOOK_EVERY);
            }
            bound => return bound.map_err(cannot()),
        }
    }
}
