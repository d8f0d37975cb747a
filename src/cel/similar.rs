//! What somebody may have meant.

/// The known name that is most like this one, as a question.
pub(super) fn did_you_mean<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    similar(name, known).map(|found| format!("did you mean '{found}'?"))
}

/// The known name that is most like this one.
pub(crate) fn similar<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let nameable = known.filter(|known| known.starts_with(|c: char| c.is_ascii_alphabetic()));
    let (distance, found) = nameable.map(|known| (distance(name, known), known)).min()?;
    // A third of the letters: more would be another word.
    (distance <= (name.len() / 3).min(3)).then_some(found)
}

/// How many letters have to be added, removed, replaced or swapped with the next one.
fn distance(one: &str, other: &str) -> usize {
    if one.eq_ignore_ascii_case(other) {
        return 0;
    }
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (down, letter) in one.iter().enumerate() {
        let mut next = vec![down + 1];
        for (place, found) in other.iter().enumerate() {
            let replaced = row[place] + usize::from(letter != found);
            let mut least = replaced.min(row[place + 1] + 1).min(next[place] + 1);
            if down > 0 && place > 0 && one[down - 1] == *found && *letter == other[place - 1] {
                least = least.min(above[place - 1] + 1);
            }
            next.push(least);
        }
        above = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found() {
        let known = ["memory", "model", "numa"];
        for (name, meant) in [
            ("memry", Some("memory")),
            ("modle", Some("model")),
            ("Model", Some("model")),
            ("vendor", None),
            ("n", None),
        ] {
            assert_eq!(similar(name, known.into_iter()), meant, "{name}");
        }
    }
}
