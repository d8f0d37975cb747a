//! What is evaluated.

use std::sync::Arc;

use super::{
    cost::CallCost,
    device::{DeviceInput, Side},
    library::{Declaration, Pattern},
    value::{Failure, Map, Outcome, Value},
};

/// One step of the evaluation.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Constant(Value),
    Path(Box<Path>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Equal(Box<[Self; 2]>),
    NotEqual(Box<[Self; 2]>),
    /// Whether a value is among constants.
    Among(Box<Self>, Arc<Map>),
    Otherwise(Box<Otherwise>),
    Call(Box<Call>),
    /// Something put into the accumulator of a fold, which nobody else sees.
    Insert(Box<Insert>),
    List(Vec<(Self, bool)>),
    Map(Vec<(Self, Self, bool)>),
    Fold(Box<Fold>),
}

/// `optional.or(optional)` or `optional.orValue(value)`, of which the second is evaluated only when it is
/// needed.
#[derive(Debug, Clone)]
pub(super) struct Otherwise {
    pub(super) optional: Node,
    pub(super) otherwise: Node,
    pub(super) result: OtherwiseResult,
    pub(super) not_optional: NotOptional,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherwiseResult {
    Optional,
    Value,
}

/// What becomes of a value of unknown type that is no optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOptional {
    /// It is the result: until 1.36.
    Passed,
    Refused,
}

/// A path on which nothing has to be found out on the way.
#[derive(Debug, Clone)]
pub(super) enum Lookup {
    /// `device.driver`
    Driver,
    /// `device.attributes[domain][name]`
    Entry { side: Side, domain: Arc<str>, name: Arc<str> },
}

impl Lookup {
    /// How many steps it takes the place of.
    pub(super) fn steps(&self) -> u64 {
        match self {
            Self::Driver => 1,
            Self::Entry { .. } => 3,
        }
    }

    /// What is there.
    pub(super) fn find<'d>(&self, device: &'d DeviceInput) -> Result<&'d Value, Failure> {
        match self {
            Self::Driver => Ok(device.driver()),
            Self::Entry { side, domain, name } => device
                .find(*side, domain, name)
                .ok_or_else(|| Failure::no_such_key(&Value::String(Arc::clone(name)))),
        }
    }

    fn of(root: &Root, steps: &[Step]) -> Option<Self> {
        let constant = |step: &Step| match &step.key {
            StepKey::Constant(Value::String(text)) if !step.is_optional => Some(Arc::clone(text)),
            _ => None,
        };
        match (root, steps) {
            (Root::Device, [field]) if *constant(field)? == *"driver" => Some(Self::Driver),
            (Root::Device, [field, domain, name]) => {
                let side = Side::of_field(&constant(field)?)?;
                Some(Self::Entry { side, domain: constant(domain)?, name: constant(name)? })
            }
            _ => None,
        }
    }
}

/// A value and the way from it to another.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) root: Root,
    pub(super) steps: Vec<Step>,
    pub(super) is_presence: bool,
    /// The same, where it is nothing but this.
    pub(super) lookup: Option<Lookup>,
}

impl Path {
    pub(super) fn new(root: Root) -> Self {
        Self { root, steps: Vec::new(), is_presence: false, lookup: None }
    }

    /// Behind a choice, each of its branches is asked.
    pub(super) fn ask_for_presence(&mut self) {
        self.is_presence = true;
        self.lookup = None;
        if let Root::Choice { truthy, falsy, .. } = &mut self.root {
            truthy.ask_for_presence();
            falsy.ask_for_presence();
        }
    }

    /// A step behind a choice is one behind each of its branches.
    pub(super) fn push(&mut self, step: &Step) {
        match &mut self.root {
            Root::Choice { truthy, falsy, .. } => {
                truthy.push(step);
                falsy.push(step);
            }
            _ => {
                self.steps.push(step.clone());
                self.lookup = Lookup::of(&self.root, &self.steps);
            }
        }
    }
}

/// Where a path begins.
#[derive(Debug, Clone)]
pub(super) enum Root {
    Device,
    Local(usize),
    Operand(Node),
    /// `condition ? path : path`
    Choice {
        condition: Node,
        truthy: Box<Path>,
        falsy: Box<Path>,
    },
}

/// One `.field` or `[index]`.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) key: StepKey,
    pub(super) is_optional: bool,
}

#[derive(Debug, Clone)]
pub(super) enum StepKey {
    Constant(Value),
    /// Shared by the branches of a choice.
    Path(Arc<Path>),
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) declaration: &'static Declaration,
    pub(super) cost: CallCost,
    pub(super) strictness: Strictness,
    /// The constant pattern of a function that takes one.
    pub(super) pattern: Option<Pattern>,
    /// What comes out each time, where that is known.
    pub(super) outcome: Option<Outcome>,
    pub(super) args: Vec<Node>,
}

/// What an argument that fails means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// All are evaluated, and the first failure is the result.
    All,
    /// Those behind it are not evaluated.
    Stop,
    /// It is an argument like any other.
    Lenient,
}

#[derive(Debug, Clone)]
pub(super) struct Insert {
    pub(super) slot: usize,
    pub(super) kind: InsertKind,
    pub(super) cost: CallCost,
}

#[derive(Debug, Clone)]
pub(super) enum InsertKind {
    /// The elements of a list.
    Elements(Node),
    /// The entries of a map.
    Entries(Node),
    /// One entry.
    Entry { key: Node, value: Node },
}

#[derive(Debug, Clone)]
pub(super) struct Fold {
    pub(super) range: Node,
    pub(super) slot: usize,
    pub(super) has_second: bool,
    pub(super) init: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// What an element of a literal adds to it.
pub(super) fn optional_element(value: Value, is_optional: bool) -> Result<Option<Value>, Failure> {
    match value {
        Value::Optional(inner) if is_optional => Ok(inner.map(Arc::unwrap_or_clone)),
        other if is_optional => {
            let found = other.type_name();
            Err(Failure::because(format!(
                "cannot initialize optional list element from non-optional value {found}"
            )))
        }
        other => Ok(Some(other)),
    }
}

/// Puts an entry of a literal into it: one without a value takes the key away.
pub(super) fn insert_entry(
    map: &mut Map,
    key: Value,
    value: Value,
    is_optional: bool,
) -> Result<(), Failure> {
    match optional_element(value, is_optional)? {
        Some(value) => {
            map.insert(key, value)?;
        }
        None => map.remove(&key),
    }
    Ok(())
}
