//! A checked expression made ready to be evaluated many times: what never changes is computed once.

use std::sync::Arc;

use super::{
    Version,
    ast::{Literal, SelectMode},
    checked::{Checked, CheckedFold, Resolved},
    cost::CallCost,
    library::{self, Pattern},
    program::{
        Call, Fold, Insert, InsertKind, Node, NotOptional, Otherwise, OtherwiseResult, Path, Root, Step,
        StepKey, Strictness, insert_entry, optional_element,
    },
    value::{Failure, Map, Value},
};

/// Plans an expression; fails where a constant part does.
pub(super) fn plan(expression: &Checked, version: Version) -> Result<Node, Failure> {
    Planner { version }.node(expression)
}

struct Planner {
    version: Version,
}

impl Planner {
    fn node(&self, expression: &Checked) -> Result<Node, Failure> {
        Ok(match expression {
            Checked::Literal(literal) => Node::Constant(constant(literal)),
            Checked::TypeName(name) => Node::Constant(Value::Type(name)),
            Checked::Device => Node::path(Root::Device),
            Checked::Local(slot) => Node::path(Root::Local(*slot)),
            Checked::Select { operand, field, mode } => {
                let mut path = self.path(operand)?;
                let key = StepKey::Constant(Value::string(field.as_str()));
                path.push(&Step { key, is_optional: *mode == SelectMode::Optional });
                if *mode == SelectMode::Presence {
                    path.ask_for_presence();
                }
                Node::Path(Box::new(path))
            }
            Checked::Index { operand, index, is_optional } => {
                let mut path = self.path(operand)?;
                let key = match self.node(index)? {
                    Node::Constant(value) if value.is_key() => StepKey::Constant(value),
                    Node::Constant(value) => return Err(Failure::invalid_key(&value)),
                    Node::Path(path) => StepKey::Path(Arc::new(*path)),
                    other => StepKey::Path(Arc::new(Path::new(Root::Operand(other)))),
                };
                path.push(&Step { key, is_optional: *is_optional });
                Node::Path(Box::new(path))
            }
            Checked::Call(call) => self.call(call)?,
            Checked::List(elements) => {
                let nodes =
                    elements.iter().map(|(element, is_optional)| Ok((self.node(element)?, *is_optional)));
                let nodes = nodes.collect::<Result<Vec<_>, Failure>>()?;
                folded_list(&nodes)?.unwrap_or(Node::List(nodes))
            }
            Checked::Map(entries) => {
                let nodes = entries
                    .iter()
                    .map(|(key, value, is_optional)| Ok((self.node(key)?, self.node(value)?, *is_optional)));
                let nodes = nodes.collect::<Result<Vec<_>, Failure>>()?;
                folded_map(&nodes)?.unwrap_or(Node::Map(nodes))
            }
            Checked::Fold(fold) => self.fold(fold)?,
        })
    }

    fn path(&self, operand: &Checked) -> Result<Path, Failure> {
        Ok(match self.node(operand)? {
            // What a presence test gives is a value, and no longer a path.
            Node::Path(path) if !path.is_presence => *path,
            other => Path::new(Root::Operand(other)),
        })
    }

    fn fold(&self, fold: &CheckedFold) -> Result<Node, Failure> {
        let step = self.node(&fold.step)?;
        Ok(Node::Fold(Box::new(Fold {
            range: self.node(&fold.range)?,
            slot: fold.slot,
            has_second: fold.has_second,
            init: self.node(&fold.init)?,
            condition: self.node(&fold.condition)?,
            step: in_place(step, fold.slot),
            result: self.node(&fold.result)?,
        })))
    }

