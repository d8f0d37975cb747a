//! The part of an expression that decided, marked in its text.

use std::collections::BTreeMap;

use crate::cel::Reason;

/// Longer lines show only the part that decided.
const WIDTH: usize = 120;
/// How many different values are shown.
const VALUES: usize = 4;

/// What several devices had at the same part of an expression.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    decided: Option<(usize, usize)>,
    /// By place in the text, how many devices had which value.
    seen: BTreeMap<(usize, usize), BTreeMap<String, usize>>,
}

impl Excerpt {
    /// Adds what a device had.
    pub(super) fn add(&mut self, reason: &Reason) {
        self.decided = Some((reason.span.start, reason.span.end));
        for seen in &reason.seen {
            let values = self.seen.entry((seen.span.start, seen.span.end)).or_default();
            *values.entry(seen.value.clone()).or_default() += 1;
        }
    }

    /// The lines of the expression that matter, each with what was seen below it.
    pub(super) fn lines(&self, expression: &str) -> Vec<String> {
        let Some((start, end)) = self.decided else { return Vec::new() };
        let mut marks: Vec<((usize, usize), String)> =
            self.seen.iter().map(|(place, values)| (*place, told(values))).collect();
        if marks.is_empty() {
            marks.push(((start, end), String::from("never true")));
        }
        let mut lines = Vec::new();
        let mut at = 0;
        for line in expression.split_inclusive('\n') {
            let (from, to) = (at, at + line.len());
            at = to;
            let here: Vec<_> = marks.iter().filter(|((start, _), _)| (from..to).contains(start)).collect();
            if here.is_empty() {
                continue;
            }
            let line = line.trim_end();
            let (from, text) = if line.chars().count() > WIDTH {
                let first = here.iter().map(|((start, _), _)| *start).min().unwrap_or(from);
                let part = start.max(from).min(first);
                (part, &expression[part..end.clamp(part, from + line.len()).max(part)])
            } else {
                let indent = line.len() - line.trim_start().len();
                (from + indent, line.trim_start())
            };
            lines.push(text.replace(char::is_control, " "));
            for ((start, end), told) in here {
                let before = expression.get(from..*start).unwrap_or_default().chars().count();
                let marked = expression.get(*start..(*end).min(from + text.len())).unwrap_or_default();
                let dashes = "-".repeat(marked.chars().count().max(1));
                lines.push(format!("{}{dashes} {told}", " ".repeat(before)));
            }
        }
        lines
    }
}

/// The values, the most frequent first.
fn told(values: &BTreeMap<String, usize>) -> String {
    let mut values: Vec<_> = values.iter().collect();
    values.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    let is_one = values.len() == 1;
    let more =
        if values.len() > VALUES { format!(", and {} others", values.len() - VALUES) } else { String::new() };
    let shown = values.into_iter().take(VALUES).map(|(value, count)| match count {
        _ if is_one => value.clone(),
        1 => format!("{value} (1 device)"),
        count => format!("{value} ({count} devices)"),
    });
    // An error is told as it is.
    let text = shown.collect::<Vec<_>>().join(", ");
    if text.starts_with("no such") { format!("{text}{more}") } else { format!("is {text}{more}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::Seen;

    #[test]
    fn what_was_seen_stands_below_the_part_that_saw_it() {
        let expression = "device.driver == \"x\" &&\n  device.a == \"b\"";
        let part = expression.find("device.a").unwrap();
        let mut excerpt = Excerpt::default();
        for value in ["\"c\"", "\"a\"", "\"a\""] {
            let seen = vec![Seen { span: part..part + 8, value: value.to_owned() }];
            excerpt.add(&Reason { span: part..expression.len(), seen });
        }
        assert_eq!(
            excerpt.lines(expression),
            ["device.a == \"b\"", "-------- is \"a\" (2 devices), \"c\" (1 device)"]
        );
    }

    #[test]
    fn a_long_line_is_cut_down_to_the_part() {
        let expression = format!("{} && device.a == \"é\"", "true && ".repeat(40));
        let part = expression.find("device.a").unwrap();
        let mut excerpt = Excerpt::default();
        let seen = vec![Seen { span: part..part + 8, value: String::from("1") }];
        excerpt.add(&Reason { span: part..expression.len(), seen });
        assert_eq!(excerpt.lines(&expression), ["device.a == \"é\"", "-------- is 1"]);
    }
}
