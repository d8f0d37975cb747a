//! Lists as sets.

use super::Function;
use crate::cel::value::{Failure, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "sets.contains",
        overloads: &[("list_sets_contains_list", "(list(A), list(A)) -> bool")],
        run: |args| compare(args, contains),
    },
    Function {
        name: "sets.equivalent",
        overloads: &[("list_sets_equivalent_list", "(list(A), list(A)) -> bool")],
        run: |args| compare(args, |one, other| contains(one, other) && contains(other, one)),
    },
    Function {
        name: "sets.intersects",
        overloads: &[("list_sets_intersects_list", "(list(A), list(A)) -> bool")],
        run: |args| compare(args, |one, other| other.iter().any(|value| has(one, value))),
    },
];

fn compare(args: &[Value], is_so: fn(&[Value], &[Value]) -> bool) -> Outcome {
    match args {
        [Value::List(one), Value::List(other)] => Ok(Value::Bool(is_so(one, other))),
        _ => Err(Failure::NoOverload),
    }
}

fn has(list: &[Value], value: &Value) -> bool {
    list.iter().any(|element| value.equals(element) == Ok(true))
}

fn contains(list: &[Value], part: &[Value]) -> bool {
    part.iter().all(|value| has(list, value))
}
