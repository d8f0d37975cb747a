//! Who has what, and who waits for what. Every change is made under one lock, and written before it is told.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::{
    classes,
    decide::{self, Machine, Withheld},
    kernel,
    manifest::{self, Lifetime},
    misfit,
    presence::RunId,
    queue::{Counter, MAX_WAITING, Patience, Queue, Ticket},
    refusal::Refusal,
    users,
};
use crate::{
    claims::{ClaimRef, Folder, Stored},
    device::{ClaimUid, DriverName, NodeName},
    discover::Found,
    objects::qualified,
};

/// What does not change.
pub struct Settings {
    /// Our driver.
    pub driver: DriverName,
    /// This node.
    pub node: NodeName,
    /// Where classes are.
    pub classes: PathBuf,
}

/// What comes of a question.
pub enum Asked {
    /// It has devices.
    Granted(ClaimRef),
    /// It waits.
    Waiting(Waiting),
}

/// Somebody who waits.
pub struct Waiting {
    /// Its place.
    pub ticket: Ticket,
    /// What it gets in the end.
    pub answer: oneshot::Receiver<Result<ClaimRef, Refusal>>,
    /// How many are before it.
    pub before: watch::Receiver<usize>,
}

/// The other end of it.
struct Waiter {
    stored: Stored,
    answer: oneshot::Sender<Result<ClaimRef, Refusal>>,
    before: watch::Sender<usize>,
}

/// All claims of this machine, and all who wait.
pub struct Books {
    settings: Settings,
    folder: Arc<Folder>,
    inventory: watch::Receiver<Arc<Found>>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    counter: Counter,
    queue: Queue<Waiter>,
    /// Claims that are being released: they hold their devices, but nobody can join them.
    leaving: BTreeSet<ClaimUid>,
}

impl Books {
    /// As they are in the folder. Whoever waits is not served yet.
    #[must_use]
    pub fn open(settings: Settings, folder: Arc<Folder>, inventory: watch::Receiver<Arc<Found>>) -> Self {
        let (state, changed) = (Mutex::default(), watch::Sender::new(()));
        Self { settings, folder, inventory, state, changed }
    }

    /// Tells of every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Tells of a change elsewhere that those who follow the books want to know.
    pub fn touch(&self) {
        self.changed.send_replace(());
    }

    /// From here on those who wait are served.
    pub fn open_counter(&self) {
        self.state().counter = Counter::Open;
        self.serve();
    }

    /// Makes a claim and gives it devices, for a run or to be kept.
    pub fn ask(
        &self,
        claim: ResourceClaim,
        run: Option<&RunId>,
        patience: Patience,
    ) -> Result<Asked, Refusal> {
        let mut state = self.state();
        let (lifetime, uid) = match (run, claim.metadata.uid.as_ref().and_then(|uid| uid.parse().ok())) {
            (Some(_), _) => (Lifetime::Run, new_uid()?),
            (None, Some(uid)) => (Lifetime::Kept, uid),
            (None, None) => (Lifetime::Kept, new_uid()?),
        };
        // Somebody may ask again who has not heard the answer.
        let is_it = |stored: &Arc<Stored>| {
            stored.claim.uid == uid || run.is_some_and(|run| users::is_reserved(stored, run))
        };
        if let Some(granted) = self.folder.all().into_iter().find(is_it) {
            return Ok(Asked::Granted(granted.claim.clone()));
        }
        let mut stored = manifest::complete(claim, &uid, lifetime, &self.settings.driver)?;
        if let Some(run) = run {
            users::reserve(&mut stored.object, run);
        }
        self.check_name(&stored.claim)?;
        let before: Vec<&Stored> = match patience {
            Patience::Wait(ticket) => state.queue.before(ticket).map(|waiter| &waiter.stored).collect(),
            Patience::Refuse => state.queue.iter().map(|(_, waiter)| &waiter.stored).collect(),
        };
        let never = |why| Refusal::Never { why };
        let outcome = self.with_machine(|machine| {
            let mut withheld = Withheld::new();
            for other in before {
                withheld.extend(machine.wanted_by(other)?);
            }
            let decided = machine.decide(&stored, &withheld);
            if let Ok(Some(result)) = decided {
                return Ok(Ok(result));
            }
            let why = misfit::describe(machine, &stored, &withheld);
            // Where what it wants is taken, others are looked at, for which an expression may be none.
            Ok(Err(match (machine.could_ever_fit(&stored), decided) {
                (Ok(true), _) => Refusal::Misfit { why },
                (_, Err(error @ decide::Error::NoClass { .. })) => return Err(error),
                (_, Err(_)) | (Err(_), _) => Refusal::Unfit { why },
                (Ok(false), _) => never(why),
            }))
        })?;
        match (outcome, patience) {
            (Ok(_), Patience::Wait(ticket)) if state.counter == Counter::Closed => {
                self.line_up(&mut state, ticket, stored)
            }
            (Ok(result), _) => Ok(Asked::Granted(self.grant(stored, result)?)),
            (Err(Refusal::Misfit { .. }), Patience::Wait(ticket)) => self.line_up(&mut state, ticket, stored),
            (Err(refusal), _) => Err(refusal),
        }
    }

