//! The daemon's end of the line to its holder, and to the kernel through it.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::Stdio,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tracing::info;

use super::Error;
use crate::{
    device::{ClaimUid, DriverName, RequestName},
    fs::{Connection, Live, Server, Step, Tree, VersionName},
    hold::{self, Client, Places, Starter},
    program,
};

/// A process starts in milliseconds; a machine under load takes longer.
const START_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How many claims one message is about.
pub(super) const AT_ONCE: usize = 500;
/// How many holders may die on us while we ask.
const ATTEMPTS: usize = 5;

/// Says that the mount has gone away.
pub(super) type Ended = oneshot::Receiver<io::Result<()>>;

/// Where a connection to the kernel is to come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    /// The one who served before, if there is one.
    Predecessor,
    /// A mount of our own.
    Mount,
}

/// Where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Over,
    New,
}

/// What is needed to show something, and to go on when the holder dies.
pub(super) struct Link {
    client: Client,
    way: Way,
}

/// How containers read.
enum Way {
    /// From us, through the kernel.
    Served { device: OwnedFd, greeting: Vec<u8> },
    /// From plain files: these versions are mounted. The mount cannot end, so nobody says so.
    Swapped { mounted: HashMap<(ClaimUid, RequestName), u64>, _never: oneshot::Sender<io::Result<()>> },
}

impl Link {
    /// Serves a connection.
    pub(super) fn serve(
        live: &Arc<Live>,
        places: &Places,
        from: From,
    ) -> Result<(Self, Ended, Taken), Error> {
        let (client, device, greeting) = obtain(places, from)?;
        let taken = if greeting.is_some() { Taken::Over } else { Taken::New };
        let copy = device.try_clone().map_err(Error::Start)?;
        let Server { ended, greeting } = Server::start(live, Connection { device, greeting })?;
        client.keep(greeting.clone(), None)?;
        info!(mount_point = %places.mount_point.display(), ?taken, "the metadata are served");
        Ok((Self { client, way: Way::Served { device: copy, greeting } }, ended, taken))
    }

    /// Shows plain files.
    pub(super) fn swap(places: &Places) -> Result<(Self, Ended), Error> {
        let (never, ended) = oneshot::channel();
        let way = Way::Swapped { mounted: HashMap::new(), _never: never };
        let mut link = Self { client: connect_at_start(places)?, way };
        link.ask(places, Client::expose)?;
        info!(mount_point = %places.mount_point.display(), "the metadata are plain files");
        Ok((link, ended))
    }

    /// Another holder in the place of one that has died, with what that one kept.
    pub(super) fn reconnect(&mut self, places: &Places) -> Result<(), Error> {
        self.client = connect(places)?;
        match &mut self.way {
            Way::Served { device, greeting } => {
                self.client.keep(greeting.clone(), Some(device.as_fd()))?;
            }
            Way::Swapped { mounted, .. } => mounted.clear(),
        }
        Ok(())
    }

    /// Asks the holder. Where the line is broken, over another one: an answer that comes late must not be
    /// taken for that to the next question.
    pub(super) fn ask<T>(
        &mut self,
        places: &Places,
        question: impl Fn(&Client) -> Result<T, hold::Error>,
    ) -> Result<T, Error> {
        match question(&self.client) {
            Err(error) if error.is_the_line() => {
                self.reconnect(places)?;
                Ok(question(&self.client)?)
            }
            answer => Ok(answer?),
        }
    }

    /// Lets containers mount the newest version of a file.
    pub(super) fn anchor(
        &mut self,
        places: &Places,
        live: &Live,
        (claim, request, driver): (&ClaimUid, &RequestName, &DriverName),
        path: &[Step],
    ) -> Result<(), Error> {
        match &self.way {
            Way::Served { .. } => {
                let inode = Tree::inode(path).0;
                self.ask(places, |holder| {
                    holder.anchor(claim.clone(), request.clone(), driver.clone(), inode)
                })
            }
            Way::Swapped { .. } => self.swap_in(places, live, (claim, request), path),
        }
    }

