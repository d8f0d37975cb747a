//! Runs, followed to their ends, and what is released then.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::spawn_blocking, time};
use tracing::{info, warn};

use super::{
    super::{presence::RunId, refusal::Refusal, users},
    Desk, Phase, engines,
};
use crate::{
    claims::Stored,
    device::ClaimUid,
    exhibit::{self, Exhibit},
};

/// How often it is looked whether a container still runs that a daemon of its runtime has started: nobody tells.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often, in the end, where only a look tells that it is over.
const LOOK_OFTEN: Duration = Duration::from_secs(4);
/// How often, in the end, where what is looked for hardly ever is there.
const LOOK_SELDOM: Duration = Duration::from_secs(60);
/// What podman starts for one container and leaves running for others: it has every descriptor that podman had.
const STRANGERS: [&str; 1] = ["aardvark-dns"];

/// Who has a run open that nobody leads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keepers {
    /// What it has started, as far as that can be seen.
    Own,
    /// Also those who inherited it by chance, and serve others as well: nobody tells when the others end.
    Mixed,
    /// Those alone.
    Strangers,
}

impl Keepers {
    /// By the names of their programs.
    fn of(names: &[String]) -> Self {
        let strangers = names.iter().filter(|name| STRANGERS.contains(&name.as_str())).count();
        match strangers {
            0 => Self::Own,
            all if all == names.len() => Self::Strangers,
            _ => Self::Mixed,
        }
    }
}

/// What was seen when it was looked which claims containers have mounted.
#[derive(Default)]
pub(super) struct Seen {
    begun: Option<Instant>,
    mounted: BTreeSet<ClaimUid>,
}

