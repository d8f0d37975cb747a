//! Who waits for devices: first come, first served.

use std::fmt;

use serde::{Deserialize, Serialize};

/// More do not wait; whoever starts so many has another queue.
pub const MAX_WAITING: usize = 1024;

/// A place in the queue. Whoever waits brings it along, so that it is the same for the next process that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket {
    /// When somebody first asked, on the clock that counts from the start of the machine.
    pub since: u64,
    /// Tells two of the same moment apart.
    pub process: u32,
}

impl fmt::Display for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.since, self.process)
    }
}

/// Whether somebody waits who cannot be served at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It does not.
    Refuse,
    /// It does, in this place.
    Wait(Ticket),
}

/// Whether those who wait are served.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Counter {
    /// Not yet: somebody may come who has waited longer.
    #[default]
    Closed,
    /// In order.
    Open,
}

/// Those who wait, each with what it waits for.
pub struct Queue<T> {
    waiting: Vec<(Ticket, T)>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: Vec::new() }
    }
}

impl<T> Queue<T> {
    /// Takes the place of a ticket; gives back what finds no room.
    pub fn join(&mut self, ticket: Ticket, waiter: T) -> Result<(), T> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(waiter);
        }
        let place = self.waiting.partition_point(|(other, _)| *other <= ticket);
        self.waiting.insert(place, (ticket, waiter));
        Ok(())
    }

    /// Those who wait before a ticket, in order.
    pub fn before(&self, ticket: Ticket) -> impl Iterator<Item = &T> {
        self.waiting.iter().take_while(move |(other, _)| *other < ticket).map(|(_, waiter)| waiter)
    }

    /// Gives up a place.
    pub fn leave(&mut self, ticket: Ticket) -> Option<T> {
        let place = self.waiting.iter().position(|(other, _)| *other == ticket)?;
        Some(self.waiting.remove(place).1)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.waiting.iter().map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(since: u64) -> Ticket {
        Ticket { since, process: 1 }
    }

    #[test]
    fn a_place_is_that_of_the_ticket_whoever_asks_again_first() {
        let mut queue = Queue::default();
        for since in [3, 1, 2] {
            queue.join(ticket(since), since).unwrap();
        }
        assert_eq!(queue.iter().map(|(_, since)| *since).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(queue.before(ticket(3)).copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(queue.leave(ticket(2)), Some(2));
        assert_eq!(queue.leave(ticket(2)), None);
        assert_eq!(queue.before(ticket(3)).count(), 1);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut queue = Queue::default();
        for since in 0..MAX_WAITING as u64 {
            queue.join(ticket(since), ()).unwrap();
        }
        assert_eq!(queue.join(ticket(0), ()), Err(()));
    }
}
