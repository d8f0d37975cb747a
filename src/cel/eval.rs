//! The evaluation of a program on one device.
//!
//! What fails is a value like any other until something needs it: `&&` and `||` go on looking for an answer
//! that does not depend on it. Only the limit of the cost ends everything at once.

mod fold;

use std::{borrow::Cow, iter, sync::Arc};

use super::{
    args::Args,
    cost::{self, CallCost, Cost},
    device::DeviceInput,
    library,
    place::{Key, Place},
    program::{
        Call, Node, NotOptional, OtherwiseResult, Path, Root, Step, StepKey, Strictness, insert_entry,
        optional_element,
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
    device: &'e DeviceInput,
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
    pub(super) fn new(device: &'e DeviceInput, slots: usize) -> Self {
        Self { device, cost: 0, slots: iter::repeat_with(Slot::default).take(slots).collect() }
    }

    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    fn charge(&mut self, cost: Cost) -> Result<(), Stop> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > cost::LIMIT { Err(Stop::CostLimit) } else { Ok(()) }
    }

    /// Charges one so many times.
    fn charge_ones(&mut self, times: Cost) -> Result<(), Stop> {
        self.charge(times).inspect_err(|_| self.cost = cost::LIMIT + 1)
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

    /// The same, not copied where it is there already.
    fn attempt_in_place(&mut self, node: &'e Node) -> Result<Result<Cow<'e, Value>, Failure>, Stop> {
        match node {
            Node::Constant(value) => Ok(Ok(Cow::Borrowed(value))),
            Node::Path(path) => match &path.lookup {
                Some(lookup) => {
                    self.charge_ones(lookup.steps() + 1)?;
                    Ok(lookup.find(self.device).map(Cow::Borrowed))
                }
                None => Ok(self.attempt(node)?.map(Cow::Owned)),
            },
            _ => Ok(self.attempt(node)?.map(Cow::Owned)),
        }
    }

    fn sides(
        &mut self,
        sides: &'e [Node; 2],
        cost: CallCost,
        compare: impl Fn(&Value, &Value) -> Result<bool, Failure>,
    ) -> Evaluated {
        let one = self.attempt_in_place(&sides[0])?;
        let other = self.attempt_in_place(&sides[1])?;
        let argument = |place: usize| [&one, &other][place].as_deref().ok();
        self.charge(cost.charge(&argument, None))?;
        let (one, other) = (one?, other?);
        Ok(Value::Bool(compare(&one, &other)?))
    }

    fn call(&mut self, call: &'e Call) -> Evaluated {
        let mut args = Args::new(call.args.len());
        for (place, arg) in call.args.iter().enumerate() {
            let is_last = place + 1 == call.args.len();
            if !args.push(self.attempt(arg)?) && call.strictness == Strictness::Stop && !is_last {
                break;
            }
        }
        if call.strictness == Strictness::Lenient {
            self.charge(1)?;
            let is_false = matches!(args.get(0), Some(Value::Bool(false)));
            return Ok(Value::Bool(!is_false));
        }
        if let Some(failure) = args.failure() {
            // A call of which an argument was never evaluated costs nothing.
            if args.len() == call.args.len() {
                self.charge(call.cost.charge(&|place| args.get(place), None))?;
            }
            return Err(failure.clone().into());
        }
        // What would cost too much is not even begun.
        if !call.cost.needs_result() {
            self.charge(call.cost.charge(&|place| args.get(place), None))?;
        }
        let outcome = match (&call.outcome, &call.pattern) {
            (Some(known), _) => known.clone(),
            (None, Some(pattern)) => library::run_pattern(&call.name, pattern, args.all()),
            (None, None) => call.declaration.run(args.all()),
        };
        if call.cost.needs_result() && !matches!(outcome, Err(Failure::TooLarge)) {
            self.charge(call.cost.charge(&|place| args.get(place), outcome.as_ref().ok()))?;
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

    /// The value at the end of a path, without the cost of its beginning.
    fn path(&mut self, path: &'e Path) -> Evaluated {
        if let Some(lookup) = &path.lookup {
            self.charge_ones(lookup.steps())?;
            return Ok(lookup.find(self.device)?.clone());
        }
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
