//! Those who waited when an earlier daemon ended. They come back one by one, and nobody is served before all have, so that
//! it is their tickets that decide, and not who was quicker.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::mpsc, time};
use tracing::info;

use super::{
    super::{
        presence::{Asker, RunId},
        refusal::Refusal,
        users,
    },
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
        for run in &awaited {
            self.follow(run);
        }
        let desk = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = desk.shutdown.cancelled() => {}
                () = desk.gathered.cancelled() => {}
                () = time::sleep(GATHER_WITHIN) => {
                    info!("no longer waiting for those who waited before");
                    desk.open();
                }
            }
        });
        Ok(())
    }

    /// Lets those take their places who have waited longer than somebody who does not wait at all.
    pub(super) async fn let_others_come(
        &self,
        asker: &Asker,
        tell: &mpsc::Sender<usize>,
    ) -> Result<(), Refusal> {
        self.is_here(asker.run());
        tokio::select! {
            () = self.gathered.cancelled() => Ok(()),
            () = tell.closed() => Err(Refusal::Ending),
            () = self.shutdown.cancelled() => Err(Refusal::Ending),
        }
    }

    /// Takes note that somebody need not be waited for any more: it has come back, or ended.
    pub(super) fn is_here(&self, run: Option<&RunId>) {
        let is_last = {
            let mut awaited = self.awaited();
            run.is_some_and(|run| awaited.remove(run)) && awaited.is_empty()
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