    fn call(&self, call: &Resolved) -> Result<Node, Failure> {
        let args = call.args.iter().map(|arg| self.node(arg)).collect::<Result<Vec<_>, _>>()?;
        let args = match call.function.as_str() {
            "_&&_" => return Ok(Node::And(args)),
            "_||_" => return Ok(Node::Or(args)),
            _ => match <[Node; 3]>::try_from(args) {
                Ok([condition, truthy, falsy]) if call.function == "_?_:_" => {
                    let root = Root::Choice {
                        condition,
                        truthy: Box::new(branch(truthy)),
                        falsy: Box::new(branch(falsy)),
                    };
                    return Ok(Node::path(root));
                }
                Ok(args) => Vec::from(args),
                Err(args) => args,
            },
        };
        let args = match <[Node; 2]>::try_from(args) {
            Ok(pair) => match self.operator(call, pair) {
                Ok(node) => return Ok(node),
                Err(pair) => Vec::from(pair),
            },
            Err(args) => args,
        };
        if let [Node::Constant(value)] = args.as_slice()
            && library::is_conversion(&call.function)
        {
            return call.declaration.run(std::slice::from_ref(value)).map(Node::Constant);
        }
        self.plain_call(call, args)
    }

    /// Operators and functions with two arguments that are evaluated in a way of their own.
    fn operator(&self, call: &Resolved, args: [Node; 2]) -> Result<Node, [Node; 2]> {
        match (call.function.as_str(), call.overload) {
            ("_==_", _) => Ok(Node::Equal(Box::new(args))),
            ("_!=_", _) => Ok(Node::NotEqual(Box::new(args))),
            ("or", None | Some("optional_or_optional")) => {
                Ok(self.otherwise(args, OtherwiseResult::Optional))
            }
            ("orValue", None | Some("optional_orValue_value")) => {
                Ok(self.otherwise(args, OtherwiseResult::Value))
            }
            ("@in", Some("in_list")) => {
                let [value, list] = args;
                match among(&list) {
                    Some(known) if known.len() == 0 => Ok(Node::Constant(Value::Bool(false))),
                    Some(known) => Ok(Node::Among(Box::new(value), Arc::new(known))),
                    None => Err([value, list]),
                }
            }
            _ => Err(args),
        }
    }

    fn otherwise(&self, [optional, otherwise]: [Node; 2], result: OtherwiseResult) -> Node {
        let is_former = self.version == Version::V1_36;
        let not_optional = if is_former { NotOptional::Passed } else { NotOptional::Refused };
        Node::Otherwise(Box::new(Otherwise { optional, otherwise, result, not_optional }))
    }

    fn plain_call(&self, call: &Resolved, args: Vec<Node>) -> Result<Node, Failure> {
        let pattern = match (call.function.as_str(), args.get(1)) {
            ("matches" | "find" | "findAll", Some(Node::Constant(Value::String(text)))) => {
                let compiled = Pattern::new(text);
                Some(compiled.map_err(|reason| Failure::because(format!("error parsing regexp: {reason}")))?)
            }
            _ => None,
        };
        let strictness = match call.function.as_str() {
            "@not_strictly_false" => Strictness::Lenient,
            "format" => Strictness::Stop,
            _ if args.len() > 2 || pattern.is_some() => Strictness::Stop,
            // Which overload it is depends on the arguments, so that the first one has to be there.
            name if call.overload.is_none() && !is_operator(name) => Strictness::Stop,
            _ => Strictness::All,
        };
        let former = match (call.function.as_str(), self.version) {
            ("includes", Version::V1_36) => library::find(library::BOUNDED_INCLUDES),
            ("lists.range", Version::V1_36) => library::find(library::UNBOUNDED_RANGE),
            ("indexOf", Version::V1_36) if args.len() == 3 => library::find(library::UNBOUNDED_INDEX_OF),
            ("lastIndexOf", Version::V1_36) if args.len() == 3 => {
                library::find(library::UNBOUNDED_LAST_INDEX_OF)
            }
            _ => None,
        };
        let outcome = match (call.function.as_str(), args.as_slice()) {
            // It costs something each time, and is the same each time.
            ("quantity" | "semver" | "ip" | "cidr" | "url", [Node::Constant(text)]) => {
                Some(call.declaration.run(std::slice::from_ref(text)))
            }
            _ => None,
        };
        Ok(Node::Call(Box::new(Call {
            name: call.function.clone(),
            declaration: former.unwrap_or(call.declaration),
            cost: CallCost::of(&call.function, call.overload, self.version),
            strictness,
            pattern,
            outcome,
            args,
        })))
    }
}

