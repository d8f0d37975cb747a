//! Keeps what is shown up to date, and alive.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::UnixStream,
    sync::{oneshot, watch},
    task::{JoinError, spawn_blocking},
    time,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::{
    claims::Claims,
    discover::Found,
    exhibit::{Error, Exhibit, Mode},
    hold::Client,
    prepare::Preparer,
};

/// Between two attempts to get a holder or a mount.
const AGAIN: Duration = Duration::from_millis(500);
/// How long claims that come and go are gathered.
const GATHER: Duration = Duration::from_millis(5);

/// What is shown, and what it is about.
pub(super) struct Show<C> {
    exhibit: Arc<Exhibit>,
    inventory: watch::Receiver<Arc<Found>>,
    preparer: Arc<Preparer<C>>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl<C: Claims> Show<C> {
    /// Fills in what there is, and serves it.
    pub(super) fn start(
        exhibit: Arc<Exhibit>,
        inventory: watch::Receiver<Arc<Found>>,
        preparer: Arc<Preparer<C>>,
    ) -> Result<Self, Error> {
        exhibit.refresh(&Arc::clone(&inventory.borrow()), &preparer.owners())?;
        let ended = exhibit.serve()?;
        Ok(Self { exhibit, inventory, preparer, ended })
    }

    /// What is shown.
    pub(super) fn exhibit(&self) -> Arc<Exhibit> {
        Arc::clone(&self.exhibit)
    }

    /// How containers read.
    pub(super) fn mode(&self) -> Mode {
        self.exhibit.mode()
    }
}

/// Follows the inventory, the mount and the holder until the shutdown is asked for. At the end all stays as it
/// is: readers wait for whoever comes next.
pub(super) async fn run<C: Claims>(
    show: Option<Show<C>>,
    shutdown: CancellationToken,
) -> Result<(), JoinError> {
    let Some(Show { exhibit, mut inventory, preparer, mut ended }) = show else { return Ok(()) };
    let mut holder = Box::pin(wait_for_the_end(Arc::clone(&exhibit)));
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => break,
            Ok(()) = inventory.changed() => Event::Inventory,
            () = preparer.changed() => Event::Claims,
            reason = &mut ended => Event::Unmounted(reason),
            () = &mut holder => Event::Orphaned,
            () = exhibit.hidden() => Event::Claims,
        };
        let outcome = match event {
            Event::Inventory => {
                let found = Arc::clone(&inventory.borrow_and_update());
                let owners = preparer.owners();
                aside(&exhibit, move |exhibit| exhibit.refresh(&found, &owners)).await?
            }
            Event::Claims => {
                // Nobody waits for it: first the kubelet gets its answer, and others may come meanwhile.
                time::sleep(GATHER).await;
                let devices = preparer.changed_devices();
                let owners = preparer.owners_of(&devices);
                // Without taking note of a change that is still to come.
                let found = Arc::clone(&inventory.borrow());
                let work = move |exhibit: &Exhibit| {
                    exhibit.clear().and(exhibit.refresh_devices(&found, &devices, &owners))
                };
                aside(&exhibit, work).await?
            }
            Event::Unmounted(reason) => {
                error!(?reason, "the file system was taken away; mounting it again");
                again(&exhibit, Exhibit::serve, &shutdown).await?.map(|next| {
                    ended = next;
                })
            }
            Event::Orphaned => {
                warn!("the holder is gone; starting another");
                let restored = again(&exhibit, Exhibit::restore, &shutdown).await?;
                holder = Box::pin(wait_for_the_end(Arc::clone(&exhibit)));
                restored
            }
        };
        if let Err(error) = outcome {
            error!(%error, "what containers read about their devices may be old");
        }
    }
    if let Err(error) = aside(&exhibit, Exhibit::clear).await? {
        warn!(%error, "what is not needed any more goes at the next start");
    }
    Ok(())
}

enum Event {
    Inventory,
    Claims,
    Unmounted(Result<io::Result<()>, oneshot::error::RecvError>),
    Orphaned,
}

/// Not on the thread that answers the kubelet.
async fn aside<T: Send + 'static>(
    exhibit: &Arc<Exhibit>,
    work: impl FnOnce(&Exhibit) -> Result<T, Error> + Send + 'static,
) -> Result<Result<T, Error>, JoinError> {
    let exhibit = Arc::clone(exhibit);
    spawn_blocking(move || work(&exhibit)).await
}

/// Until it succeeds, or nobody wants it any more.
async fn again<T: Send + 'static>(
    exhibit: &Arc<Exhibit>,
    work: fn(&Exhibit) -> Result<T, Error>,
    shutdown: &CancellationToken,
) -> Result<Result<T, Error>, JoinError> {
    loop {
        match aside(exhibit, work).await? {
            Err(error) if !shutdown.is_cancelled() => {
                warn!(%error, "not yet");
                time::sleep(AGAIN).await;
            }
            outcome => return Ok(outcome),
        }
    }
}

/// Ends when the holder does, or when there is none.
async fn wait_for_the_end(exhibit: Arc<Exhibit>) {
    let Ok(socket) = Client::connect(exhibit.holder_socket()).and_then(Client::into_socket) else { return };
    let Ok(socket) = UnixStream::from_std(socket) else { return };
    // It says nothing that was not asked for, so what can be read is its end.
    let _ = socket.readable().await;
}
