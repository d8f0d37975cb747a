//! A claim for somebody: allocated, waited for if need be, and prepared.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{
    super::{
        books::{Asked, Waiting},
        presence::{Asker, RunId},
        queue::Patience,
        refusal::Refusal,
        users,
    },
    Desk, Granted, Wanted,
};
use crate::claims::{ClaimRef, Stored};

impl Desk {
    /// Gives somebody a claim. `tell` hears how many are before it, and whether it is still wanted.
    pub async fn acquire(
        self: &Arc<Self>,
        wanted: Wanted,
        asker: &Asker,
        patience: Patience,
        tell: &mpsc::Sender<usize>,
    ) -> Result<Granted, Refusal> {
        if let Some(run) = asker.run() {
            if !self.is_present(run)? {
                return Err(Refusal::NoRun { run: run.to_string() });
            }
            self.follow(run);
        }
        let run = asker.user();
        let is_new = matches!(wanted, Wanted::New(_));
        let asked = match wanted {
            Wanted::Named(name) => self.parts.books.join(&name, run).map(Asked::Granted),
            Wanted::New(claim) => {
                if patience == Patience::Refuse {
                    self.let_others_come(asker, tell).await?;
                }
                self.parts.books.ask(*claim, run, patience)
            }
        };
        self.is_here(asker.run());
        let claim = match asked? {
            Asked::Granted(claim) => claim,
            Asked::Waiting(waiting) => self.wait(waiting, tell).await?,
        };
        // It may have ended while it waited, and have been forgotten before it was served.
        if let Some(run) = run {
            self.follow(run);
        }
        match self.parts.preparer.prepare(claim.clone()).await {
            Ok(devices) => {
                info!(%claim, run = run.map(RunId::as_str), "granted");
                Ok(Granted { claim, devices })
            }
            Err(error) => {
                // Others may have joined it meanwhile.
                let is_ours = |stored: &Stored| users::of(stored).iter().all(|user| Some(user) == run);
                if is_new && let Err(undo) = self.release(&claim.uid, is_ours).await {
                    warn!(%claim, %undo, "a claim that cannot be prepared stays");
                }
                Err(error.into())
            }
        }
    }

    async fn wait(&self, waiting: Waiting, tell: &mpsc::Sender<usize>) -> Result<ClaimRef, Refusal> {
        let Waiting { ticket, mut answer, mut before } = waiting;
        loop {
            // Nobody has to hear of a place that is gone, or may be another in a moment.
            if let Ok(answered) = answer.try_recv() {
                return answered;
            }
            let is_gathered = self.gathered.is_cancelled();
            if is_gathered {
                let place = *before.borrow_and_update();
                // One message that is not read yet is enough: the place is told again when it changes.
                let _ = tell.try_send(place);
            }
            tokio::select! {
                answered = &mut answer => return answered.unwrap_or(Err(Refusal::Ending)),
                () = self.gathered.cancelled(), if !is_gathered => {}
                Ok(()) = before.changed(), if is_gathered => {}
                () = tell.closed() => {
                    self.parts.books.give_up(ticket);
                    return Err(Refusal::Ending);
                }
                () = self.shutdown.cancelled() => {
                    self.parts.books.give_up(ticket);
                    return Err(Refusal::Ending);
                }
            }
        }
    }
}
