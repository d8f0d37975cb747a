//! Why an expression says what it says about a device: the part that decided, and what it saw.

use super::{
    DeviceInput, Features,
    ast::{Expr, Kind, Literal, SelectMode, Span},
    check,
    device::Side,
    eval::{Evaluation, Stop},
    parser, plan,
    program::Node,
    value::Value,
};

/// How many elements of a list or names of a map are shown.
const SHOWN: usize = 6;

/// An expression that can be asked for its reasons.
#[derive(Debug)]
pub struct Trace {
    root: Part,
    references: Vec<Reference>,
}

/// The part of an expression that decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reason {
    /// Where it is in the text, in bytes.
    pub span: Span,
    /// What it saw of the device, in the order of the text.
    pub seen: Vec<Seen>,
}

/// What a part of an expression saw.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Where the part is in the text, in bytes.
    pub span: Span,
    /// Its value, or why it has none.
    pub value: String,
}

/// An attribute or capacity that an expression looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Which of the two.
    pub side: Side,
    /// Its domain.
    pub domain: String,
    /// Its name in the domain.
    pub name: String,
}

/// A part of the expression that can be evaluated by itself.
#[derive(Debug)]
struct Part {
    span: Span,
    program: Runnable,
    kind: PartKind,
}

#[derive(Debug)]
enum PartKind {
    /// The first that is not true decides.
    All(Vec<Part>),
    /// None is true.
    Any(Vec<Part>),
    /// The branch that is taken decides.
    Choice(Box<[Part; 3]>),
    /// It decides by what it sees of the device.
    Leaf(Vec<(Span, Runnable)>),
}

#[derive(Debug)]
struct Runnable {
    root: Node,
    slots: usize,
}

impl Runnable {
    /// Nothing where a part means something only within the whole.
    fn new(expression: &Expr, features: Features) -> Option<Self> {
        let checked = check::check(expression, features).ok()?;
        let root = plan::plan(&checked.expression, features.version).ok()?;
        Some(Self { root, slots: checked.slots })
    }

    fn run(&self, device: &DeviceInput) -> Result<Value, String> {
        Evaluation::new(device, self.slots).node(&self.root).map_err(|stop| match stop {
            Stop::Failed(failure) => failure.to_string(),
            Stop::CostLimit => String::from("costs more than is allowed"),
        })
    }
}

impl Trace {
    /// Takes an expression apart; nothing if it is none.
    #[must_use]
    pub fn new(expression: &str, features: Features) -> Option<Self> {
        let parsed = parser::parse(expression).ok()?;
        let root = Part::new(&parsed, features)?;
        let mut references = Vec::new();
        for path in paths(&parsed) {
            references.extend(reference(path));
        }
        references.sort();
        references.dedup();
        Some(Self { root, references })
    }

    /// The attributes and capacities that it looks at by name.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// Why a device is not selected.
    #[must_use]
    pub fn why_not(&self, device: &DeviceInput) -> Reason {
        let (part, seen) = self.root.why_not(device);
        Reason { span: part.span.clone(), seen }
    }
}

impl Part {
    fn new(expression: &Expr, features: Features) -> Option<Self> {
        let part = |expression: &Expr| Self::new(expression, features);
        let call = match &expression.kind {
            Kind::Call(call) => Some((call.function.as_str(), call.args.as_slice())),
            _ => None,
        };
        let kind = match call {
            Some(("_&&_", terms)) => PartKind::All(terms.iter().map(part).collect::<Option<_>>()?),
            Some(("_||_", terms)) => PartKind::Any(terms.iter().map(part).collect::<Option<_>>()?),
            Some(("_?_:_", [condition, truthy, falsy])) => {
                PartKind::Choice(Box::new([part(condition)?, part(truthy)?, part(falsy)?]))
            }
            _ => {
                let mut seen: Vec<(Span, Runnable)> = Vec::new();
                for path in paths(expression) {
                    let is_new = seen.iter().all(|(span, _)| *span != path.span);
                    if is_new && let Some(program) = Runnable::new(path, features) {
                        seen.push((path.span.clone(), program));
                    }
                }
                PartKind::Leaf(seen)
            }
        };
        Some(Self { span: expression.span.clone(), program: Runnable::new(expression, features)?, kind })
    }

