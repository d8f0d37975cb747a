//! What has to hold between the devices of a claim.

use std::{borrow::Cow, collections::BTreeSet};

use k8s_openapi::api::resource::v1::DeviceConstraint;

use super::{Attribute, Cluster, Device, Release};

/// A constraint and the devices that it has seen. What is added last is removed first.
#[derive(Debug)]
pub(super) struct Constraint<'a> {
    /// The attribute that it is about.
    pub(super) attribute: &'a str,
    requests: &'a [String],
    rule: Rule<'a>,
    lists: Lists,
    release: Release,
}

/// Whether lists are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lists {
    Unknown,
    Sets,
}

#[derive(Debug)]
enum Rule<'a> {
    Match(Matching<'a>),
    Distinct(Distinct<'a>),
}

/// All have the same value.
#[derive(Debug, Default)]
struct Matching<'a> {
    devices: usize,
    first: Option<Attribute<'a>>,
    /// What all have in common, after each device.
    common: Vec<Set<'a>>,
}

/// No two have the same value.
#[derive(Debug, Default)]
struct Distinct<'a> {
    devices: usize,
    /// By request.
    seen: Vec<(&'a str, Attribute<'a>)>,
}

/// The values of an attribute, where one is a list of one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Set<'a> {
    Ints(BTreeSet<i64>),
    Bools(BTreeSet<bool>),
    Strings(BTreeSet<Cow<'a, str>>),
    Versions(BTreeSet<Cow<'a, str>>),
}

impl<'a> Set<'a> {
    fn of(attribute: &Attribute<'a>) -> Option<Self> {
        let set = match attribute {
            Attribute::Int(value) => Self::Ints([*value].into()),
            Attribute::Bool(value) => Self::Bools([*value].into()),
            Attribute::String(text) => Self::Strings([text.clone()].into()),
            Attribute::Version(text) => Self::Versions([text.clone()].into()),
            Attribute::Ints(values) => Self::Ints(values.iter().copied().collect()),
            Attribute::Bools(values) => Self::Bools(values.iter().copied().collect()),
            Attribute::Strings(values) => Self::Strings(texts(values)),
            Attribute::Versions(values) => Self::Versions(texts(values)),
            Attribute::Unknown => return None,
        };
        Some(set).filter(|set| !set.is_empty())
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Ints(values) => values.is_empty(),
            Self::Bools(values) => values.is_empty(),
            Self::Strings(values) | Self::Versions(values) => values.is_empty(),
        }
    }

    /// What both have; nothing if that is empty or they are of different kinds.
    fn common(&self, other: &Self) -> Option<Self> {
        let common = match (self, other) {
            (Self::Ints(own), Self::Ints(other)) => Self::Ints(own & other),
            (Self::Bools(own), Self::Bools(other)) => Self::Bools(own & other),
            (Self::Strings(own), Self::Strings(other)) => Self::Strings(own & other),
            (Self::Versions(own), Self::Versions(other)) => Self::Versions(own & other),
            _ => return None,
        };
        Some(common).filter(|set| !set.is_empty())
    }
}

fn texts<'a>(values: &Cow<'a, [String]>) -> BTreeSet<Cow<'a, str>> {
    match values {
        Cow::Borrowed(values) => values.iter().map(|text| Cow::Borrowed(text.as_str())).collect(),
        Cow::Owned(values) => values.iter().map(|text| Cow::Owned(text.clone())).collect(),
    }
}

/// Whether a single value is of a kind that can be compared.
fn is_scalar(attribute: &Attribute<'_>) -> bool {
    matches!(attribute, Attribute::Bool(_) | Attribute::Int(_) | Attribute::String(_) | Attribute::Version(_))
}

impl<'a> Constraint<'a> {
    /// A constraint of a claim; none if it is of a kind that is not known.
    pub(super) fn new(cluster: &Cluster<'_>, constraint: &'a DeviceConstraint) -> Option<Self> {
        let (attribute, rule) = match constraint {
            DeviceConstraint { match_attribute: Some(attribute), .. } => {
                (attribute, Rule::Match(Matching::default()))
            }
            DeviceConstraint { distinct_attribute: Some(attribute), .. } => {
                (attribute, Rule::Distinct(Distinct::default()))
            }
            _ => return None,
        };
        let lists = if cluster.features.list_type_attributes { Lists::Sets } else { Lists::Unknown };
        let requests = constraint.requests.as_deref().unwrap_or_default();
        Some(Self { attribute, requests, rule, lists, release: cluster.release })
    }

