//! What is there now.
//!
//! [`Inventory::build`] looks for the first time and starts watching; [`Inventory::run`] looks again
//! whenever a folder concerned changes, and sends a whole new snapshot when the answer differs.
//! Nothing is polled: at rest it sleeps.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use inotify::{Inotify, WatchDescriptor, WatchMask};
use tokio::{sync::watch, time};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    config::Config,
    discover::{self, Found, Roots},
};

/// A device that appears brings several events (node, link, permissions): look once they are over.
const SETTLE: Duration = Duration::from_millis(50);
/// A machine that never settles is looked at all the same.
const SETTLE_MAX: Duration = Duration::from_millis(400);

/// Why there is no inventory (any more).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel gave no inotify instance.
    #[error(
        "cannot watch for devices: {0}; is fs.inotify.max_user_instances reached? (sysctl shows and sets it)"
    )]
    Start(#[source] io::Error),
    /// There is nothing to look at.
    #[error(transparent)]
    Discover(#[from] discover::Error),
    /// A folder cannot be watched.
    #[error("cannot watch {}: {source}; is fs.inotify.max_user_watches reached? (sysctl shows and sets it)", .folder.display())]
    Watch {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The stream of events broke.
    #[error("watching for devices ended: {0}")]
    Events(#[source] io::Error),
    /// A look at the machine panicked.
    #[error("looking for devices ended: {0}")]
    Scan(#[from] tokio::task::JoinError),
}

/// Looks at the machine and keeps looking.
pub struct Inventory {
    sight: Arc<Sight>,
    inotify: Inotify,
    watched: Vec<WatchDescriptor>,
    snapshots: watch::Sender<Arc<Found>>,
}

/// What is looked for, and where.
struct Sight {
    config: Config,
    roots: Roots,
}

impl Inventory {
    /// Starts watching and takes the first snapshot.
    pub fn build(config: Config, roots: Roots) -> Result<Self, Error> {
        discover::check(&config, &roots)?;
        let inotify = Inotify::init().map_err(Error::Start)?;
        let sight = Arc::new(Sight { config, roots });
        let mut inventory =
            Self { sight, inotify, watched: Vec::new(), snapshots: watch::Sender::new(Arc::default()) };
        let (watched, found) = inventory.sight.look(&mut inventory.inotify.watches(), &[])?;
        inventory.watched = watched;
        inventory.snapshots.send_replace(Arc::new(found));
        Ok(inventory)
    }

    /// The snapshots: the newest now, and every later one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Found>> {
        self.snapshots.subscribe()
    }

    /// Follows the machine until the shutdown is asked for.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { sight, inotify, mut watched, snapshots } = self;
        let watches = inotify.watches();
        let mut events = inotify.into_event_stream([0; 4096]).map_err(Error::Events)?;
        loop {
            let event = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                event = events.next() => event,
            };
            match event {
                Some(event) => event.map_err(Error::Events)?,
                None => return Err(Error::Events(io::ErrorKind::UnexpectedEof.into())),
            };
            let deadline = time::Instant::now() + SETTLE_MAX;
            while time::Instant::now() < deadline {
                match time::timeout(SETTLE, events.next()).await {
                    Ok(Some(event)) => drop(event.map_err(Error::Events)?),
                    Ok(None) => return Err(Error::Events(io::ErrorKind::UnexpectedEof.into())),
                    Err(_quiet) => break,
                }
            }
            let (looking, mut handle) = (Arc::clone(&sight), watches.clone());
            let look = move || looking.look(&mut handle, &watched);
            let found;
            (watched, found) = tokio::task::spawn_blocking(look).await??;
            snapshots.send_if_modified(|current| {
                let changed = **current != found;
                for notice in found.notices.iter().filter(|notice| !current.notices.contains(notice)) {
                    warn!(%notice, "something is left out");
                }
                if changed {
                    *current = Arc::new(found);
                }
                changed
            });
        }
    }
}

impl Sight {
    /// The watches come first: what changes during the scan is seen as an event.
    fn look(
        &self,
        watches: &mut inotify::Watches,
        before: &[WatchDescriptor],
    ) -> Result<(Vec<WatchDescriptor>, Found), Error> {
        let watched = watch_folders(self, watches, before)?;
        Ok((watched, discover::scan(&self.config, &self.roots)))
    }
}

fn is_passed_over(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

/// Watches every folder concerned and no other; answers with the watches. Repeated until no folder has
/// appeared meanwhile: from then on, one that appears is an event in its parent.
fn watch_folders(
    sight: &Sight,
    watches: &mut inotify::Watches,
    before: &[WatchDescriptor],
) -> Result<Vec<WatchDescriptor>, Error> {
    let mask = WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    let mut folders = discover::folders(&sight.config, &sight.roots);
    let watched = loop {
        let mut watched = Vec::with_capacity(folders.len());
        for folder in &folders {
            // Reports are written, nodes only appear.
            let is_reports = sight.config.reports.as_ref().is_some_and(|reports| reports.as_path() == folder);
            let mask = if is_reports { mask | WatchMask::CLOSE_WRITE } else { mask };
            match watches.add(folder, mask) {
                Ok(watch) => watched.push(watch),
                // Gone meanwhile, which its parent tells; or not ours to read, of which the scan gives notice.
                Err(error) if is_passed_over(&error) => {}
                Err(source) => return Err(Error::Watch { folder: folder.clone(), source }),
            }
        }
        let now = discover::folders(&sight.config, &sight.roots);
        if now.is_subset(&folders) {
            break watched;
        }
        folders = now;
    };
    for old in before.iter().filter(|old| !watched.contains(old)) {
        // The kernel has removed the watch itself when the folder is gone.
        let _ = watches.remove(old.clone());
    }
    Ok(watched)
}

#[cfg(test)]
mod tests;
