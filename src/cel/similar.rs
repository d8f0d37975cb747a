//! What somebody may have meant.

/// The known name that is most like this one, as a question.
pub(super) fn similar<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let nameable = known.filter(|known| known.starts_with(|c: char| c.is_ascii_alphabetic()));
    let (distance, found) = nameable.map(|known| (distance(name, known), known)).min()?;
    // A third of the letters: more would be another word.
    (distance <= (name.len() / 3).min(3)).then(|| format!("did you mean '{found}'?"))
}

/// How many letters have to be added, removed or replaced.
fn distance(one: &str, other: &str) -> usize {
    if one.eq_ignore_ascii_case(other) {
        return 0;
    }
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (place, other) in other.chars().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
