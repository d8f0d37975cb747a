//! Tables for people, and a standard output that may be closed.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use super::Error;

/// Columns without borders, two spaces apart.
pub(super) fn table<R>(header: &[&str], rows: R) -> String
where
    R: IntoIterator<Item = Vec<String>>,
{
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
        .lines()
        .map(|line| line.replace(char::is_control, "?"))
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Whether there is still somebody who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// There is, as far as we know.
    Present,
    /// It has seen enough (`| head`), which is no error.
    Gone,
}

/// Writes to standard output.
pub(super) fn print(text: &str) -> Result<Reader, Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Present),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Error::Output(error)),
    }
}

/// Writes to standard error. Where that is not possible, there is nobody left to tell.
pub(super) fn complain(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// For programs. Invariant of both: what is printed has text keys and no serializer of its own that could fail.
#[expect(clippy::expect_used)]
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data is JSON")
}

/// For programs and people.
#[expect(clippy::expect_used)]
pub(super) fn yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(value).expect("plain data is YAML")
}
