//! One lock a claim, there only while somebody holds or waits for it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OwnedMutexGuard;

use crate::device::ClaimUid;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// All locks that are in use.
#[derive(Default)]
pub(super) struct Locks {
    locks: Arc<Mutex<HashMap<ClaimUid, Lock>>>,
}

/// Held while one claim is worked on.
pub(super) struct Guard {
    claim: ClaimUid,
    locks: Arc<Mutex<HashMap<ClaimUid, Lock>>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Locks {
    /// Waits until nobody else works on the claim.
    pub(super) async fn lock(&self, claim: &ClaimUid) -> Guard {
        let lock = Arc::clone(entries(&self.locks).entry(claim.clone()).or_default());
        let mut guard = Guard { claim: claim.clone(), locks: Arc::clone(&self.locks), held: None };
        guard.held = Some(lock.lock_owned().await);
        guard
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut locks = entries(&self.locks);
        // Ours in the map is the last one: nobody waits.
        if locks.get(&self.claim).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.claim);
        }
    }
}

/// The map is whole at every moment, so a panic elsewhere does not spoil it.
fn entries(locks: &Mutex<HashMap<ClaimUid, Lock>>) -> MutexGuard<'_, HashMap<ClaimUid, Lock>> {
    locks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn locks_exist_only_while_they_are_used() {
        let locks = Locks::default();
        let (one, two): (ClaimUid, ClaimUid) = ("1".parse().unwrap(), "2".parse().unwrap());
        let first = locks.lock(&one).await;
        let other = locks.lock(&two).await;
        let waiting = locks.lock(&one);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(first);
        let second = waiting.await;
        assert_eq!(entries(&locks.locks).len(), 2);
        drop((second, other));
        assert_eq!(entries(&locks.locks).len(), 0);
    }
}