impl Desk {
    /// Follows a run to its end, unless somebody does.
    pub(super) fn follow(self: &Arc<Self>, run: &RunId) {
        let mut followed = self.followed();
        if followed.contains_key(run) {
            return;
        }
        let (phase, seen) = watch::channel(Phase::Present);
        followed.insert(run.clone(), seen);
        let (desk, run) = (Arc::clone(self), run.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = desk.shutdown.clone().cancelled_owned() => {}
                () = desk.follow_to_the_end(&run, &phase) => {
                    desk.followed().remove(&run);
                    phase.send_replace(Phase::Over);
                }
            }
        });
    }

    async fn follow_to_the_end(self: &Arc<Self>, run: &RunId, phase: &watch::Sender<Phase>) {
        self.follow_to_the_last(run).await;
        self.is_here(Some(run));
        while let Err(error) = self.leave(run, phase).await {
            warn!(%run, %error, "a run that is over is not released yet");
            time::sleep(LOOK_EVERY).await;
        }
        self.parts.runs.remove(run);
        // Others may have been killed before they could ask for anything.
        if let Err(error) = self.sweep() {
            warn!(%error, "what runs have left stays until the next one ends");
        }
    }

    /// Waits until nobody has a run open for whom its claim would be kept. Where only what it has started does, it is
    /// looked at ever more rarely what that is, unless nobody else would tell of its end.
    async fn follow_to_the_last(&self, run: &RunId) {
        let mut pause = LOOK_EVERY;
        loop {
            tokio::select! {
                gone = self.parts.runs.gone(run) => match gone {
                    Ok(()) => return,
                    Err(error) => {
                        warn!(%run, %error, "cannot follow a run");
                        time::sleep(LOOK_EVERY).await;
                    }
                },
                () = time::sleep(pause) => match self.parts.runs.is_led(run) {
                    Ok(true) => {}
                    Ok(false) => {
                        let longest = match self.keepers(run).await {
                            Keepers::Strangers => return,
                            Keepers::Mixed => LOOK_OFTEN,
                            Keepers::Own => LOOK_SELDOM,
                        };
                        self.end_unstarted(self.parts.books.last_used_by(run)).await;
                        pause = (pause * 2).min(longest);
                    }
                    Err(error) => warn!(%run, %error, "cannot see whether a run goes on without its beginner"),
                },
            }
        }
    }

    /// Releases what a run has used. A container that its runtime's daemon has started may still use it; where the run
    /// was cut short, that daemon may be about to start one.
    async fn leave(self: &Arc<Self>, run: &RunId, phase: &watch::Sender<Phase>) -> Result<(), Refusal> {
        let mut settled = Instant::now();
        if self.parts.runs.is_cut_short(run) {
            let within = spawn_blocking(engines::settle_within).await;
            settled += within.map_err(|error| Refusal::Prepare(error.into()))?;
        }
        for looks in 1_u32.. {
            let (claims, began) = (self.parts.books.last_used_by(run), Instant::now());
            if claims.is_empty() {
                break;
            }
            if self.is_mounted(&claims).await? {
                phase.send_replace(Phase::InUse);
                self.parts.books.touch();
                // Such a one is there from the start: ever more rarely.
                if looks.is_power_of_two() {
                    self.end_unstarted(claims).await;
                }
                self.next_look().await;
            } else if settled <= began {
                break;
            } else {
                self.next_look().await;
            }
        }
        for claim in self.parts.books.last_used_by(run) {
            self.release(&claim, |stored| users::goes_with(stored, run)).await?;
        }
        self.parts.books.leave(run)
    }

    /// First what containers could find, then the claim itself: whoever comes after a crash sees it, and goes on.
    pub(super) async fn release(
        self: &Arc<Self>,
        claim: &ClaimUid,
        is_over: impl FnOnce(&Stored) -> bool,
    ) -> Result<(), Refusal> {
        if !self.parts.books.begin_release(claim, is_over) {
            return Ok(());
        }
        let (desk, claim) = (Arc::clone(self), claim.clone());
        // In a task of its own: who has begun has to end, whoever still wants to know.
        let work = self.tasks.spawn(async move { desk.take_back(&claim).await });
        work.await.map_err(|error| Refusal::Prepare(error.into()))?
    }

    /// Ends a release that has begun.
    pub(super) async fn take_back(&self, claim: &ClaimUid) -> Result<(), Refusal> {
        let released = self.parts.preparer.unprepare(claim.clone()).await;
        self.parts.books.end_release(claim, released.map_err(Refusal::from))
    }

    /// Who has a run open.
    async fn keepers(&self, run: &RunId) -> Keepers {
        let fifo = run.fifo().clone();
        match self.look_around(move |exhibit| exhibit.keepers(&fifo)).await {
            Ok(names) => Keepers::of(&names),
            Err(error) => {
                warn!(%run, %error, "cannot see who keeps a run");
                Keepers::Own
            }
        }
    }

    /// Whether a container anywhere on this machine has mounted what it reads about one of these claims. A look goes
    /// through all processes of the machine, so one answers all who have asked before it began.
    pub(super) async fn is_mounted(&self, claims: &[ClaimUid]) -> Result<bool, Refusal> {
        let asked = Instant::now();
        let mut seen = self.seen.lock().await;
        if seen.begun.is_none_or(|begun| begun <= asked) {
            let (begun, all) = (Instant::now(), self.parts.books.all());
            let mounted = self.look_around(move |exhibit| exhibit.used(&all)).await?;
            *seen = Seen { begun: Some(begun), mounted: mounted.into_iter().collect() };
        }
        Ok(claims.iter().any(|claim| seen.mounted.contains(claim)))
    }

    /// All look at the same moments.
    async fn next_look(&self) {
        let since = self.opened.elapsed().as_millis() % LOOK_EVERY.as_millis();
        time::sleep(LOOK_EVERY.saturating_sub(Duration::from_millis(u64::try_from(since).unwrap_or(0))))
            .await;
    }

    /// Ends containers that whoever made them did not live to start: they would keep their devices for ever.
    async fn end_unstarted(&self, claims: Vec<ClaimUid>) {
        match self.look_around(move |exhibit| exhibit.end_unstarted(&claims)).await {
            Ok(ended) if ended.is_empty() => {}
            Ok(_) => info!("ended containers that were made and never started"),
            Err(error) => warn!(%error, "cannot see whether containers were made and never started"),
        }
    }

    async fn look_around<T: Default + Send + 'static>(
        &self,
        look: impl FnOnce(&Exhibit) -> Result<T, exhibit::Error> + Send + 'static,
    ) -> Result<T, Refusal> {
        let Some(exhibit) = self.parts.exhibit.clone() else { return Ok(T::default()) };
        let seen = spawn_blocking(move || look(&exhibit)).await;
        seen.map_err(|error| Refusal::Prepare(error.into()))?.map_err(|error| Refusal::Prepare(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_a_run_is_told_from_who_has_it_by_chance() {
        for (names, expected) in [
            (&[][..], Keepers::Own),
            (&["conmon"], Keepers::Own),
            (&["aardvark-dns", "conmon"], Keepers::Mixed),
            (&["aardvark-dns"], Keepers::Strangers),
        ] {
            let names: Vec<String> = names.iter().map(|name| String::from(*name)).collect();
            assert_eq!(Keepers::of(&names), expected, "{names:?}");
        }
    }
}
