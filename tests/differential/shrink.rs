//! The smallest question that still has something to show.

use serde_json::Value;

/// The smallest question for which something still holds, as far as leaving parts out leads.
pub fn smallest(question: Value, holds: &mut impl FnMut(&Value) -> bool) -> Value {
    let mut best = question;
    loop {
        let smaller = shorter(&best).into_iter().find(|candidate| holds(candidate));
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// The same without one part: an element of a list, or a member of an object.
fn shorter(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Array(elements) => {
            for index in 0..elements.len() {
                let mut without = elements.clone();
                without.remove(index);
                all.push(Value::Array(without));
            }
            for (index, element) in elements.iter().enumerate() {
                for smaller in shorter(element) {
                    let mut with = elements.clone();
                    with[index] = smaller;
                    all.push(Value::Array(with));
                }
            }
        }
        Value::Object(members) => {
            for name in members.keys() {
                let mut without = members.clone();
                without.remove(name);
                all.push(Value::Object(without));
            }
            for (name, member) in members {
                for smaller in shorter(member) {
                    let mut with = members.clone();
                    with.insert(name.clone(), smaller);
                    all.push(Value::Object(with));
                }
            }
        }
        _ => {}
    }
    all
}
