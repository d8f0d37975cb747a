//! The shape of the file, and the checks that need more than one of its fields.

use std::{collections::BTreeMap, fmt::Display, num::NonZeroU32, sync::Arc};

use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::{Config, DevPattern, Discovery, Source, error::Flaw};
use crate::device::{
    AbsolutePath, Access, AttributeName, AttributeValue, DriverName, Exposure, Properties, Quantity, Sharing,
    SourceName, Taint, Text, quoted,
};

/// More than any node has, in all sources together; a typing error is likelier.
const MAX_SIMULATED: u32 = 10_000;
/// More than anybody writes by hand.
const MAX_SOURCES: usize = 256;
const MAX_PATHS: usize = 64;
/// Folders under `/dev` are not that deep, and every part multiplies what has to be looked at.
const MAX_PARTS: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    driver: DriverName,
    sources: Vec<Spanned<Entry>>,
    #[serde(default, deserialize_with = "not_empty")]
    reports: Option<AbsolutePath>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<SourceName>,
    #[serde(default, deserialize_with = "not_empty")]
    simulated: Option<Simulated>,
    #[serde(default, deserialize_with = "not_empty")]
    dev: Option<Spanned<Dev>>,
    #[serde(default)]
    attributes: BTreeMap<AttributeName, Spanned<AttributeValue>>,
    #[serde(default)]
    capacity: BTreeMap<AttributeName, Spanned<Quantity>>,
    #[serde(default, deserialize_with = "not_empty")]
    shared: Option<Spanned<Shared>>,
    #[serde(default)]
    container: Access,
    #[serde(default)]
    taints: Vec<Spanned<Taint>>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Metadata {
    expose: Option<Vec<AttributeName>>,
    redact: Vec<AttributeName>,
}

impl Metadata {
    fn exposure(&self, driver: &DriverName) -> Exposure {
        let names = |names: &[AttributeName]| names.iter().map(|name| name.clone().within(driver)).collect();
        Exposure { only: self.expose.as_deref().map(names), without: names(&self.redact) }
    }
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

/// A field that may be left out, but not left empty: `shared:` alone must not mean exclusive.
fn not_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

pub(super) fn parse(text: &str) -> Result<Config, Flaw> {
    // The path is known inside of the parser, the error outside: it gains its place on the way.
    let mut track = serde_path_to_error::Track::new();
    let parsed: Result<File, _> = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        File::deserialize(serde_path_to_error::Deserializer::new(deserializer, &mut track))
    });
    let file = parsed.map_err(|error| Flaw::from_yaml(&track.path(), &error))?;

    let mut sources: Vec<Source> = Vec::with_capacity(file.sources.len());
    let mut simulated_before = 0;
    for (index, entry) in file.sources.iter().enumerate() {
        let field = format!("sources[{index}]");
        if index == MAX_SOURCES {
            return Err(Flaw::at(entry.referenced, field, format_args!("more than {MAX_SOURCES} sources")));
        }
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
        let source = source(&field, entry, &file.driver, simulated_before)?;
        if let Discovery::Simulated { count } = source.discovery {
            simulated_before += count;
        }
        sources.push(source);
    }
    Ok(Config { driver: file.driver, sources, reports: file.reports })
}

fn source(
    field: &str,
    entry: &Spanned<Entry>,
    driver: &DriverName,
    simulated_before: u32,
) -> Result<Source, Flaw> {
    let Entry { name, simulated, dev, attributes, capacity, shared, container, taints, metadata } =
        &entry.value;
    let discovery = match (simulated, dev) {
        (Some(simulated), None) => simulated_discovery(field, simulated, simulated_before)?,
        (None, Some(dev)) => dev_discovery(field, dev)?,
        (None, None) => {
            return Err(Flaw::at(
                entry.referenced,
                field,
                "does not say what its devices are; one of: simulated, dev",
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
    let source = Text::try_from(name.value.to_string())
        .map_err(|error| Flaw::at(name.referenced, format!("{field}.name"), error))?;
    properties
        .set_attribute(Source::attribute_name(), AttributeValue::String(source))
        .map_err(|error| Flaw::at(name.referenced, format!("{field}.name"), error))?;
    for (name, value) in attributes {
        let name = name.clone().within(driver);
        let flaw = |error: &dyn Display| Flaw::at(value.referenced, format!("{field}.attributes"), error);
        if name == Source::attribute_name() {
            return Err(flaw(&format_args!(
                "every device has the attribute {name} already: the name of its source"
            )));
        }
        if properties.attributes().contains_key(&name) {
            return Err(flaw(&format_args!("{name} and {driver}/{name} are the same attribute")));
        }
        properties.set_attribute(name, value.value.clone()).map_err(|error| flaw(&error))?;
    }
    for (name, value) in capacity {
        let name = name.clone().within(driver);
        let flaw = |error: &dyn Display| Flaw::at(value.referenced, format!("{field}.capacity"), error);
        if properties.capacity().contains_key(&name) {
            return Err(flaw(&format_args!("{name} and {driver}/{name} are the same capacity")));
        }
        properties.set_capacity(name, value.value.clone()).map_err(|error| flaw(&error))?;
    }
    let sharing = match shared {
        None => Sharing::Exclusive,
        Some(shared) => share(field, shared, &mut properties)?,
    };
    if let Some(taint) = taints.get(Taint::MAX) {
        let flaw = format_args!("a device has at most {} taints", Taint::MAX);
        return Err(Flaw::at(taint.referenced, format!("{field}.taints"), flaw));
    }
    Ok(Source {
        name: name.value.clone(),
        discovery,
        properties,
        sharing,
        access: Arc::new(container.clone()),
        taints: taints.iter().map(|taint| taint.value.clone()).collect(),
        exposure: Arc::new(metadata.exposure(driver)),
    })
}

fn simulated_discovery(field: &str, simulated: &Simulated, before: u32) -> Result<Discovery, Flaw> {
    let count = simulated.count.value;
    if (1..=MAX_SIMULATED - before).contains(&count) {
        return Ok(Discovery::Simulated { count });
    }
    Err(Flaw::at(
        simulated.count.referenced,
        format!("{field}.simulated.count"),
        format_args!("{count} devices; allowed: 1 to {MAX_SIMULATED}, in all sources together"),
    ))
}

fn dev_discovery(field: &str, dev: &Spanned<Dev>) -> Result<Discovery, Flaw> {
    let field = format!("{field}.dev.paths");
    if !(1..=MAX_PATHS).contains(&dev.value.paths.len()) {
        return Err(Flaw::at(dev.referenced, field, format_args!("must be 1 to {MAX_PATHS} paths")));
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
    #[error("{} is not under /dev; a path is like /dev/ttyUSB* or /dev/serial/by-id/*", quoted(.0))]
    Elsewhere(String),
    #[error("{} has an empty part, `.`, `..` or `**`; a pattern is matched part by part", quoted(.0))]
    Part(String),
    #[error("{} has more than {MAX_PARTS} parts below /dev", quoted(.0))]
    Deep(String),
    #[error("{} is not a pattern: {reason}", quoted(.text))]
    Glob { text: String, reason: &'static str },
}

impl DevPattern {
    fn new(text: &str) -> Result<Self, PatternError> {
        let below = text.strip_prefix("/dev/").ok_or_else(|| PatternError::Elsewhere(text.to_owned()))?;
        if below.split('/').count() > MAX_PARTS {
            return Err(PatternError::Deep(text.to_owned()));
        }
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