    /// What it comes to, if that is a decision.
    fn decision(&self, device: &DeviceInput) -> Option<bool> {
        match self.program.run(device) {
            Ok(Value::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// The part that decided, and what it saw.
    fn why_not(&self, device: &DeviceInput) -> (&Self, Vec<Seen>) {
        match &self.kind {
            // What is false decides even where something before it fails.
            PartKind::All(parts) => {
                let first = parts.iter().find(|part| part.decision(device) == Some(false));
                match first.or_else(|| parts.iter().find(|part| part.decision(device) != Some(true))) {
                    Some(part) => part.why_not(device),
                    None => (self, Vec::new()),
                }
            }
            PartKind::Any(parts) => (self, parts.iter().flat_map(|part| part.why_not(device).1).collect()),
            PartKind::Choice(parts) => {
                let [condition, truthy, falsy] = &**parts;
                let chosen = if condition.decision(device) == Some(true) { truthy } else { falsy };
                let (part, mut seen) = chosen.why_not(device);
                if let Ok(value) = condition.program.run(device) {
                    seen.insert(0, Seen { span: condition.span.clone(), value: shown(&value) });
                }
                (part, seen)
            }
            PartKind::Leaf(paths) => {
                let see = |(span, program): &(Span, Runnable)| {
                    let value = program.run(device).map_or_else(|failure| failure, |value| shown(&value));
                    Seen { span: span.clone(), value }
                };
                (self, paths.iter().map(see).collect())
            }
        }
    }
}

/// The longest ways from the device to something, in the order of the text.
fn paths(expression: &Expr) -> Vec<&Expr> {
    if is_path(expression) && !expression.span.is_empty() {
        return vec![expression];
    }
    let children: Vec<&Expr> = match &expression.kind {
        Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => Vec::new(),
        Kind::Select(select) => vec![&select.operand],
        Kind::Call(call) => call.target.iter().chain(&call.args).collect(),
        Kind::List(elements) => elements.iter().map(|element| &element.value).collect(),
        Kind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
        Kind::Fold(fold) => vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result],
    };
    children.into_iter().flat_map(paths).collect()
}

/// Whether it is the device, or something of it by constant names, and not the device as a whole.
fn is_path(expression: &Expr) -> bool {
    steps(expression).is_some_and(|steps| steps.len() > 1 || steps.contains(&"driver"))
}

/// The names on the way from the device.
fn steps(expression: &Expr) -> Option<Vec<&str>> {
    let (operand, step) = match &expression.kind {
        Kind::Ident(name) if name == "device" => return Some(Vec::new()),
        Kind::Select(select) => (&select.operand, select.field.as_str()),
        Kind::Call(call) if matches!(call.function.as_str(), "_[_]" | "_[?_]") => {
            match call.args.as_slice() {
                [operand, Expr { kind: Kind::Literal(Literal::String(key)), .. }] => (operand, key.as_str()),
                _ => return None,
            }
        }
        _ => return None,
    };
    let mut steps = steps(operand)?;
    steps.push(step);
    Some(steps)
}

fn reference(path: &Expr) -> Option<Reference> {
    // To ask whether something is there is no mistake where it is not.
    if matches!(&path.kind, Kind::Select(select) if select.mode == SelectMode::Presence) {
        return None;
    }
    let steps = steps(path)?;
    let [field, domain, name, ..] = steps.as_slice() else { return None };
    Some(Reference { side: Side::of_field(field)?, domain: (*domain).to_owned(), name: (*name).to_owned() })
}

/// A value as it would be written in an expression, or nearly so.
fn shown(value: &Value) -> String {
    let joined = |texts: Vec<String>, count: usize| {
        let more = if count > SHOWN { ", …" } else { "" };
        format!("{}{more}", texts.join(", "))
    };
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Quantity(quantity) => quantity.to_string(),
        Value::Semver(version) => version.to_string(),
        Value::Optional(None) => String::from("not there"),
        Value::Optional(Some(value)) => shown(value),
        Value::List(list) => {
            format!("[{}]", joined(list.iter().take(SHOWN).map(shown).collect(), list.len()))
        }
        Value::Map(map) if map.len() == 0 => String::from("empty"),
        Value::Map(map) => {
            let names = map.iter().take(SHOWN).map(|(key, _)| key.to_string()).collect();
            format!("{{{}}}", joined(names, map.len()))
        }
        other => other.to_string(),
    }
}
