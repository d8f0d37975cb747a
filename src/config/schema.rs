//! The shape of the file, and the checks that need more than one of its fields.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{Config, DevPattern, Discovery, Source, error::Flaw};
use crate::device::{AttributeName, AttributeValue, DriverName, Properties, Quantity, Sharing, SourceName};

/// More than any node has; a typing error is likelier.
const MAX_SIMULATED: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    driver: DriverName,
    sources: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<SourceName>,
    simulated: Option<Simulated>,
    dev: Option<Spanned<Dev>>,
    #[serde(default)]
    attributes: BTreeMap<AttributeName, Spanned<AttributeValue>>,
    #[serde(default)]
    capacity: BTreeMap<AttributeName, Spanned<Quantity>>,
    shared: Option<Spanned<Shared>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simulated {
    count: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dev {
    paths: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    max: Spanned<u32>,
}

pub(super) fn parse(text: &str) -> Result<Config, Flaw> {
    // The path is known inside of the parser, the error outside: it gains its place on the way.
    let mut track = serde_path_to_error::Track::new();
    let parsed: Result<File, _> = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        File::deserialize(serde_path_to_error::Deserializer::new(deserializer, &mut track))
    });
    let file = parsed.map_err(|error| Flaw::from_yaml(&track.path(), &error))?;

    let mut sources: Vec<Source> = Vec::with_capacity(file.sources.len());
    for (index, entry) in file.sources.iter().enumerate() {
        let field = format!("sources[{index}]");
        let name = &entry.value.name;
        if let Some(first) = sources.iter().position(|source| source.name == name.value) {
            return Err(Flaw::at(
                name.referenced,
                format!("{field}.name"),
                format_args!(
                    "{:?} is the name of sources[{first}] already; every source has its own",
                    name.value.as_str()
                ),
            ));
        }
        sources.push(source(&field, entry)?);
    }
    Ok(Config { driver: file.driver, sources })
}

fn source(field: &str, entry: &Spanned<Entry>) -> Result<Source, Flaw> {
    let Entry { name, simulated, dev, attributes, capacity, shared } = &entry.value;
    let discovery = match (simulated, dev) {
        (Some(simulated), None) => simulated_discovery(field, simulated)?,
        (None, Some(dev)) => dev_discovery(field, dev)?,
        (None, None) => {
            return Err(Flaw::at(
                entry.referenced,
                field,
                "says not what its devices are; one of: simulated, dev",
            ));
        }
        (Some(_), Some(dev)) => {
            return Err(Flaw::at(
                dev.referenced,
                field,
                "a source is either simulated or dev; make it two sources",
            ));
        }
    };

    let mut properties = Properties::default();
    for (name, value) in attributes {
        properties
            .set_attribute(name.clone(), value.value.clone())
            .map_err(|error| Flaw::at(value.referenced, format!("{field}.attributes"), error))?;
    }
    for (name, value) in capacity {
        properties
            .set_capacity(name.clone(), value.value.clone())
            .map_err(|error| Flaw::at(value.referenced, format!("{field}.capacity"), error))?;
    }
    let sharing = match shared {
        None => Sharing::Exclusive,
        Some(shared) => share(field, shared, &mut properties)?,
    };
    Ok(Source { name: name.value.clone(), discovery, properties, sharing })
}

fn simulated_discovery(field: &str, simulated: &Simulated) -> Result<Discovery, Flaw> {
    let count = simulated.count.value;
    if (1..=MAX_SIMULATED).contains(&count) {
        return Ok(Discovery::Simulated { count });
    }
    Err(Flaw::at(
        simulated.count.referenced,
        format!("{field}.simulated.count"),
        format_args!("{count} devices; allowed: 1 to {MAX_SIMULATED}"),
    ))
}

fn dev_discovery(field: &str, dev: &Spanned<Dev>) -> Result<Discovery, Flaw> {
    let field = format!("{field}.dev.paths");
    if dev.value.paths.is_empty() {
        return Err(Flaw::at(dev.referenced, field, "must name at least one path"));
    }
    let pattern = |(index, path): (usize, &Spanned<String>)| {
        DevPattern::new(&path.value)
            .map_err(|error| Flaw::at(path.referenced, format!("{field}[{index}]"), error))
    };
    let paths = dev.value.paths.iter().enumerate().map(pattern).collect::<Result<_, _>>()?;
    Ok(Discovery::Dev { paths })
}

/// Sharing is limited by a capacity, so that the scheduler counts the claims.
fn share(field: &str, shared: &Spanned<Shared>, properties: &mut Properties) -> Result<Sharing, Flaw> {
    let max = &shared.value.max;
    let Some(shares) = NonZeroU32::new(max.value) else {
        return Err(Flaw::at(max.referenced, format!("{field}.shared.max"), "must be 1 or more"));
    };
    let name = Sharing::capacity_name();
    if properties.capacity().contains_key(&name) {
        return Err(Flaw::at(
            shared.referenced,
            format!("{field}.shared"),
            format_args!("a shared device has the capacity {name} already; rename the one under capacity"),
        ));
    }
    properties
        .set_capacity(name, Quantity::whole(shares.get()))
        .map_err(|error| Flaw::at(shared.referenced, format!("{field}.shared"), error))?;
    Ok(Sharing::Shared { max: shares })
}

/// Why a text is not a pattern of paths under `/dev`.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatternError {
    #[error("{0:?} is not under /dev; a path is like /dev/ttyUSB* or /dev/serial/by-id/*")]
    Elsewhere(String),
    #[error("{0:?} has an empty part, `.`, `..` or `**`; a pattern is matched part by part")]
    Part(String),
    #[error("{text:?} is not a pattern: {reason}")]
    Glob { text: String, reason: &'static str },
}

impl DevPattern {
    fn new(text: &str) -> Result<Self, PatternError> {
        let below = text.strip_prefix("/dev/").ok_or_else(|| PatternError::Elsewhere(text.to_owned()))?;
        let part = |part: &str| match part {
            "" | "." | ".." => Err(PatternError::Part(text.to_owned())),
            _ if part.contains("**") => Err(PatternError::Part(text.to_owned())),
            _ => glob::Pattern::new(part)
                .map_err(|error| PatternError::Glob { text: text.to_owned(), reason: error.msg }),
        };
        Ok(Self { parts: below.split('/').map(part).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests;
