//! An explanation for people.

use std::{collections::BTreeMap, fmt};

use super::{Code, Explanation, Finding, RequestNote, Verdict, counted};

/// How many nodes with the same reason are named.
const NODES: usize = 4;

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.headline(formatter)?;
        for finding in &self.findings {
            write!(formatter, "\n{finding}")?;
        }
        for request in &self.requests {
            self.request(formatter, request)?;
        }
        self.other_nodes(formatter)?;
        match self.change.as_slice() {
            [] => {}
            [only] => write!(formatter, "\nto change: {only}\n")?,
            several => {
                write!(formatter, "\nto change, one of:\n")?;
                for change in several {
                    writeln!(formatter, "  - {change}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.text.lines();
        writeln!(formatter, "{}  {}", self.code, lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| writeln!(formatter, "         {line}"))
    }
}

impl Explanation {
    fn headline(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, fit) = match self.claims.as_slice() {
            [only] => (format!("claim {only}"), ["fits", "does not fit", "is allocated"]),
            several => (format!("claims {}", several.join(", ")), ["fit", "do not fit", "are allocated"]),
        };
        let node = if self.node.is_empty() { String::new() } else { format!(" on node {}", self.node) };
        match self.verdict {
            Verdict::Fits => writeln!(formatter, "{}  {what} {}{node}", Code::Fits, fit[0]),
            Verdict::DoesNotFit if self.other_nodes.is_empty() => {
                writeln!(formatter, "{what} {}{node}", fit[1])
            }
            Verdict::DoesNotFit => {
                let count = self.other_nodes.len() + 1;
                writeln!(formatter, "{what} {} on any of {count} nodes; least is missing{node}", fit[1])
            }
            Verdict::Allocated => writeln!(formatter, "{what} {} already", fit[2]),
        }
    }

    fn request(&self, formatter: &mut fmt::Formatter<'_>, request: &RequestNote) -> fmt::Result {
        let RequestNote { considered, possible, .. } = request;
        let name = match self.claims.len() {
            1 => request.request.clone(),
            _ => format!("{} of {}", request.request, request.claim),
        };
        let wanted = request.wanted.map_or_else(|| String::from("all"), |wanted| wanted.to_string());
        write!(
            formatter,
            "\nrequest {name}: {wanted} of class {}; {possible} of {} could be had\n",
            request.class,
            counted(*considered, "device")
        )?;
        if !request.chosen.is_empty() {
            let rest = possible.saturating_sub(request.chosen.len());
            write!(formatter, "  gets: {}", request.chosen.join(", "))?;
            match rest {
                0 => writeln!(formatter)?,
                rest => writeln!(formatter, " (in order; {rest} more would do)")?,
            }
        }
        for group in &request.removed {
            writeln!(
                formatter,
                "  {}  {} of {considered}: {}",
                group.code,
                group.devices.len(),
                indented(&group.text)
            )?;
            for line in &group.excerpt {
                writeln!(formatter, "             {line}")?;
            }
        }
        for finding in &request.findings {
            writeln!(formatter, "  {}  {}", finding.code, indented(&finding.text))?;
        }
        match &request.nearest {
            Some(nearest) => writeln!(formatter, "  nearest: {nearest}"),
            None => Ok(()),
        }
    }

    fn other_nodes(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons: BTreeMap<(Code, &str), Vec<&str>> = BTreeMap::new();
        for note in &self.other_nodes {
            let text = note.text.lines().next().unwrap_or_default();
            reasons.entry((note.code, text)).or_default().push(&note.node);
        }
        if !reasons.is_empty() {
            write!(formatter, "\nother nodes:\n")?;
        }
        for ((code, text), nodes) in reasons {
            let more = if nodes.len() > NODES {
                format!(", and {} more", nodes.len() - NODES)
            } else {
                String::new()
            };
            let names = nodes.iter().take(NODES).copied().collect::<Vec<_>>().join(", ");
            writeln!(formatter, "  {code}  {names}{more}: {text}")?;
        }
        Ok(())
    }
}

/// A text of several lines below a code.
fn indented(text: &str) -> String {
    text.replace('\n', "\n           ")
}