    fn line_up(&self, state: &mut State, ticket: Ticket, stored: Stored) -> Result<Asked, Refusal> {
        let (answer, answered) = oneshot::channel();
        let (place, before) = watch::channel(0);
        let waiter = Waiter { stored, answer, before: place };
        // Whoever asks again in the same place has hung up on the call before.
        drop(state.queue.leave(ticket));
        let joined = state.queue.join(ticket, waiter);
        joined.map_err(|_| Refusal::Crowded { waiting: MAX_WAITING })?;
        state.tell_places();
        self.changed.send_replace(());
        Ok(Asked::Waiting(Waiting { ticket, answer: answered, before }))
    }

    /// Lets a run use a claim that is there.
    pub fn join(&self, name: &str, run: Option<&RunId>) -> Result<ClaimRef, Refusal> {
        let state = self.state();
        let stored = self.find(&state, name)?;
        if let Some(run) = run.filter(|run| !users::is_reserved(&stored, run)) {
            let mut stored = Stored::clone(&stored);
            users::reserve(&mut stored.object, run);
            self.folder.put(stored)?;
            self.changed.send_replace(());
        }
        Ok(stored.claim.clone())
    }

    /// Gives up a place in the queue.
    pub fn give_up(&self, ticket: Ticket) {
        if self.state().queue.leave(ticket).is_some() {
            self.serve();
        }
    }

    /// Gives devices to those who wait, in order. Nobody gets what somebody before it could use.
    pub fn serve(&self) {
        let mut state = self.state();
        let mut withheld = Withheld::new();
        let mut served = Vec::new();
        let is_open = state.counter == Counter::Open;
        for (ticket, waiter) in state.queue.iter().filter(|_| is_open) {
            let decided = self.check_name(&waiter.stored.claim).and_then(|()| {
                self.with_machine(|machine| {
                    if machine.found.devices.keys().all(|device| withheld.contains(device)) {
                        return Ok(None);
                    }
                    let result = match machine.decide(&waiter.stored, &withheld) {
                        Err(_) if machine.could_ever_fit(&waiter.stored)? => None,
                        decided => decided?,
                    };
                    if result.is_none() {
                        withheld.extend(machine.wanted_by(&waiter.stored)?);
                    }
                    Ok(result)
                })
            });
            match decided {
                Ok(None) => {}
                // Somebody may be writing them just now.
                Err(refusal @ Refusal::Classes(_)) => warn!(%refusal, "those who wait are not served"),
                Ok(Some(result)) => served.push((ticket, self.grant(waiter.stored.clone(), result))),
                Err(refusal) => served.push((ticket, Err(refusal))),
            }
        }
        for (ticket, outcome) in served {
            if let Some(waiter) = state.queue.leave(ticket) {
                // Whoever has hung up meanwhile has a run that is over, and is released like one.
                let _ = waiter.answer.send(outcome);
            }
        }
        state.tell_places();
        drop(state);
        self.changed.send_replace(());
    }

