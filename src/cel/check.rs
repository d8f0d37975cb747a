//! The type checker: an expression becomes one in which every name means something, or a list of flaws.
//!
//! It chooses overloads as the reference does, because the cost of a call depends on whether there was only
//! one to choose.

use super::{
    Features,
    ast::{Call, Element, Entry, Expr, Fold, Kind, Literal, Offset, Select, SelectMode},
    checked::{Checked, CheckedFold, Resolved},
    error::Flaw,
    library::{self, Declaration, Overload},
    literals::{self, Pending},
    similar::did_you_mean,
    types::{Mapping, Object, Type, most_general},
};

/// What a check results in.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) expression: Checked,
    pub(super) result: Type,
    /// How many variables there are at most at the same time.
    pub(super) slots: usize,
}

/// Checks a whole expression.
pub(super) fn check(expression: &Expr, features: Features) -> Result<Outcome, Vec<Flaw>> {
    let mut checker = Checker {
        features,
        mapping: Mapping::default(),
        scope: Vec::new(),
        slots: 0,
        flaws: Vec::new(),
        pending: Pending::default(),
    };
    let (checked, result) = checker.expression(expression);
    if checker.flaws.is_empty() {
        checker.pending.check(&checker.mapping, &mut checker.flaws);
        literals::check(expression, &mut checker.flaws);
    }
    if !checker.flaws.is_empty() {
        return Err(checker.flaws);
    }
    Ok(Outcome { expression: checked, result: checker.mapping.finished(&result), slots: checker.slots })
}

struct Checker {
    features: Features,
    mapping: Mapping,
    /// The variables of the folds around, innermost last; some have no name that can be written.
    scope: Vec<(String, Type, usize)>,
    slots: usize,
    flaws: Vec<Flaw>,
    /// What can only be checked in the end.
    pending: Pending,
}

type Typed = (Checked, Type);

impl Checker {
    fn flaw(&mut self, at: Offset, message: impl Into<String>) {
        self.flaws.push(Flaw::new(at, message));
    }

    /// Stands for what has a flaw.
    fn nothing() -> Typed {
        (Checked::Literal(Literal::Null), Type::Error)
    }

