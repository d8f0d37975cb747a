//! Those who waited when an earlier daemon ended. They come back one by one, and nobody is served before all have, so that
//! it is their tickets that decide, and not who was quicker.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use tokio::time;
use tracing::{info, warn};

use super::{
    super::{presence::RunId, refusal::Refusal, users},
    Desk,
};

/// How long they may take: somebody may have been stopped.
const GATHER_WITHIN: Duration = Duration::from_secs(5);

impl Desk {
    /// Begins to wait for all who are there and have no claim. Whoever has just come is one of them, too.
    pub(super) fn gather(self: &Arc<Self>) -> io::Result<()> {
        let claims = self.parts.books.claims();
        let has_claim = |run: &RunId| claims.iter().any(|stored| users::is_reserved(stored, run));
        let mut awaited = self.parts.runs.led()?;
        awaited.retain(|run| !has_claim(run));
        if awaited.is_empty() {
            self.open();
            return Ok(());
        }
        *self.awaited() = awaited.iter().cloned().collect();
        let desk = Arc::clone(self);
        self.tasks.spawn(async move {
            let gone = join_all(awaited.iter().map(|run| desk.await_end(run)));
            tokio::select! {
                () = desk.shutdown.cancelled() => {}
                () = desk.gathered.cancelled() => {}
                _ = time::timeout(GATHER_WITHIN, gone) => {
                    let missing = desk.awaited().len();
                    info!(missing, "no longer waiting for those who waited before");
                    desk.open();
                }
            }
        });
        Ok(())
    }

    /// Lets those take their places who have waited longer than somebody who does not wait at all.
    pub(super) async fn let_others_come(&self, run: Option<&RunId>) -> Result<(), Refusal> {
        if let Some(run) = run {
            self.is_back(run);
        }
        tokio::select! {
            () = self.gathered.cancelled() => Ok(()),
            () = self.shutdown.cancelled() => Err(Refusal::Ending),
        }
    }

    async fn await_end(&self, run: &RunId) {
        match self.parts.runs.gone(run).await {
            Ok(()) => self.is_back(run),
            Err(error) => warn!(%run, %error, "cannot see whether a run is over"),
        }
    }

    /// Takes note that somebody need not be waited for any more.
    pub(super) fn is_back(&self, run: &RunId) {
        let is_last = {
            let mut awaited = self.awaited();
            awaited.remove(run) && awaited.is_empty()
        };
        if is_last {
            self.open();
        }
    }

    fn open(&self) {
        self.gathered.cancel();
        self.parts.books.open_counter();
    }

    /// The set is whole at every moment, so a panic elsewhere does not spoil it.
    fn awaited(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
