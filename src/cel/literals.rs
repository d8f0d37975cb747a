//! Literals that are wrong whatever the device is: they are refused before there is one.

use super::{
    ast::{Call, Expr, Kind, Literal, Offset},
    error::Flaw,
    library::{Pattern, Timestamp, check_format, parse_duration},
};

/// Looks at every call with a literal.
pub(super) fn check(expression: &Expr, flaws: &mut Vec<Flaw>) {
    match &expression.kind {
        Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => {}
        Kind::Select(select) => check(&select.operand, flaws),
        Kind::Call(call) => {
            if let Some((at, message)) = flaw(expression.at, call) {
                flaws.push(Flaw::new(at, message));
            }
            call.target.iter().chain(&call.args).for_each(|part| check(part, flaws));
        }
        Kind::List(elements) => elements.iter().for_each(|element| check(&element.value, flaws)),
        Kind::Map(entries) => {
            entries.iter().flat_map(|entry| [&entry.key, &entry.value]).for_each(|part| check(part, flaws));
        }
        Kind::Fold(fold) => {
            [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
                .into_iter()
                .for_each(|part| check(part, flaws));
        }
    }
}

fn text(expression: &Expr) -> Option<&str> {
    match &expression.kind {
        Kind::Literal(Literal::String(text)) => Some(text),
        _ => None,
    }
}

fn flaw(at: Offset, call: &Call) -> Option<(Offset, String)> {
    let last = call.args.last()?;
    let invalid = |what: &str| Some((last.at, format!("invalid {what} argument")));
    match (call.function.as_str(), text(last)) {
        ("matches", Some(pattern)) if Pattern::new(pattern).is_err() => invalid("matches"),
        ("duration", Some(duration)) if parse_duration(duration).is_none() => invalid("duration"),
        ("timestamp", Some(timestamp)) if Timestamp::parse(timestamp).is_none() => invalid("timestamp"),
        ("format", _) => {
            let (Some(template), Kind::List(elements)) = (text(call.target.as_ref()?)?.into(), &last.kind)
            else {
                return None;
            };
            let args: Vec<&Expr> = elements.iter().map(|element| &element.value).collect();
            let (place, message) = check_format(template, &args)?;
            Some((place.and_then(|place| args.get(place)).map_or(at, |arg| arg.at), message))
        }
        _ => None,
    }
}
