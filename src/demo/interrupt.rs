//! Somebody who does not want to see the rest: a signal ends the demonstration, and everything is taken away as at its
//! end.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::Error;
use crate::standalone::runner::Interrupts;

static IS_ASKED: AtomicBool = AtomicBool::new(false);
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// From here on signals do not end this process. What it executes has them as ever.
pub(super) fn listen() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut interrupts = {
        let _within = runtime.enter();
        Interrupts::listen()?
    };
    // Ends with the process.
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                interrupts.next().await;
                IS_ASKED.store(true, Ordering::Relaxed);
            }
        });
    });
    Ok(())
}

/// Whether anybody wants it to end.
pub(super) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// Whether somebody has been told of it, and takes everything away.
pub(super) fn is_known() -> bool {
    IS_KNOWN.load(Ordering::Relaxed)
}

/// For everybody who waits. It is said once, however often it is asked: what is taken away then is waited for.
pub(super) fn check() -> Result<(), Error> {
    let is_news = is_asked() && !IS_KNOWN.swap(true, Ordering::Relaxed);
    if is_news { Err(Error::Interrupted) } else { Ok(()) }
}