impl Node {
    fn path(root: Root) -> Self {
        Self::Path(Box::new(Path::new(root)))
    }

    fn is_local(&self, slot: usize) -> bool {
        matches!(self, Self::Path(path)
            if path.steps.is_empty() && matches!(path.root, Root::Local(local) if local == slot))
    }
}

/// Whether all overloads of a function are one.
fn is_operator(name: &str) -> bool {
    name.contains('_') || matches!(name, "@in" | "size" | "matches" | "@sortByAssociatedKeys")
}

fn branch(node: Node) -> Path {
    match node {
        Node::Path(path) if !path.is_presence => *path,
        other => Path::new(Root::Operand(other)),
    }
}

/// Rewrites the step of a fold so that it changes its accumulator instead of copying it.
fn in_place(step: Node, slot: usize) -> Node {
    match step {
        Node::Path(mut path) => {
            if let Root::Choice { truthy, .. } = &mut path.root
                && path.steps.is_empty()
                && truthy.steps.is_empty()
                && let Root::Operand(node) = &mut truthy.root
            {
                let step = std::mem::replace(node, Node::Constant(Value::Null));
                *node = in_place(step, slot);
            }
            Node::Path(path)
        }
        Node::Call(mut call) if call.args.first().is_some_and(|first| first.is_local(slot)) => {
            let kind = match (call.name.as_str(), call.args.len()) {
                ("_+_", 2) if matches!(call.args[1], Node::List(_) | Node::Constant(Value::List(_))) => {
                    InsertKind::Elements(call.args.remove(1))
                }
                ("cel.@mapInsert", 2) => InsertKind::Entries(call.args.remove(1)),
                ("cel.@mapInsert", 3) => {
                    let value = call.args.remove(2);
                    InsertKind::Entry { key: call.args.remove(1), value }
                }
                _ => return Node::Call(call),
            };
            Node::Insert(Box::new(Insert { slot, kind, cost: call.cost }))
        }
        other => other,
    }
}

fn constant(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(value) => Value::string(value.as_str()),
        Literal::Bytes(value) => Value::Bytes(value.as_slice().into()),
    }
}

/// A list of constants.
fn folded_list(nodes: &[(Node, bool)]) -> Result<Option<Node>, Failure> {
    let mut values = Vec::new();
    for (node, is_optional) in nodes {
        let Node::Constant(value) = node else { return Ok(None) };
        values.extend(optional_element(value.clone(), *is_optional)?);
    }
    Ok(Some(Node::Constant(Value::List(Arc::new(values)))))
}

/// A map of constants.
fn folded_map(nodes: &[(Node, Node, bool)]) -> Result<Option<Node>, Failure> {
    let mut map = Map::default();
    for (key, value, is_optional) in nodes {
        let (Node::Constant(key), Node::Constant(value)) = (key, value) else { return Ok(None) };
        insert_entry(&mut map, key.clone(), value.clone(), *is_optional)?;
    }
    Ok(Some(Node::Constant(Value::Map(Arc::new(map)))))
}

/// The constants of a list by which a value is found without a search.
fn among(list: &Node) -> Option<Map> {
    let Node::Constant(Value::List(list)) = list else { return None };
    let mut known = Map::default();
    for element in &**list {
        if matches!(element, Value::Null) {
            return None;
        }
        known.insert(element.clone(), Value::Bool(true)).ok()?;
    }
    Some(known)
}
