//! Our CEL, asked as the reference is.

mod grammar;

use std::sync::LazyLock;

use claimfs::cel::{
    Attribute, CompileError, DeviceInput, Environment, Features, RuntimeError, Version, compile,
};
use serde_json::{Value, json};

use crate::{
    compare::{Subject, comparable},
    dice::Dice,
};

/// Expressions on one device, which has a value of every kind.
#[derive(Default)]
pub struct Expressions;

/// What an expression comes to.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// The words are our own.
    CompileError,
    /// A value and what it cost.
    Value { matches: bool, cost: u64 },
    /// No value; what it cost is not said where it cost too much.
    Error { message: String, cost: Option<u64> },
}

const DRIVER: &str = "d.example.com";

static DEVICE: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "attributes": {
            "i": {"int": 7},
            "s": {"string": "a.b"},
            "b": {"bool": true},
            "v": {"version": "1.2.3"},
            "li": {"ints": [3, 1, 2]},
            "ls": {"strings": ["b", "a", "b"]},
            "other.example.com/i": {"int": -1},
        },
        "capacity": {"m": {"value": "1536Mi"}, "n": {"value": "250m"}},
    })
});

static INPUT: LazyLock<DeviceInput> = LazyLock::new(|| {
    let texts = ["b", "a", "b"].map(String::from);
    let attributes = [
        ("i", Attribute::int(7)),
        ("s", Attribute::string("a.b")),
        ("b", Attribute::bool(true)),
        ("v", Attribute::version("1.2.3")),
        ("li", Attribute::ints(&[3, 1, 2])),
        ("ls", Attribute::strings(&texts)),
        ("other.example.com/i", Attribute::int(-1)),
    ];
    let capacity = [("m", "1536Mi"), ("n", "250m")].map(|(name, text)| (name, text.parse().unwrap()));
    DeviceInput::new(DRIVER, true, attributes, capacity)
});

impl Subject for Expressions {
    const KIND: &'static str = "cel";

    type Answer = Answer;

    fn question(dice: &mut Dice) -> Value {
        let mut question = DEVICE.clone();
        question["expression"] = grammar::expression(dice).into();
        question["driver"] = DRIVER.into();
        question["allowMultipleAllocations"] = true.into();
        question["consumableCapacity"] = true.into();
        question["listTypes"] = (!dice.once_in(8)).into();
        question["env"] = if dice.once_in(3) { "NewExpressions" } else { "StoredExpressions" }.into();
        question
    }

    fn ours(&mut self, question: &Value) -> Option<Answer> {
        let features = Features {
            consumable_capacity: true,
            list_types: question["listTypes"].as_bool()?,
            version: Version::V1_37,
            environment: match question["env"].as_str()? {
                "NewExpressions" => Environment::New,
                _ => Environment::Stored,
            },
        };
        let program = match compile(question["expression"].as_str()?, features) {
            Ok(program) => program,
            Err(CompileError::Long { .. }) => return None,
            Err(_) => return Some(Answer::CompileError),
        };
        if question["driver"] != DRIVER {
            return None;
        }
        Some(match program.matches(&INPUT) {
            Ok((matches, cost)) => Answer::Value { matches, cost },
            Err(RuntimeError::CostLimit { .. }) => Answer::failed(LIMIT, None),
            Err(error) => Answer::failed(&error.to_string(), error.cost()),
        })
    }

    fn theirs(said: &Value) -> Option<Answer> {
        if said.get("invalid").is_some() {
            return None;
        }
        if said.get("compileError").is_some() {
            return Some(Answer::CompileError);
        }
        let cost = said["actualCost"].as_u64();
        Some(match said["error"].as_str() {
            None => Answer::Value { matches: said["match"] == true, cost: cost.unwrap_or_default() },
            Some(message) if message.contains(LIMIT) => Answer::failed(LIMIT, None),
            Some(message) => Answer::failed(message, cost),
        })
    }

    fn outcome(answer: &Answer) -> String {
        let outcome = match answer {
            Answer::CompileError => "compile error",
            Answer::Value { matches: true, .. } => "true",
            Answer::Value { matches: false, .. } => "false",
            Answer::Error { message, .. } if message == LIMIT => "too expensive",
            Answer::Error { message, .. } if message.starts_with(SHOWN) => "shown value",
            Answer::Error { .. } => "error",
        };
        outcome.to_owned()
    }

    fn excuse(question: &Value, ours: &Answer, theirs: &Answer) -> Option<&'static str> {
        let expression = question["expression"].as_str().unwrap_or_default();
        let has = |parts: &[&str]| parts.iter().any(|part| expression.contains(part));
        let excuses = [
            // It calls its own functions with failures for values, and panics.
            ("the reference breaks", theirs.is("internal error")),
            // It looks into the lists and maps that are formatted, before there is a value.
            ("format looks into literals", *theirs == Answer::CompileError && has(&["'.format(["])),
            // Some of its functions give elements of a list attribute as Go has them, which others do not know.
            (
                "an element of a list attribute",
                has(&["'d.example.com'].li", "'d.example.com'].ls"])
                    && (theirs.is("no such overload")
                        || has(&[".first()", ".last()", ".distinct()", ".flatten()", "sets."])),
            ),
            // It holds a function to the types that the checker found, even where `dyn` misled that.
            (
                "an overload that the value does not fit",
                theirs.is("no such overload") && has(&["dyn(", "device.attributes"]),
            ),
            // It negates the least number that there is, and has the same.
            ("the least number is subtracted", has(&["-9223372036854775808"]) && has(&[".sub("])),
            // It takes lists and maps for keys, as long as nobody looks them up.
            ("a key of an odd type", ours.is("unsupported key type") || has(&ODD_KEYS)),
        ];
        excuses.into_iter().find_map(|(excuse, holds)| holds.then_some(excuse))
    }

    fn traits(question: &Value) -> Vec<&'static str> {
        let expression = question["expression"].as_str().unwrap_or_default();
        grammar::LABELS
            .iter()
            .filter(|(_, marks)| marks.iter().any(|mark| expression.contains(mark)))
            .map(|(label, _)| *label)
            .collect()
    }
}

/// Signs of a key that is neither a number nor a text.
const ODD_KEYS: [&str; 8] = ["{{", "{xs: ", "{[", "{b'", ", b'", "}: ", "]: ", "): "];
const LIMIT: &str = "actual cost limit exceeded";
/// How the value of a text is seen: as a key that is not there.
const SHOWN: &str = "no such key: ";

/// What both say of a text that is no version, each in its own words.
const NO_VERSION: [&str; 6] = [
    "unexpected ",
    "invalid ",
    "Invalid ",
    "strconv.ParseUint",
    "Version string empty",
    "No Major.Minor.Patch",
];

impl Answer {
    fn is(&self, failure: &str) -> bool {
        matches!(self, Self::Error { message, .. } if message == failure)
    }

    fn failed(message: &str, cost: Option<u64>) -> Self {
        // A key that is not there shows a value; what else is said behind a colon is in our own words.
        let kind =
            if message.starts_with(SHOWN) { message } else { message.split(": ").next().unwrap_or(message) };
        let is_version = NO_VERSION.iter().any(|words| message.starts_with(words));
        let kind = if is_version { "no version" } else { comparable(kind) };
        // How Go names a type depends on how the value came about.
        let kind = if kind.ends_with("expected iterable type") { "not iterable" } else { kind };
        Self::Error { message: kind.to_owned(), cost }
    }
}