    fn swap_in(
        &mut self,
        places: &Places,
        live: &Live,
        (claim, request): (&ClaimUid, &RequestName),
        path: &[Step],
    ) -> Result<(), Error> {
        let Some(version) = live.version(path) else { return Ok(()) };
        let of = (claim.clone(), request.clone());
        if let Way::Swapped { mounted, .. } = &self.way
            && mounted.get(&of) == Some(&version.id)
        {
            return Ok(());
        }
        let (inode, name) = (Tree::inode(path).0, VersionName::of(&version));
        self.ask(places, |holder| holder.swap(claim.clone(), request.clone(), inode, name))?;
        if let Way::Swapped { mounted, .. } = &mut self.way {
            mounted.insert(of, version.id);
        }
        Ok(())
    }

    /// Takes away what containers of these claims could mount.
    pub(super) fn drop_anchors(&mut self, places: &Places, claims: &[ClaimUid]) -> Result<(), Error> {
        for some in claims.chunks(AT_ONCE) {
            self.ask(places, |holder| holder.drop_anchors(some.to_vec()))?;
        }
        if let Way::Swapped { mounted, .. } = &mut self.way {
            mounted.retain(|(claim, _), _| !claims.contains(claim));
        }
        Ok(())
    }

    /// Ends the holder, with everything that it has mounted.
    pub(super) fn end(self) -> Result<(), Error> {
        Ok(self.client.end()?)
    }

    /// Whether a new version has to be mounted to be seen.
    pub(super) fn has_to_follow(&self) -> bool {
        matches!(self.way, Way::Swapped { .. })
    }
}

/// A holder, and the connection that it has for us. One that is just dying is not the last one.
fn obtain(places: &Places, from: From) -> Result<(Client, OwnedFd, Option<Vec<u8>>), Error> {
    let mut attempt = 1;
    loop {
        let client = connect_at_start(places)?;
        let taken = match from {
            From::Predecessor => client.take(),
            From::Mount => Ok(None),
        };
        let obtained = match taken {
            Ok(Some((device, greeting))) => Ok((device, Some(greeting))),
            Ok(None) => client.mount().map(|device| (device, None)),
            Err(error) => Err(error),
        };
        match obtained {
            Ok((device, greeting)) => return Ok((client, device, greeting)),
            Err(error) if error.is_the_line() && attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// At the start a holder that somebody else starts may come a little later.
fn connect_at_start(places: &Places) -> Result<Client, Error> {
    let deadline = Instant::now() + START_WITHIN;
    loop {
        match connect(places) {
            Err(Error::Hold(hold::Error::Missing { .. })) if Instant::now() < deadline => {
                thread::sleep(LOOK_EVERY);
            }
            connected => return connected,
        }
    }
}

/// The holder that runs, or one that is started now.
fn connect(places: &Places) -> Result<Client, Error> {
    match (Client::connect(&places.socket), places.starter) {
        (Ok(client), _) => return Ok(client),
        (Err(_), Starter::Daemon) => {}
        (Err(error), Starter::Somebody) => {
            let source = Box::new(error);
            return Err(hold::Error::Missing { path: places.socket.clone(), source }.into());
        }
    }
    let mut holder = start(places).map_err(Error::Start)?;
    // It is to outlive us; whoever comes after us finds it by its socket. Until then somebody has to take
    // note of its end.
    thread::spawn(move || holder.wait());
    let deadline = Instant::now() + START_WITHIN;
    loop {
        match Client::connect(&places.socket) {
            Err(_) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            connected => return Ok(connected?),
        }
    }
}

fn start(places: &Places) -> io::Result<std::process::Child> {
    let folder = places.socket.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // Not on our own: whoever reads that waits for its end.
    let log = fs::File::create(folder.join("hold.log"))?;
    program::itself()
        .args(["hold", "--on-demand", "--grace", &places.grace.as_secs().to_string()])
        .arg("--run-dir")
        .arg(folder)
        .arg("--mount-point")
        .arg(&places.mount_point)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}