    /// Whether it is about a request, or about a subrequest of it.
    pub(super) fn is_about(&self, request: &str, subrequest: Option<&str>) -> bool {
        let is_subrequest = |name: &str| {
            let rest = name.strip_prefix(request).and_then(|rest| rest.strip_prefix('/'));
            rest.is_some() && rest == subrequest
        };
        self.requests.is_empty() || self.requests.iter().any(|name| name == request || is_subrequest(name))
    }

    /// Whether trying a device can change what holds for later ones, even if the device is not kept. So it was in
    /// 1.36, and skipping devices that cannot lead anywhere would then change the answer.
    pub(super) fn remembers_what_was_removed(&self) -> bool {
        self.release == Release::V1_36
            && match self.rule {
                Rule::Match(_) => self.lists == Lists::Sets,
                Rule::Distinct(_) => true,
            }
    }

    /// Adds a device with this value to those of a request, if the constraint still holds then.
    pub(super) fn add(&mut self, request: &'a str, attribute: Attribute<'a>) -> bool {
        let (lists, release) = (self.lists, self.release);
        match &mut self.rule {
            Rule::Match(matching) => matching.add(attribute, lists, release),
            Rule::Distinct(distinct) => distinct.add(request, attribute, lists, release),
        }
    }

    /// Removes the device that was added last, of this request.
    pub(super) fn remove(&mut self, request: &str) {
        let release = self.release;
        match &mut self.rule {
            Rule::Match(matching) => {
                matching.devices -= 1;
                if release >= Release::V1_37 {
                    matching.common.truncate(matching.devices);
                }
            }
            Rule::Distinct(distinct) => {
                distinct.devices -= 1;
                match release {
                    // One value a request is kept, and it goes with any device of the request.
                    Release::V1_36 => distinct.seen.retain(|(name, _)| *name != request),
                    Release::V1_37 => drop(distinct.seen.pop()),
                }
            }
        }
    }
}

impl<'a> Matching<'a> {
    fn add(&mut self, attribute: Attribute<'a>, lists: Lists, release: Release) -> bool {
        match lists {
            Lists::Sets => {
                let Some(set) = Set::of(&attribute) else { return false };
                let common = match self.common.last() {
                    Some(current) if self.devices > 0 => {
                        let Some(common) = current.common(&set) else { return false };
                        common
                    }
                    _ => set,
                };
                if release == Release::V1_36 {
                    // What was narrowed stays so when a device is removed.
                    self.common.clear();
                }
                self.common.push(common);
            }
            Lists::Unknown => {
                if self.devices == 0 {
                    self.first = Some(attribute);
                } else if !is_scalar(&attribute) || self.first.as_ref() != Some(&attribute) {
                    return false;
                }
            }
        }
        self.devices += 1;
        true
    }
}

impl<'a> Distinct<'a> {
    fn add(&mut self, request: &'a str, attribute: Attribute<'a>, lists: Lists, release: Release) -> bool {
        let is_first = release == Release::V1_36 && self.devices == 0;
        if !is_first && !self.is_distinct(&attribute, lists) {
            return false;
        }
        if release == Release::V1_36 {
            self.seen.retain(|(name, _)| *name != request);
        }
        self.seen.push((request, attribute));
        self.devices += 1;
        true
    }

    fn is_distinct(&self, attribute: &Attribute<'a>, lists: Lists) -> bool {
        match lists {
            Lists::Sets => Set::of(attribute).is_some_and(|set| {
                let seen = self.seen.iter().filter_map(|(_, attribute)| Set::of(attribute));
                seen.into_iter().all(|seen| set.common(&seen).is_none())
            }),
            Lists::Unknown => self.seen.iter().all(|(_, seen)| is_scalar(attribute) && seen != attribute),
        }
    }
}

/// The value that a driver gives: under the full name, or under the bare one if the domain is its own.
pub(super) fn published<'a>(driver: &str, device: &'a Device<'a>, name: &str) -> Option<&'a Attribute<'a>> {
    let bare = || name.split_once('/').filter(|(domain, _)| *domain == driver);
    device.attributes.get(name).or_else(|| device.attributes.get(bare()?.1))
}
