//! What the reference answered, and what is answered here.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{
    cel::{Attribute, DeviceInput, Environment, Features, RuntimeError, Version, compile},
    device::Amount,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    expression: String,
    driver: String,
    attributes: Option<BTreeMap<String, RowAttribute>>,
    capacity: Option<BTreeMap<String, RowCapacity>>,
    allow_multiple_allocations: Option<bool>,
    consumable_capacity: bool,
    list_types: bool,
    env: String,
    #[serde(rename = "match")]
    matches: Option<bool>,
    actual_cost: Option<u64>,
    compile_error: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct RowAttribute {
    bool: Option<bool>,
    int: Option<i64>,
    string: Option<String>,
    version: Option<String>,
    bools: Option<Vec<bool>>,
    ints: Option<Vec<i64>>,
    strings: Option<Vec<String>>,
    versions: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RowCapacity {
    value: String,
}

impl RowAttribute {
    fn attribute(&self) -> Attribute {
        let list = (self.ints.as_deref().map(Attribute::ints))
            .or_else(|| self.bools.as_deref().map(Attribute::bools))
            .or_else(|| self.strings.as_deref().map(Attribute::strings))
            .or_else(|| self.versions.as_deref().map(Attribute::versions));
        let scalar = (self.int.map(Attribute::int))
            .or_else(|| self.bool.map(Attribute::bool))
            .or_else(|| self.string.as_deref().map(Attribute::string))
            .or_else(|| self.version.as_deref().map(Attribute::version));
        list.or(scalar).unwrap_or_else(Attribute::empty)
    }
}

/// What an expression came to.
#[derive(Debug, PartialEq)]
struct Answer {
    matches: Option<bool>,
    cost: Option<u64>,
    compile_error: Option<String>,
    error: Option<String>,
}

impl Row {
    fn expected(&self) -> Answer {
        Answer {
            matches: self.matches,
            cost: self.actual_cost,
            compile_error: self.compile_error.clone(),
            error: self.error.clone(),
        }
    }

    fn answer(&self, version: Version) -> Answer {
        let environment =
            if self.env == "StoredExpressions" { Environment::Stored } else { Environment::New };
        let features = Features {
            consumable_capacity: self.consumable_capacity,
            list_types: self.list_types,
            version,
            environment,
        };
        let program = match compile(&self.expression, features) {
            Ok(program) => program,
            Err(error) => {
                let compile_error = Some(error.to_string());
                return Answer { matches: None, cost: None, compile_error, error: None };
            }
        };
        let attributes = self.attributes.iter().flatten();
        let attributes = attributes.map(|(name, value)| (name.as_str(), value.attribute()));
        let capacity = self.capacity.iter().flatten();
        let capacity =
            capacity.map(|(name, capacity)| (name.as_str(), capacity.value.parse::<Amount>().unwrap()));
        let allows_multiple = self.allow_multiple_allocations.unwrap_or_default();
        let device = DeviceInput::new(&self.driver, allows_multiple, attributes, capacity);
        match program.matches(&device) {
            Ok((matches, cost)) => {
                Answer { matches: Some(matches), cost: Some(cost), compile_error: None, error: None }
            }
            Err(error) => Answer {
                matches: Some(false),
                cost: RuntimeError::cost(&error),
                compile_error: None,
                error: Some(error.to_string()),
            },
        }
    }
}

/// Whether two messages say the same: syntax errors are in our own words, and only have to be there.
fn is_same_message(ours: Option<&str>, theirs: Option<&str>) -> bool {
    match (ours, theirs) {
        (None, None) => true,
        (Some(ours), Some(theirs)) => {
            // The reference gives no hints.
            let hinted = |line: &str| line.split(" did you mean").next().unwrap().to_owned();
            let ours = &ours.lines().map(hinted).collect::<Vec<_>>().join("\n");
            let is_syntax = ours.contains("Syntax error") && theirs.contains("Syntax error");
            is_syntax || ours.contains(theirs) || theirs.contains(ours.as_str())
        }
        _ => false,
    }
}

fn is_same(ours: &Answer, theirs: &Answer) -> bool {
    ours.matches == theirs.matches
        && ours.cost == theirs.cost
        && is_same_message(ours.compile_error.as_deref(), theirs.compile_error.as_deref())
        && is_same_message(ours.error.as_deref(), theirs.error.as_deref())
}

fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance");
    env::var_os("CLAIMFS_CONFORMANCE").map_or_else(beside, PathBuf::from)
}

fn files() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder()) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("cel-") && name.ends_with(".jsonl")
    });
    files.sort();
    files
}

/// Written past the test harness, which shows nothing of a test that succeeds.
fn say(line: &str) {
    let _unseen = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn every_recorded_expression_is_answered_as_the_reference_does() {
    let files = files();
    if files.is_empty() {
        say(&format!("SKIPPED: no recorded expressions in {}", folder().display()));
        return;
    }
    let mut differences = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        let version = if name.contains("v1.36") { Version::V1_36 } else { Version::V1_37 };
        let rows: Vec<Row> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let before = differences.len();
        for row in &rows {
            let (ours, theirs) = (row.answer(version), row.expected());
            if !is_same(&ours, &theirs) {
                differences.push(format!(
                    "{name}: {} ({}, capacity {}, lists {}): {}\n  ours:   {ours:?}\n  theirs: {theirs:?}",
                    row.name, row.env, row.consumable_capacity, row.list_types, row.expression
                ));
            }
        }
        say(&format!("{name}: {} of {} equal", rows.len() - (differences.len() - before), rows.len()));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
