//! The functions that an expression can call: what the checker knows about them, and what they do.
//!
//! A library is a table of functions, each with the overloads that the checker chooses from; one function
//! serves all of them, because a value of unknown type decides only when it is there.

mod conversions;
mod format;
mod kubernetes_lists;
mod lists;
mod network;
mod operators;
mod optionals;
mod quantity;
mod regex;
mod semver;
mod sets;
mod signature;
mod strings;
mod text_format;
mod time;
mod url;

use std::{collections::HashMap, sync::LazyLock};

pub(super) use self::{
    conversions::{is_conversion, shown_double},
    format::Format,
    kubernetes_lists::BOUNDED_INCLUDES,
    lists::UNBOUNDED_RANGE,
    network::{Cidr, Ip},
    quantity::QuantityValue,
    regex::{Pattern, run as run_pattern},
    semver::parse as parse_version,
    signature::Overload,
    strings::{UNBOUNDED_INDEX_OF, UNBOUNDED_LAST_INDEX_OF},
    text_format::check_types as check_format,
    time::{Timestamp, parse_duration},
    url::Url,
};
use super::value::{Failure, Outcome, Value};

/// What a function does with its arguments, the target first.
pub(super) type Run = fn(&[Value]) -> Outcome;

/// One row of a library.
struct Function {
    name: &'static str,
    /// The name of each overload and its signature, e.g. `string.(string) -> bool`.
    overloads: &'static [(&'static str, &'static str)],
    run: Run,
}

/// Everything that has one name.
#[derive(Debug, Default)]
pub(super) struct Declaration {
    pub(super) overloads: Vec<Overload>,
    /// Tried in turn: each refuses arguments that are not its own.
    pub(super) runs: Vec<Run>,
}

impl Declaration {
    pub(super) fn run(&self, args: &[Value]) -> Outcome {
        let mut outcome = Err(Failure::NoOverload);
        for run in &self.runs {
            outcome = run(args);
            if outcome.as_ref().err() != Some(&Failure::NoOverload) {
                break;
            }
        }
        outcome
    }
}

/// What has this name.
pub(super) fn find(name: &str) -> Option<&'static Declaration> {
    DECLARATIONS.get(name)
}

/// All names, for whoever looks for a similar one.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DECLARATIONS.keys().copied()
}

static DECLARATIONS: LazyLock<HashMap<&'static str, Declaration>> = LazyLock::new(|| {
    let libraries = [
        operators::FUNCTIONS,
        conversions::FUNCTIONS,
        strings::FUNCTIONS,
        text_format::FUNCTIONS,
        lists::FUNCTIONS,
        kubernetes_lists::FUNCTIONS,
        sets::FUNCTIONS,
        optionals::FUNCTIONS,
        regex::FUNCTIONS,
        time::FUNCTIONS,
        quantity::FUNCTIONS,
        semver::FUNCTIONS,
        network::FUNCTIONS,
        url::FUNCTIONS,
        format::FUNCTIONS,
    ];
    let mut declarations = HashMap::<_, Declaration>::new();
    for function in libraries.into_iter().flatten() {
        let declaration = declarations.entry(function.name).or_default();
        declaration.runs.push(function.run);
        let overloads = function.overloads.iter().map(|(id, text)| Overload::new(id, text));
        declaration.overloads.extend(overloads);
    }
    declarations
});
