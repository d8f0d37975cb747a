//! Going through lists and maps, and what is collected on the way.

use std::sync::Arc;

use super::{Evaluated, Evaluation, Slot, Stop};
use crate::cel::{
    program::{Fold, Insert, InsertKind},
    value::{Failure, Map, Value},
};

impl<'e> Evaluation<'e> {
    pub(super) fn fold(&mut self, fold: &'e Fold) -> Evaluated {
        let range = self.node(&fold.range)?;
        self.slots[fold.slot] = Slot::Later(&fold.init);
        match &range {
            Value::List(list) if fold.has_second => {
                for (place, element) in list.iter().enumerate() {
                    let place = Value::Int(i64::try_from(place).unwrap_or(i64::MAX));
                    if !self.iterate(fold, place, element.clone())? {
                        break;
                    }
                }
            }
            Value::List(list) => {
                for element in &**list {
                    if !self.iterate(fold, element.clone(), Value::Null)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    if !self.iterate(fold, key.clone(), value.clone())? {
                        break;
                    }
                }
            }
            other => {
                let found = other.native_name();
                let reason = if fold.has_second {
                    format!("unsupported comprehension range type: {found}")
                } else {
                    format!("got '{found}', expected iterable type")
                };
                return Err(Failure::because(reason).into());
            }
        }
        self.node(&fold.result)
    }

    /// One round; whether there is another.
    fn iterate(&mut self, fold: &'e Fold, first: Value, second: Value) -> Result<bool, Stop> {
        self.slots[fold.slot + 1] = Slot::Value(first);
        self.slots[fold.slot + 2] = Slot::Value(second);
        if let Ok(Value::Bool(false)) = self.attempt(&fold.condition)? {
            return Ok(false);
        }
        self.slots[fold.slot] = match self.attempt(&fold.step)? {
            Ok(value) => Slot::Value(value),
            Err(failure) => Slot::Failed(failure),
        };
        Ok(true)
    }

    pub(super) fn insert(&mut self, insert: &'e Insert) -> Evaluated {
        let accumulator = self.local(insert.slot);
        self.charge(1)?;
        let is_failed = accumulator.is_err();
        // Only the slot may hold it, or else it would be copied.
        drop(accumulator);
        let added = match &insert.kind {
            InsertKind::Elements(list) => self.attempt(list)?.map(Added::List),
            InsertKind::Entries(map) => self.attempt(map)?.map(Added::Map),
            InsertKind::Entry { .. } if is_failed => Err(Failure::NoOverload),
            InsertKind::Entry { key, value } => match self.attempt(key)? {
                Ok(key) => self.attempt(value)?.map(|value| Added::Entry(key, value)),
                Err(failure) => return Err(failure.into()),
            },
        };
        if !(is_failed && matches!(insert.kind, InsertKind::Entry { .. })) {
            self.charge(insert.cost.charge(&|_| None, None))?;
        }
        match std::mem::take(&mut self.slots[insert.slot]) {
            Slot::Value(mut accumulator) => {
                added?.put_into(&mut accumulator)?;
                Ok(accumulator)
            }
            Slot::Failed(failure) => Err(failure.into()),
            Slot::Empty | Slot::Later(_) => Err(Failure::NoOverload.into()),
        }
    }
}

/// What is put into an accumulator.
enum Added {
    List(Value),
    Map(Value),
    Entry(Value, Value),
}

impl Added {
    fn put_into(self, accumulator: &mut Value) -> Result<(), Failure> {
        let insert = |map: &mut Map, key: Value, value: Value| match map.get(&key) {
            Some(_) => Err(Failure::because(format!("insert failed: key {key} already exists"))),
            None => map.insert(key, value).map(drop),
        };
        match (self, accumulator) {
            (Self::List(Value::List(added)), Value::List(list)) => {
                Arc::make_mut(list).extend(added.iter().cloned());
                Ok(())
            }
            (Self::Map(Value::Map(added)), Value::Map(map)) => {
                let map = Arc::make_mut(map);
                added.iter().try_for_each(|(key, value)| insert(map, key.clone(), value.clone()))
            }
            (Self::Entry(key, value), Value::Map(map)) => insert(Arc::make_mut(map), key, value),
            _ => Err(Failure::NoOverload),
        }
    }
}
