//! Literals that are wrong whatever the device is: they are refused before there is one.

use super::{
    ast::{Call, Expr, Kind, Literal, Offset},
    check::mismatch,
    error::Flaw,
    library::{Pattern, Timestamp, check_format, parse_duration},
    types::{Mapping, Type},
};

/// Looks at every call with a literal.
pub(super) fn check(expression: &Expr, flaws: &mut Vec<Flaw>) {
    match &expression.kind {
        Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => {}
        Kind::Select(select) => check(&select.operand, flaws),
        Kind::Call(call) => {
            flaws.extend(flaw(call));
            call.target.iter().chain(&call.args).for_each(|part| check(part, flaws));
        }
        Kind::List(elements) => elements.iter().for_each(|element| check(&element.value, flaws)),
        Kind::Map(entries) => {
            entries.iter().flat_map(|entry| [&entry.key, &entry.value]).for_each(|part| check(part, flaws));
        }
        Kind::Fold(fold) => {
            for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                check(part, flaws);
            }
        }
    }
}

fn flaw(call: &Call) -> Option<Flaw> {
    // The first one, even where `matches` is no member and it is the text: so does the reference.
    let first = call.args.first()?;
    let Kind::Literal(literal) = &first.kind else { return None };
    let is_valid = match (call.function.as_str(), literal) {
        ("matches", Literal::String(text)) => Pattern::new(text).is_ok(),
        ("duration", Literal::String(text)) => parse_duration(text).is_some(),
        ("timestamp", Literal::String(text)) => Timestamp::parse(text).is_some(),
        ("timestamp", Literal::Int(seconds)) => Timestamp::from_seconds(*seconds).is_ok(),
        _ => true,
    };
    (!is_valid).then(|| Flaw::new(first.at, format!("invalid {} argument", call.function)))
}

/// What literals hold, until all types are known.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The types in each list and map, which have to be the same in the end.
    literals: Vec<Vec<(Offset, Type)>>,
    templates: Vec<Template>,
}

/// A text for `format`, with the types of its values.
#[derive(Debug)]
struct Template {
    at: Offset,
    text: String,
    args: Vec<(Offset, Type)>,
}

impl Pending {
    /// How many there are so far.
    pub(super) fn literals(&self) -> usize {
        self.literals.len()
    }

    pub(super) fn literal(&mut self, types: Vec<(Offset, Type)>) {
        self.literals.push(types);
    }

    /// The values of a template need not be of one type, but of those that it takes. `before` is how many
    /// literals there were before them.
    pub(super) fn exempt_template(&mut self, at: Offset, call: &Call, before: usize) {
        let ("format", Some(target), [Expr { kind: Kind::List(_), .. }]) =
            (call.function.as_str(), &call.target, call.args.as_slice())
        else {
            return;
        };
        // The list is the last literal that was checked, behind all that are in it.
        let args = self.literals.pop().unwrap_or_default();
        self.literals.truncate(before);
        if let Kind::Literal(Literal::String(text)) = &target.kind {
            self.templates.push(Template { at, text: text.clone(), args });
        }
    }

    /// Nor need anything that the text of a template is made of.
    pub(super) fn exempt_text(&mut self, call: &Call, before: usize) {
        if call.function == "format" {
            self.literals.truncate(before);
        }
    }

    pub(super) fn check(&self, mapping: &Mapping, flaws: &mut Vec<Flaw>) {
        for types in &self.literals {
            let mut types = types.iter().map(|(at, of)| (*at, mapping.finished(of)));
            let Some((_, first)) = types.next() else { continue };
            let other = types.find(|(_, of)| *of != first && *of != Type::Error && first != Type::Error);
            if let Some((at, found)) = other {
                flaws.push(Flaw::new(at, mismatch(&first, &found)));
            }
        }
        for Template { at, text, args } in &self.templates {
            let types: Vec<Type> = args.iter().map(|(_, of)| mapping.finished(of)).collect();
            if let Some((place, message)) = check_format(text, &types) {
                let at = place.and_then(|place| args.get(place)).map_or(*at, |(at, _)| *at);
                flaws.push(Flaw::new(at, message));
            }
        }
    }
}