    fn expression(&mut self, expression: &Expr) -> Typed {
        let at = expression.at;
        match &expression.kind {
            Kind::Literal(literal) => (Checked::Literal(literal.clone()), Type::of(literal)),
            Kind::Ident(name) => self.ident(at, name),
            Kind::Select(select) => self.select(expression, select),
            Kind::Call(call) => self.call(at, call),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(at, entries),
            Kind::Message(name) => {
                self.flaw(at, undeclared(name));
                Self::nothing()
            }
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn lookup(&self, name: &str) -> Option<Typed> {
        if let Some((_, of, slot)) = self.scope.iter().rev().find(|(local, _, _)| local == name) {
            return Some((Checked::Local(*slot), of.clone()));
        }
        if name == "device" {
            return Some((Checked::Device, Type::Object(Object::Device)));
        }
        let (name, of) = Type::named(name)?;
        Some((Checked::TypeName(name), Type::Meta(of.into())))
    }

    fn ident(&mut self, at: Offset, name: &str) -> Typed {
        if let Some(found) = self.lookup(name) {
            return found;
        }
        let known = self.scope.iter().map(|(name, _, _)| name.as_str()).chain(["device"]);
        let hint = did_you_mean(name, known);
        self.flaws.push(Flaw::new(at, undeclared(name)).with_hint(hint));
        Self::nothing()
    }

    fn select(&mut self, expression: &Expr, select: &Select) -> Typed {
        // A name with dots means a type only where its first part is no variable.
        if select.mode == SelectMode::Value
            && let Some(name) = expression.qualified_name()
            && name.split('.').next().is_some_and(|root| self.lookup(root).is_none())
            && let Some(found) = self.lookup(&name)
        {
            return found;
        }
        let (operand, operand_type) = self.expression(&select.operand);
        let operand_type = self.mapping.substitute(&operand_type);
        let (target, is_optional) = operand_type.unwrap_optional();
        let field_type = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => self.field(expression.at, *object, &select.field),
            Type::Variable(_) => {
                self.mapping.assign(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.flaw(expression.at, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        let result = match select.mode {
            SelectMode::Presence => Type::Bool,
            SelectMode::Optional => Type::optional(field_type),
            SelectMode::Value if is_optional => Type::optional(field_type),
            SelectMode::Value => field_type,
        };
        let result = self.mapping.substitute(&result);
        let checked =
            Checked::Select { operand: Box::new(operand), field: select.field.clone(), mode: select.mode };
        (checked, result)
    }

    fn field(&mut self, at: Offset, object: Object, field: &str) -> Type {
        let by_name = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
        match (object, field) {
            (Object::Device, "driver") => Type::String,
            (Object::Device, "attributes") => by_name(self.features.attribute_type()),
            (Object::Device, "capacity") => by_name(Type::Object(Object::Quantity)),
            (Object::Device, "allowMultipleAllocations") if self.features.has_multiple_allocations() => {
                Type::Bool
            }
            (object, field) => {
                let known: &[&str] = match object {
                    Object::Device => &["driver", "attributes", "capacity", "allowMultipleAllocations"],
                    _ => &[],
                };
                let hint = did_you_mean(field, known.iter().copied().filter(|known| *known != field));
                self.flaws.push(Flaw::new(at, format!("undefined field '{field}'")).with_hint(hint));
                Type::Error
            }
        }
    }

    fn call(&mut self, at: Offset, call: &Call) -> Typed {
        let literals = self.pending.literals();
        let mut args: Vec<Typed> = call.args.iter().map(|arg| self.expression(arg)).collect();
        self.pending.exempt_template(at, call, literals);
        let Some(target) = &call.target else {
            return match self.find_function(&call.function) {
                Some(declaration) => self.resolve(at, &call.function, declaration, false, args, call),
                None => self.undeclared_function(at, &call.function),
            };
        };
        if let Some(prefix) = target.qualified_name() {
            let name = format!("{prefix}.{}", call.function);
            if let Some(declaration) = library::find(&name) {
                return self.resolve(at, &name, declaration, false, args, call);
            }
        }
        let target = self.expression(target);
        self.pending.exempt_text(call, literals);
        match self.find_function(&call.function) {
            Some(declaration) => {
                args.insert(0, target);
                self.resolve(at, &call.function, declaration, true, args, call)
            }
            None => self.undeclared_function(at, &call.function),
        }
    }

    fn find_function(&self, name: &str) -> Option<&'static Declaration> {
        if name == "includes" && !self.features.has_includes() {
            return None;
        }
        library::find(name)
    }

    fn undeclared_function(&mut self, at: Offset, name: &str) -> Typed {
        let hint = did_you_mean(name, library::names().filter(|known| *known != name));
        self.flaws.push(Flaw::new(at, undeclared(name)).with_hint(hint));
        Self::nothing()
    }

    fn resolve(
        &mut self,
        at: Offset,
        function: &str,
        declaration: &'static Declaration,
        is_member: bool,
        args: Vec<Typed>,
        call: &Call,
    ) -> Typed {
        let (args, types): (Vec<_>, Vec<_>) = args.into_iter().unzip();
        if matches!(function, "_&&_" | "_||_") {
            for (arg, found) in call.args.iter().zip(&types) {
                if !self.mapping.assign(found, &Type::Bool) {
                    let found = self.mapping.substitute(found);
                    self.flaw(arg.at, mismatch(&Type::Bool, &found));
                }
            }
            let resolved = Resolved { function: function.to_owned(), declaration, overload: None, args };
            return (Checked::Call(resolved), Type::Bool);
        }
        let mut chosen: Option<(Vec<&'static str>, Type)> = None;
        for overload in declaration.overloads.iter().filter(|overload| overload.is_member == is_member) {
            let first = self.mapping.fresh(Overload::LETTERS);
            let params: Vec<Type> = overload.params.iter().map(|param| param.instance(first)).collect();
            if !self.mapping.assign_all(&types, &params) {
                continue;
            }
            let result = self.mapping.substitute(&overload.result.instance(first));
            chosen = Some(match chosen {
                None => (vec![overload.id], result),
                Some((mut ids, before)) => {
                    ids.push(overload.id);
                    let is_same = before == Type::Dyn || before == result;
                    (ids, if is_same { before } else { Type::Dyn })
                }
            });
        }
        let Some((ids, result)) = chosen else {
            let types: Vec<_> = types.iter().map(|of| self.mapping.finished(of).to_string()).collect();
            let signature = match types.split_first() {
                Some((target, rest)) if is_member => format!("{target}.({})", rest.join(", ")),
                _ => format!("({})", types.join(", ")),
            };
            let message = format!("found no matching overload for '{function}' applied to '{signature}'");
            let hint = types
                .iter()
                .any(|name| *name == Object::Quantity.name())
                .then(|| comparing(function))
                .flatten();
            self.flaws.push(Flaw::new(at, message).with_hint(hint));
            return Self::nothing();
        };
        let overload = match ids.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        (Self::resolved(function, declaration, overload, args), result)
    }

    /// What has a syntax of its own is no call any more.
    fn resolved(
        function: &str,
        declaration: &'static Declaration,
        overload: Option<&'static str>,
        args: Vec<Checked>,
    ) -> Checked {
        let is_optional = function == "_[?_]";
        match <[Checked; 2]>::try_from(args) {
            Ok([operand, index]) if is_optional || function == "_[_]" => {
                Checked::Index { operand: Box::new(operand), index: Box::new(index), is_optional }
            }
            Ok(args) => {
                let args = args.into();
                Checked::Call(Resolved { function: function.to_owned(), declaration, overload, args })
            }
            Err(args) => {
                Checked::Call(Resolved { function: function.to_owned(), declaration, overload, args })
            }
        }
    }

    fn join(&mut self, before: Option<Type>, found: Type) -> Type {
        let Some(before) = before else { return found };
        // What differs is found in the end, but for the values of a template, which may.
        if self.mapping.assign(&before, &found) { most_general(&before, &found).clone() } else { Type::Dyn }
    }

    /// What an optional element holds.
    fn optional_element(&mut self, at: Offset, is_optional: bool, found: Type) -> Type {
        if !is_optional {
            return found;
        }
        let found = self.mapping.substitute(&found);
        let (inner, was_optional) = found.unwrap_optional();
        if !was_optional && !inner.is_dyn_or_error() {
            self.flaw(at, mismatch(&Type::optional(inner.clone()), inner));
        }
        inner.clone()
    }

    fn list(&mut self, elements: &[Element]) -> Typed {
        let mut joined = None;
        let mut types = Vec::new();
        let mut checked = Vec::new();
        for Element { value, is_optional } in elements {
            let (element, found) = self.expression(value);
            let found = self.optional_element(value.at, *is_optional, found);
            types.push((value.at, found.clone()));
            joined = Some(self.join(joined, found));
            checked.push((element, *is_optional));
        }
        let element = joined.unwrap_or_else(|| Type::Variable(self.mapping.fresh(1)));
        self.pending.literal(types);
        (Checked::List(checked), Type::list(element))
    }

    fn map(&mut self, at: Offset, entries: &[Entry]) -> Typed {
        let (mut joined_key, mut joined_value) = (None, None);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let mut checked = Vec::new();
        for Entry { key, value, is_optional } in entries {
            let (checked_key, key_type) = self.expression(key);
            keys.push((key.at, key_type.clone()));
            joined_key = Some(self.join(joined_key, key_type));
            let (checked_value, value_type) = self.expression(value);
            let value_type = self.optional_element(value.at, *is_optional, value_type);
            values.push((value.at, value_type.clone()));
            joined_value = Some(self.join(joined_value, value_type));
            checked.push((checked_key, checked_value, *is_optional));
        }
        let key = joined_key.unwrap_or_else(|| Type::Variable(self.mapping.fresh(1)));
        let value = joined_value.unwrap_or_else(|| Type::Variable(self.mapping.fresh(1)));
        self.pending.literal(keys);
        self.pending.literal(values);
        let map = Type::map(key, value);
        if !self.mapping.finished(&map).is_small() {
            self.flaw(at, "the type of the map is too large");
            return Self::nothing();
        }
        (Checked::Map(checked), map)
    }

    fn fold(&mut self, fold: &Fold) -> Typed {
        let (range, range_type) = self.expression(&fold.range);
        let (init, accumulator) = self.expression(&fold.init);
        let range_type = self.mapping.substitute(&range_type);
        let has_second = fold.second_variable.is_some();
        let (first, second) = match &range_type {
            Type::List(element) if has_second => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.mapping.assign(&Type::Dyn, &range_type);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.flaw(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        // Each fold has three places, whether it has a second variable or not.
        let slot = self.scope.last().map_or(0, |(_, _, slot)| slot - slot % 3 + 3);
        self.slots = self.slots.max(slot + 3);
        let depth = self.scope.len();
        self.scope.push((fold.accumulator.clone(), accumulator.clone(), slot));
        self.scope.push((fold.variable.clone(), first, slot + 1));
        if let Some(name) = &fold.second_variable {
            self.scope.push((name.clone(), second, slot + 2));
        }
        let (condition, condition_type) = self.expression(&fold.condition);
        self.expect(fold.condition.at, &Type::Bool, &condition_type);
        let (step, step_type) = self.expression(&fold.step);
        self.expect(fold.step.at, &accumulator, &step_type);
        self.scope.truncate(depth + 1);
        let (result, result_type) = self.expression(&fold.result);
        self.scope.truncate(depth);
        let checked = CheckedFold { range, slot, has_second, init, condition, step, result };
        (Checked::Fold(Box::new(checked)), self.mapping.substitute(&result_type))
    }

    fn expect(&mut self, at: Offset, expected: &Type, found: &Type) {
        if !self.mapping.assign(expected, found) {
            let (expected, found) = (self.mapping.substitute(expected), self.mapping.substitute(found));
            self.flaw(at, mismatch(&expected, &found));
        }
    }
}

/// How quantities are compared, for whoever has tried it otherwise.
fn comparing(function: &str) -> Option<String> {
    let operator = function.trim_matches('_');
    match operator {
        "==" | "!=" => Some(format!("write {operator} quantity(\"…\")")),
        "<" | "<=" | ">" | ">=" => Some(format!("write .compareTo(quantity(\"…\")) {operator} 0")),
        _ => None,
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

pub(super) fn mismatch(expected: &Type, found: &Type) -> String {
    format!("expected type '{expected}' but found '{found}'")
}