    /// The claims that only this run uses, and that go with it.
    #[must_use]
    pub fn last_used_by(&self, run: &RunId) -> Vec<ClaimUid> {
        let _state = self.state();
        let all = self.folder.all();
        all.iter()
            .filter(|stored| users::goes_with(stored, run))
            .map(|stored| stored.claim.uid.clone())
            .collect()
    }

    /// Ends a run's use of what others use, too, or what is kept.
    pub fn leave(&self, run: &RunId) -> Result<(), Refusal> {
        let _state = self.state();
        for stored in self.folder.all() {
            if users::is_reserved(&stored, run) && !users::goes_with(&stored, run) {
                let mut stored = Stored::clone(&stored);
                users::leave(&mut stored.object, run);
                self.folder.put(stored)?;
            }
        }
        self.changed.send_replace(());
        Ok(())
    }

    /// Begins to release a claim, after which nobody can join it. False where it is not as it has to be for that any
    /// more, or somebody else does so already, or has done so.
    #[must_use]
    pub fn begin_release(&self, claim: &ClaimUid, is_over: impl FnOnce(&Stored) -> bool) -> bool {
        let mut state = self.state();
        self.folder.find(claim).is_some_and(|stored| is_over(&stored)) && state.leaving.insert(claim.clone())
    }

    /// The same for a claim by its name; one that is used is refused.
    pub fn begin_delete(&self, name: &str) -> Result<ClaimRef, Refusal> {
        let mut state = self.state();
        let stored = self.find(&state, name)?;
        let runs = users::of(&stored);
        if !runs.is_empty() {
            let runs: Vec<&str> = runs.iter().map(RunId::as_str).collect();
            let by = format!("run {}", runs.join(", run "));
            return Err(Refusal::InUse { claim: stored.claim.clone(), by });
        }
        state.leaving.insert(stored.claim.uid.clone());
        Ok(stored.claim.clone())
    }

    /// Ends it: the claim is gone, or it stays after all.
    pub fn end_release(&self, claim: &ClaimUid, released: Result<(), Refusal>) -> Result<(), Refusal> {
        let outcome = {
            let mut state = self.state();
            let outcome = released.and_then(|()| Ok(self.folder.remove(claim)?));
            state.leaving.remove(claim);
            outcome
        };
        self.serve();
        outcome
    }

    /// Those that are there, without those that are going.
    #[must_use]
    pub fn claims(&self) -> Vec<Arc<Stored>> {
        let state = self.state();
        self.folder.all().into_iter().filter(|stored| !state.leaving.contains(&stored.claim.uid)).collect()
    }

    /// All that hold devices, also those that are going.
    #[must_use]
    pub fn all(&self) -> Vec<ClaimUid> {
        self.folder.all().iter().map(|stored| stored.claim.uid.clone()).collect()
    }

    /// Those who wait, in order.
    #[must_use]
    pub fn waiting<T>(&self, tell: impl Fn(&Stored) -> T) -> Vec<T> {
        self.state().queue.iter().map(|(_, waiter)| tell(&waiter.stored)).collect()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.queue.is_empty() && self.folder.all().is_empty()
    }

    fn grant(&self, mut stored: Stored, result: AllocationResult) -> Result<ClaimRef, Refusal> {
        stored.object.status.get_or_insert_default().allocation = Some(result);
        let claim = stored.claim.clone();
        self.folder.put(stored)?;
        self.changed.send_replace(());
        Ok(claim)
    }

