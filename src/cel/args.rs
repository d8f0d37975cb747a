//! The arguments of a call while they are evaluated.

use super::value::{Failure, Value};

/// The arguments of a call; few of them need no memory of their own.
pub(super) struct Args {
    few: [Value; Self::FEW],
    /// All of them, if they are more than a few.
    many: Vec<Value>,
    len: usize,
    /// Those without a value, and why; nothing for nearly every call.
    failed: Vec<(usize, Failure)>,
}

impl Args {
    const FEW: usize = 3;

    /// For so many.
    pub(super) fn new(count: usize) -> Self {
        let many = Vec::with_capacity(if count > Self::FEW { count } else { 0 });
        Self { few: [const { Value::Null }; Self::FEW], many, len: 0, failed: Vec::new() }
    }

    /// Adds the next one; whether it has a value.
    pub(super) fn push(&mut self, arg: Result<Value, Failure>) -> bool {
        let (value, is_there) = match arg {
            Ok(value) => (value, true),
            Err(failure) => {
                self.failed.push((self.len, failure));
                (Value::Null, false)
            }
        };
        if self.many.capacity() > 0 {
            self.many.push(value);
        } else {
            self.few[self.len] = value;
        }
        self.len += 1;
        is_there
    }

    /// How many were added.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Why the first one without a value has none.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failed.first().map(|(_, failure)| failure)
    }

    /// The value in a place, if there is one.
    pub(super) fn get(&self, place: usize) -> Option<&Value> {
        let is_there = self.failed.iter().all(|(failed, _)| *failed != place);
        self.all().get(place).filter(|_| is_there)
    }

    /// All values, where none is missing.
    pub(super) fn all(&self) -> &[Value] {
        if self.many.is_empty() { &self.few[..self.len] } else { &self.many }
    }
}
