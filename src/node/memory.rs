//! Memory that is needed for a moment only.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::publish::Published;

/// Gives back what each round of publishing has left free. The allocator keeps it otherwise, for work that
/// does not come again: a thousand devices are published in megabytes and remembered in kilobytes.
pub(super) async fn stay_small(mut rounds: watch::Receiver<Published>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            round = rounds.changed() => if round.is_err() { return },
        }
        give_back();
    }
}

#[allow(unsafe_code)]
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