    fn check_name(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        let is_taken = |stored: &Arc<Stored>| stored.claim.to_string() == claim.to_string();
        match self.folder.all().iter().find(|stored| is_taken(stored)) {
            Some(stored) => Err(Refusal::Exists { claim: stored.claim.clone() }),
            None => Ok(()),
        }
    }

    fn find(&self, state: &State, name: &str) -> Result<Arc<Stored>, Refusal> {
        let name = qualified(name);
        let is_it = |stored: &Arc<Stored>| {
            stored.claim.to_string() == name && !state.leaving.contains(&stored.claim.uid)
        };
        self.folder.all().into_iter().find(is_it).ok_or(Refusal::NoClaim { name })
    }

    fn with_machine<T>(
        &self,
        work: impl FnOnce(&Machine<'_>) -> Result<T, decide::Error>,
    ) -> Result<T, Refusal> {
        let Settings { driver, node, classes } = &self.settings;
        let found = Arc::clone(&self.inventory.borrow());
        let machine = Machine {
            driver,
            node,
            found: &found,
            classes: &classes::read(classes, driver)?,
            claims: &self.folder.all(),
            // Without the kernel's numbers a share has the name of no other, too: the time.
            new_share_id: &|| {
                kernel::uuid()
                    .unwrap_or_else(|_| kernel::ticket().map(|ticket| ticket.to_string()).unwrap_or_default())
            },
        };
        work(&machine).map_err(|error| match error {
            decide::Error::NoClass { .. } => Refusal::NoClass { source: error, folder: classes.clone() },
            error => Refusal::Decide(error),
        })
    }

    /// What is in it is whole at every moment, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_uid() -> Result<ClaimUid, Refusal> {
    let uid = kernel::uuid().map_err(Refusal::Random)?;
    uid.parse().map_err(|error| Refusal::Random(std::io::Error::other(error)))
}

impl State {
    fn tell_places(&self) {
        for (place, (_, waiter)) in self.queue.iter().enumerate() {
            waiter.before.send_if_modified(|before| std::mem::replace(before, place) != place);
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::standalone::{decide::tests::Bench, manifest::quick};

    const GPU: &str = "device.attributes['claimfs.dev'].source == 'gpu'";
    const NIC: &str = "device.attributes['claimfs.dev'].source == 'nic'";

    /// One device of each kind, and the folder that goes with the books.
    fn books() -> (Books, TempDir) {
        let place = TempDir::new().unwrap();
        let bench = Bench::new("[{name: gpu, simulated: {count: 1}}, {name: nic, simulated: {count: 1}}]");
        let settings = Settings {
            driver: DriverName::default(),
            node: "n1".parse().unwrap(),
            classes: place.path().join("classes"),
        };
        let folder = Arc::new(Folder::open(place.path().join("claims")).unwrap());
        let (_, inventory) = watch::channel(Arc::new(bench.found));
        let books = Books::open(settings, folder, inventory);
        books.open_counter();
        (books, place)
    }

    fn run(name: &str) -> RunId {
        RunId::parse(name).unwrap()
    }

    fn ask(books: &Books, name: &str, kind: &str, patience: Patience) -> Result<Asked, String> {
        let claim = quick("claimfs.dev", &[kind.to_owned()], 1);
        books.ask(claim, Some(&run(name)), patience).map_err(|refusal| refusal.to_string())
    }

    fn granted(asked: Result<Asked, String>) -> ClaimRef {
        match asked.unwrap() {
            Asked::Granted(claim) => claim,
            Asked::Waiting(_) => panic!("it waits"),
        }
    }

    fn waiting(asked: Result<Asked, String>) -> Waiting {
        match asked.unwrap() {
            Asked::Granted(claim) => panic!("{claim} was granted"),
            Asked::Waiting(waiting) => waiting,
        }
    }

    fn wait(since: u64) -> Patience {
        Patience::Wait(Ticket { since, process: 1 })
    }

    fn release(books: &Books, claim: &ClaimRef) {
        assert!(!books.begin_release(&claim.uid, |_| false));
        assert!(books.begin_release(&claim.uid, |_| true));
        assert!(!books.begin_release(&claim.uid, |_| true));
        books.end_release(&claim.uid, Ok(())).unwrap();
    }

    #[tokio::test]
    async fn who_waits_is_served_in_order_and_others_pass_only_for_what_nobody_waits_for() {
        let (books, _place) = books();
        let first = granted(ask(&books, "r1", GPU, Patience::Refuse));
        let mut second = waiting(ask(&books, "r2", GPU, wait(2)));
        let mut third = waiting(ask(&books, "r3", GPU, wait(3)));
        assert_eq!((*second.before.borrow(), *third.before.borrow()), (0, 1));
        let nic = granted(ask(&books, "r4", NIC, Patience::Refuse));
        release(&books, &first);
        let second_claim = (&mut second.answer).await.unwrap().unwrap();
        assert!(third.answer.try_recv().is_err());
        release(&books, &second_claim);
        let third_claim = third.answer.await.unwrap().unwrap();
        for claim in [nic, third_claim] {
            release(&books, &claim);
        }
        assert!(books.is_empty());
    }

    #[tokio::test]
    async fn whoever_comes_back_later_with_an_older_ticket_is_served_first() {
        let (books, _place) = books();
        books.state().counter = Counter::Closed;
        let mut second = waiting(ask(&books, "r2", GPU, wait(2)));
        let first = waiting(ask(&books, "r1", GPU, wait(1)));
        assert_eq!((*first.before.borrow(), *second.before.borrow()), (0, 1));
        books.open_counter();
        let claim = first.answer.await.unwrap().unwrap();
        assert!(second.answer.try_recv().is_err());
        release(&books, &claim);
        second.answer.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_free_device_is_kept_for_whoever_waits_for_more() {
        let (books, _place) = books();
        let gpu = granted(ask(&books, "r1", GPU, Patience::Refuse));
        let both = quick("claimfs.dev", &[], 2);
        let both = books.ask(both, Some(&run("r2")), wait(2)).map_err(|refusal| refusal.to_string());
        let both = waiting(both);
        let error = ask(&books, "r3", NIC, Patience::Refuse).err().unwrap();
        assert!(error.contains("nic-0: in use by others who wait"), "{error}");
        books.give_up(both.ticket);
        granted(ask(&books, "r3", NIC, Patience::Refuse));
        release(&books, &gpu);
    }

    #[test]
    fn whoever_asks_again_for_what_stays_gets_the_same() {
        let (books, _place) = books();
        let mut claim = quick("claimfs.dev", &[GPU.to_owned()], 1);
        claim.metadata.uid = Some(String::from("0f9e8d7c-1234-4abc-9def-001122334455"));
        let keep = || books.ask(claim.clone(), None, Patience::Refuse).map_err(|error| error.to_string());
        let first = granted(keep());
        assert_eq!(granted(keep()), first);
        assert_eq!(books.claims().len(), 1);
    }

    #[test]
    fn the_same_run_gets_the_same_answer_and_shares_last_until_the_last() {
        let (books, _place) = books();
        let claim = granted(ask(&books, "r1", GPU, Patience::Refuse));
        assert_eq!(granted(ask(&books, "r1", GPU, Patience::Refuse)), claim);
        assert_eq!(books.join(&claim.to_string(), Some(&run("r2"))).unwrap(), claim);
        assert!(books.last_used_by(&run("r1")).is_empty());
        books.leave(&run("r1")).unwrap();
        assert_eq!(books.last_used_by(&run("r2")), std::slice::from_ref(&claim.uid));
        assert!(matches!(books.begin_delete(claim.name.as_str()), Err(Refusal::InUse { .. })));
        books.leave(&run("r2")).unwrap();
        assert!(matches!(books.join("other", None), Err(Refusal::NoClaim { .. })));
    }
}
