//! Our quantities, asked as the reference is.

use claimfs::device::Amount;
use serde_json::{Value, json};

use crate::{compare::Subject, dice::Dice};

/// Two texts, read, compared, added and subtracted.
#[derive(Default)]
pub struct Quantities;

/// What the texts come to; nothing where the first is no quantity.
#[derive(Debug, PartialEq)]
pub struct Answer(Option<One>);

#[derive(Debug, PartialEq)]
struct One {
    canonical: String,
    format: String,
    whole: Option<i64>,
    rounded_up: i64,
    with_other: Option<Two>,
}

#[derive(Debug, PartialEq)]
struct Two {
    order: i64,
    sum: String,
    difference: String,
}

const UNITS: [&str; 30] = [
    "", "", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E6",
    "e-3", "e+2", "E-9", "e1", "e0", "e18", "K", "mi", "e", "Zi",
];

fn text(dice: &mut Dice) -> String {
    let digits = |dice: &mut Dice, most: usize| -> String {
        let count = dice.below(most + 1);
        (0..count).map(|_| dice.one_of(&['0', '0', '1', '5', '9', '2', '7'])).collect()
    };
    let sign = dice.one_of(&["", "", "", "", "-", "+"]);
    let whole = match dice.below(8) {
        0 => dice
            .one_of(&["9223372036854775807", "9223372036854775808", "1024", "1000", "999999999", "0"])
            .to_owned(),
        1 => digits(dice, 24),
        _ => digits(dice, 6),
    };
    let fraction = match dice.below(4) {
        0 => format!(".{}", digits(dice, 12)),
        1 if dice.once_in(8) => String::from("."),
        _ => String::new(),
    };
    let unit = dice.one_of(&UNITS);
    let mut text = format!("{sign}{whole}{fraction}{unit}");
    if dice.odd(20) {
        // Another `e` would make an exponent of the digits, with which the reference calculates for ever.
        let character = dice.one_of(&[' ', '-', '.', 'm', '٣', 'i', '\u{0}']);
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        text.insert(dice.one_of(&places), character);
    }
    text
}

impl Subject for Quantities {
    const KIND: &'static str = "quantity";

    type Answer = Answer;

    fn question(dice: &mut Dice) -> Value {
        let a = text(dice);
        // Near each other is where carries and roundings are.
        let b = if dice.once_in(4) { format!("-{a}") } else { text(dice) };
        json!({"a": a, "b": b})
    }

    fn ours(&mut self, question: &Value) -> Option<Answer> {
        let Ok(a) = question["a"].as_str()?.parse::<Amount>() else { return Some(Answer(None)) };
        let with_other = question["b"].as_str()?.parse::<Amount>().ok().map(|b| Two {
            order: a.cmp(&b) as i64,
            sum: a.plus(&b).to_string(),
            difference: a.minus(&b).to_string(),
        });
        Some(Answer(Some(One {
            canonical: a.to_string(),
            format: a.format().as_str().to_owned(),
            whole: a.as_i64(),
            rounded_up: a.rounded_up(),
            with_other,
        })))
    }

    fn theirs(said: &Value) -> Option<Answer> {
        if said.get("invalid").is_some() {
            return None;
        }
        if said.get("parseError").is_some() {
            return Some(Answer(None));
        }
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let with_other = said.get("add").is_some().then(|| Two {
            order: said["cmp"].as_i64().unwrap_or_default(),
            sum: text("add"),
            difference: text("sub"),
        });
        Some(Answer(Some(One {
            canonical: text("canonical"),
            format: text("format"),
            whole: said["asInt64"].as_i64(),
            rounded_up: said["valueRoundedUp"].as_i64().unwrap_or_default(),
            with_other,
        })))
    }

    fn outcome(answer: &Answer) -> String {
        let outcome = match answer {
            Answer(None) => "no quantity",
            Answer(Some(One { with_other: None, .. })) => "one quantity",
            Answer(Some(_)) => "two quantities",
        };
        outcome.to_owned()
    }

    fn traits(question: &Value) -> Vec<&'static str> {
        let a = question["a"].as_str().unwrap_or_default();
        let has = [
            ("negative", a.starts_with('-')),
            ("fraction", a.contains('.')),
            ("binary unit", a.ends_with('i')),
            ("exponent", a.contains(['e', 'E'])),
            ("more than 18 digits", a.bytes().filter(u8::is_ascii_digit).count() > 18),
        ];
        has.into_iter().filter_map(|(label, is_there)| is_there.then_some(label)).collect()
    }
}
