//! The evaluation of a program on one device.
//!
//! What fails is a value like any other until something needs it: `&&` and `||` go on looking for an answer
//! that does not depend on it. Only the limit of the cost ends everything at once.

use std::sync::Arc;

use super::{
    cost::{self, CallCost, Cost},
    device::DeviceInput,
    library,
    place::{Key, Place},
    program::{
        Call, Fold, Insert, InsertKind, Node, NotOptional, OtherwiseResult, Path, Root, Step, StepKey,
        Strictness, insert_entry, optional_element,
    },
    value::{Failure, Map, Value},
};

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    Failed(Failure),
    CostLimit,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TooLarge => Self::CostLimit,
            other => Self::Failed(other),
        }
    }
}

type Evaluated = Result<Value, Stop>;

/// The state of one evaluation.
pub(super) struct Evaluation<'e> {
    device: &'e DeviceInput<'e>,
    cost: Cost,
    slots: Vec<Slot<'e>>,
}

/// A variable of a fold.
#[derive(Debug, Clone, Default)]
enum Slot<'e> {
    #[default]
    Empty,
    /// Evaluated when it is first asked for.
    Later(&'e Node),
    Value(Value),
    Failed(Failure),
}

impl<'e> Evaluation<'e> {
    pub(super) fn new(device: &'e DeviceInput<'e>, slots: usize) -> Self {
        Self { device, cost: 0, slots: vec![Slot::Empty; slots] }
    }

    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    fn charge(&mut self, cost: Cost) -> Result<(), Stop> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > cost::LIMIT { Err(Stop::CostLimit) } else { Ok(()) }
    }

    /// What is charged for a value whether it failed or not; the limit wins.
    fn charged(&mut self, cost: Cost, value: Evaluated) -> Evaluated {
        if !matches!(value, Err(Stop::CostLimit)) {
            self.charge(cost)?;
        }
        value
    }

    pub(super) fn node(&mut self, node: &'e Node) -> Evaluated {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Path(path) => {
                let value = self.path(path);
                let is_choice = matches!(path.root, Root::Choice { .. });
                if is_choice && path.is_presence {
                    // The reference takes back what it has never charged.
                    self.cost = self.cost.saturating_sub(1);
                }
                self.charged(Cost::from(!is_choice && !path.is_presence), value)
            }
            Node::And(terms) => self.terms(terms, false),
            Node::Or(terms) => self.terms(terms, true),
            Node::Equal(sides) => self.sides(sides, CallCost::Equality, Value::equals),
            Node::NotEqual(sides) => {
                self.sides(sides, CallCost::Shorter, |one, other| Ok(one.equals(other) != Ok(true)))
            }
            Node::Among(value, known) => {
                let value = self.node(value)?;
                Ok(Value::Bool(known.get(&value).is_some()))
            }
            Node::Otherwise(otherwise) => match self.node(&otherwise.optional)? {
                Value::Optional(None) => self.node(&otherwise.otherwise),
                Value::Optional(Some(value)) if otherwise.result == OtherwiseResult::Value => {
                    Ok(Arc::unwrap_or_clone(value))
                }
                some @ Value::Optional(_) => Ok(some),
                other if otherwise.not_optional == NotOptional::Passed => Ok(other),
                _ => Err(Failure::NoOverload.into()),
            },
            Node::Call(call) => self.call(call),
            Node::Insert(insert) => self.insert(insert),
            Node::List(elements) => {
                let list = self.list(elements);
                self.charged(cost::LIST, list)
            }
            Node::Map(entries) => {
                let map = self.map(entries);
                self.charged(cost::MAP, map)
            }
            Node::Fold(fold) => self.fold(fold),
        }
    }

    /// Until one term decides; a failure is the answer only if none does.
    fn terms(&mut self, terms: &'e [Node], decisive: bool) -> Evaluated {
        let mut failure = None;
        for term in terms {
            match self.node(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(Failure::NoOverload)),
                Err(Stop::Failed(reason)) => failure = failure.or(Some(reason)),
                Err(Stop::CostLimit) => return Err(Stop::CostLimit),
            }
        }
        match failure {
            Some(failure) => Err(failure.into()),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    /// A value that may have failed, but did not end everything.
    fn attempt(&mut self, node: &'e Node) -> Result<Result<Value, Failure>, Stop> {
        match self.node(node) {
            Ok(value) => Ok(Ok(value)),
            Err(Stop::Failed(failure)) => Ok(Err(failure)),
            Err(Stop::CostLimit) => Err(Stop::CostLimit),
        }
    }

    fn sides(
        &mut self,
        sides: &'e [Node; 2],
        cost: CallCost,
        compare: impl Fn(&Value, &Value) -> Result<bool, Failure>,
    ) -> Evaluated {
        let one = self.attempt(&sides[0])?;
        let other = self.attempt(&sides[1])?;
        self.charge(cost.charge(&[one.as_ref().ok(), other.as_ref().ok()], None))?;
        Ok(Value::Bool(compare(&one?, &other?)?))
    }

    fn call(&mut self, call: &'e Call) -> Evaluated {
        let mut args = Vec::with_capacity(call.args.len());
        let mut failure = None;
        for (place, arg) in call.args.iter().enumerate() {
            match self.attempt(arg)? {
                Ok(value) => args.push(Some(value)),
                Err(reason) => {
                    failure = failure.or(Some(reason));
                    args.push(None);
                    if call.strictness == Strictness::Stop && place + 1 < call.args.len() {
                        break;
                    }
                }
            }
        }
        if call.strictness == Strictness::Lenient {
            self.charge(1)?;
            let is_false = matches!(args.first(), Some(Some(Value::Bool(false))));
            return Ok(Value::Bool(!is_false));
        }
        if let Some(failure) = failure {
            // A call of which an argument was never evaluated costs nothing.
            if args.len() == call.args.len() {
                let seen: Vec<_> = args.iter().map(Option::as_ref).collect();
                self.charge(call.cost.charge(&seen, None))?;
            }
            return Err(failure.into());
        }
        let args: Vec<Value> = args.into_iter().flatten().collect();
        let seen: Vec<_> = args.iter().map(Some).collect();
        // What would cost too much is not even begun.
        if !call.cost.needs_result() {
            self.charge(call.cost.charge(&seen, None))?;
        }
        let outcome = match &call.pattern {
            Some(pattern) => library::run_pattern(&call.name, pattern, &args),
            None => call.declaration.run(&args),
        };
        if call.cost.needs_result() && !matches!(outcome, Err(Failure::TooLarge)) {
            self.charge(call.cost.charge(&seen, outcome.as_ref().ok()))?;
        }
        Ok(outcome?)
    }

    fn list(&mut self, elements: &'e [(Node, bool)]) -> Evaluated {
        let mut list = Vec::with_capacity(elements.len());
        for (element, is_optional) in elements {
            let value = self.node(element)?;
            list.extend(optional_element(value, *is_optional)?);
        }
        Ok(Value::List(Arc::new(list)))
    }

    fn map(&mut self, entries: &'e [(Node, Node, bool)]) -> Evaluated {
        let mut map = Map::default();
        for (key, value, is_optional) in entries {
            let key = self.node(key)?;
            let value = self.node(value)?;
            insert_entry(&mut map, key, value, *is_optional)?;
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn local(&mut self, slot: usize) -> Evaluated {
        if let Slot::Later(node) = &self.slots[slot] {
            let node = *node;
            self.slots[slot] = match self.attempt(node)? {
                Ok(value) => Slot::Value(value),
                Err(failure) => Slot::Failed(failure),
            };
        }
        match &self.slots[slot] {
            Slot::Value(value) => Ok(value.clone()),
            Slot::Failed(failure) => Err(failure.clone().into()),
            Slot::Empty | Slot::Later(_) => Err(Failure::NoOverload.into()),
        }
    }

    fn fold(&mut self, fold: &'e Fold) -> Evaluated {
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

    fn insert(&mut self, insert: &'e Insert) -> Evaluated {
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
            self.charge(insert.cost.charge(&[], None))?;
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

    /// The value at the end of a path, without the cost of its beginning.
    fn path(&mut self, path: &'e Path) -> Evaluated {
        let mut place = match &path.root {
            Root::Device => Place::Device,
            Root::Local(slot) => Place::Value(self.local(*slot)?),
            Root::Operand(node) => Place::Value(self.node(node)?),
            Root::Choice { condition, truthy, falsy } => {
                return match self.node(condition)? {
                    Value::Bool(true) => self.path(truthy),
                    Value::Bool(false) => self.path(falsy),
                    _ => Err(Failure::NoOverload.into()),
                };
            }
        };
        if path.steps.is_empty() {
            return Ok(place.value(self.device));
        }
        let mut is_optional = false;
        if let Place::Value(Value::Optional(inner)) = place {
            is_optional = true;
            match inner {
                None => return Ok(present(path, Value::Optional(None))),
                Some(value) => place = Place::Value(Arc::unwrap_or_clone(value)),
            }
        }
        for (number, step) in path.steps.iter().enumerate() {
            is_optional |= step.is_optional;
            let is_last = number + 1 == path.steps.len();
            let is_test = is_last && path.is_presence;
            let found = match self.key(step) {
                Ok(key) => place.step(key.as_ref(), self.device, is_optional || is_test),
                Err(Stop::CostLimit) => return Err(Stop::CostLimit),
                Err(Stop::Failed(failure)) => Err(failure),
            };
            // What is only perhaps there costs nothing when it is not.
            if is_test || !is_optional || matches!(found, Ok(Some(_))) {
                self.charge(1)?;
            }
            match found? {
                found if is_test => return Ok(Value::Bool(found.is_some())),
                None => return Ok(present(path, Value::Optional(None))),
                Some(next) => place = next,
            }
        }
        let value = place.value(self.device);
        Ok(if is_optional { Value::some(value) } else { value })
    }

    fn key(&mut self, step: &'e Step) -> Result<Key<'e>, Stop> {
        Ok(match &step.key {
            StepKey::Constant(value) => Key::Constant(value),
            StepKey::Path(path) => match self.path(path)? {
                key if key.is_key() => Key::Computed(key),
                other => return Err(Failure::invalid_key(&other).into()),
            },
        })
    }
}

/// What a presence test makes of an optional.
fn present(path: &Path, value: Value) -> Value {
    match value {
        Value::Optional(inner) if path.is_presence => Value::Bool(inner.is_some()),
        other => other,
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
