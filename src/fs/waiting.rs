//! Readers that wait for a newer version than the one they have.
//!
//! The kernel tells only whoever serves at that moment that somebody waits. So who waits is written down as
//! well, by the kernel's numbers: a successor wakes them all, and those who have nothing new wait again.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use fuser::{Notifier, PollHandle, PollNotifier};
use tracing::warn;

use super::{Handle, Inode};

/// When the notes are longer than this, those that are of no use any more are left out.
const MAX_NOTES: usize = 8192;

pub(super) struct Waiting(Mutex<State>);

struct State {
    readers: BTreeMap<Handle, HashMap<u64, PollNotifier>>,
    notes: File,
    noted: usize,
}

impl Waiting {
    /// With nobody in it. Answers also with those who waited for the one before us; they stay noted, because
    /// we could die before they are woken.
    pub(super) fn open(notes: &Path) -> io::Result<(Self, Vec<PollHandle>)> {
        let mut options = fs::OpenOptions::new();
        let mut notes = options.read(true).write(true).create(true).truncate(false).open(notes)?;
        let mut before = Vec::new();
        notes.read_to_end(&mut before)?;
        // One that was not written as a whole is that of a reader whom nobody has answered yet.
        let before: Vec<PollHandle> =
            before.as_chunks::<8>().0.iter().map(|note| PollHandle(u64::from_ne_bytes(*note))).collect();
        notes.seek(SeekFrom::Start(before.len() as u64 * 8))?;
        let state = State { readers: BTreeMap::new(), notes, noted: before.len() };
        Ok((Self(Mutex::new(state)), before))
    }

    /// Each open file waits once, however often it asks.
    pub(super) fn add(&self, handle: Handle, notifier: PollNotifier) {
        let mut state = self.state();
        let number = notifier.handle().0;
        if state.readers.entry(handle).or_default().insert(number, notifier).is_none()
            && let Err(error) = state.note(number)
        {
            warn!(%error, "a reader who waits is not woken by a successor");
        }
    }

    /// Those who wait for a file; they wait no longer.
    pub(super) fn take(&self, inode: Inode) -> Vec<PollNotifier> {
        let mut state = self.state();
        let all = Handle { inode, id: 0 }..=Handle { inode, id: u64::MAX };
        let handles: Vec<Handle> = state.readers.range(all).map(|(handle, _)| *handle).collect();
        let readers = handles.iter().filter_map(|handle| state.readers.remove(handle));
        readers.flat_map(HashMap::into_values).collect()
    }

    /// Nobody has this version open any more.
    pub(super) fn forget(&self, handle: Handle) {
        self.state().readers.remove(&handle);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self, number: u64) -> io::Result<()> {
        self.notes.write_all(&number.to_ne_bytes())?;
        self.noted += 1;
        if self.noted > MAX_NOTES.max(2 * self.readers.len()) {
            let numbers: Vec<u8> = self
                .readers
                .values()
                .flat_map(HashMap::keys)
                .flat_map(|number| number.to_ne_bytes())
                .collect();
            // The new ones first: whoever is noted twice for a moment is woken twice.
            self.notes.rewind()?;
            self.notes.write_all(&numbers)?;
            self.notes.set_len(numbers.len() as u64)?;
            self.noted = numbers.len() / 8;
        }
        Ok(())
    }
}

/// Wakes those who waited for the one before us.
pub(super) fn wake(notifier: &Notifier, before: Vec<PollHandle>) {
    for reader in before {
        // Who has gone away does not wait.
        let _ = notifier.poll(reader);
    }
}
