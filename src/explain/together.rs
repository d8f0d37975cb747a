//! Claims of which every request could be had, but not all at once: the same is asked again with less in it, and what
//! was left out when it fits is the reason.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Node, resource::v1::DeviceConstraint};

use super::{Code, Finding, counted};
use crate::{
    allocate::{Attribute, Claim, DeviceId, InspectedDevice, InspectedWant, Inspection, Mode, Wanted},
    question::{Answer, Situation},
};

/// How many values of an attribute are listed.
const VALUES: usize = 6;

/// What cannot be had together.
pub(super) fn findings(situation: &Situation<'_>, node: &Node, inspection: &Inspection<'_>) -> Vec<Finding> {
    let together = Together { situation, node, inspection };
    let constraints = together.constraints();
    if !constraints.is_empty() {
        return constraints;
    }
    together.claims().or_else(|| together.requests()).or_else(|| together.counts()).into_iter().collect()
}

struct Together<'a, 's> {
    situation: &'s Situation<'a>,
    node: &'s Node,
    inspection: &'s Inspection<'s>,
}

impl Together<'_, '_> {
    fn fits(&self, claims: &[Claim<'_>]) -> bool {
        matches!(self.situation.ask_for(self.node, claims), Answer::Fits(_))
    }

    /// Each constraint without which it fits; or all of them, if it takes that.
    fn constraints(&self) -> Vec<Finding> {
        let claims = &self.situation.claims;
        let mut found = Vec::new();
        for (place, claim) in claims.iter().enumerate() {
            for index in 0..claim.constraints.len() {
                let mut rest = claim.constraints.to_vec();
                let constraint = rest.remove(index);
                let mut fewer: Vec<Claim<'_>> = claims.clone();
                fewer[place].constraints = &rest;
                if self.fits(&fewer) {
                    found.push(self.constraint(place, index, &constraint));
                }
            }
        }
        let has_any = claims.iter().any(|claim| !claim.constraints.is_empty());
        let mut without = claims.clone();
        for claim in &mut without {
            claim.constraints = &[];
        }
        if found.is_empty() && has_any && self.fits(&without) {
            found.push(Finding {
                code: Code::Constraint,
                text: String::from("the constraints cannot be satisfied together"),
                fix: Some(String::from("leave out or loosen a constraint")),
            });
        }
        found
    }

    fn constraint(&self, claim: usize, index: usize, constraint: &DeviceConstraint) -> Finding {
        let (kind, attribute) = match constraint {
            DeviceConstraint { match_attribute: Some(attribute), .. } => ("matchAttribute", attribute),
            DeviceConstraint { distinct_attribute: Some(attribute), .. } => ("distinctAttribute", attribute),
            _ => ("constraint", &String::new()),
        };
        let wants = || {
            let names = constraint.requests.as_deref().unwrap_or_default();
            let is_about = move |want: &&InspectedWant<'_>| {
                names.is_empty()
                    || names
                        .iter()
                        .any(|name| name == want.request || name.starts_with(&format!("{}/", want.request)))
            };
            self.inspection.wants.iter().filter(move |want| want.claim == claim).filter(is_about)
        };
        let mut values: BTreeMap<String, Vec<DeviceId<'_>>> = BTreeMap::new();
        for device in wants().flat_map(|want| &want.devices).filter(|device| device.obstacles.is_empty()) {
            let ids = values.entry(value(device, attribute)).or_default();
            if !ids.contains(&device.id) {
                ids.push(device.id);
            }
        }
        let wanted: usize = wants().filter_map(|want| want.count).sum();
        let most = values.values().map(Vec::len).max().unwrap_or_default();
        let there: Vec<String> = values
            .iter()
            .take(VALUES)
            .map(|(value, ids)| format!("{value} ({})", counted(ids.len(), "device")))
            .collect();
        let more = if values.len() > VALUES { ", …" } else { "" };
        let text = format!(
            "constraint #{index} of {} cannot be satisfied: {kind} {attribute} for {}, and there are {}{more}",
            self.situation.claims[claim].id,
            counted(wanted, "device"),
            there.join(", ")
        );
        let fix = match kind {
            "matchAttribute" => {
                format!("ask for {most} with the same {attribute}, or leave the constraint out")
            }
            _ => format!("ask for {} with different {attribute}, or leave the constraint out", values.len()),
        };
        Finding { code: Code::Constraint, text, fix: Some(fix) }
    }

    /// Whether every claim fits by itself.
    fn claims(&self) -> Option<Finding> {
        let claims = &self.situation.claims;
        let is_each = claims.len() > 1 && claims.iter().all(|claim| self.fits(std::slice::from_ref(claim)));
        is_each.then(|| Finding {
            code: Code::Competition,
            text: String::from("every claim fits by itself, but they want the same devices"),
            fix: Some(String::from("ask for fewer, or for different devices in one of the claims")),
        })
    }

    /// The requests that fit by themselves, where they all do.
    fn requests(&self) -> Option<Finding> {
        for claim in &self.situation.claims {
            let alone = |index: usize| {
                let mut alone = claim.clone();
                alone.requests = vec![claim.requests[index].clone()];
                // They name requests that are not there any more.
                alone.constraints = &[];
                self.fits(&[alone])
            };
            if claim.requests.len() > 1 && (0..claim.requests.len()).all(alone) {
                let names: Vec<&str> = claim.requests.iter().map(|request| request.name).collect();
                return Some(Finding {
                    code: Code::Competition,
                    text: format!(
                        "each of the requests {} fits by itself, but they want the same devices",
                        names.join(", ")
                    ),
                    fix: Some(String::from("ask for fewer, or for different devices in one of the requests")),
                });
            }
        }
        None
    }

    /// How many devices of a request fit at the same time.
    fn counts(&self) -> Option<Finding> {
        let [claim] = self.situation.claims.as_slice() else { return None };
        let (index, count) =
            claim.requests.iter().enumerate().find_map(|(index, request)| match &request.wanted {
                Wanted::Exactly(want) => match want.mode {
                    Mode::Count(count) if count > 1 => Some((index, count)),
                    _ => None,
                },
                _ => None,
            })?;
        let with = |count: i64| {
            let mut fewer = claim.clone();
            if let Wanted::Exactly(want) = &mut fewer.requests[index].wanted {
                want.mode = Mode::Count(count);
            }
            self.fits(&[fewer])
        };
        let most = (1..count).rev().find(|count| with(*count))?;
        let name = claim.requests[index].name;
        let consumes = |device: &InspectedDevice<'_>| !device.device.consumes.is_empty();
        let has_counters = self.inspection.wants.iter().flat_map(|want| &want.devices).any(consumes);
        let (code, why) = if has_counters {
            (Code::Counters, "they take from the same counters")
        } else {
            (Code::Competition, "they exclude each other")
        };
        Some(Finding {
            code,
            text: format!("request {name} wants {count} devices at the same time; {most} fit: {why}"),
            fix: Some(format!("ask for {most}")),
        })
    }
}

/// The value of an attribute for people.
fn value(device: &InspectedDevice<'_>, name: &str) -> String {
    match device.attribute(name) {
        None | Some(Attribute::Unknown) => String::from("no value"),
        Some(Attribute::Bool(value)) => value.to_string(),
        Some(Attribute::Int(value)) => value.to_string(),
        Some(Attribute::String(value)) => format!("{value:?}"),
        Some(Attribute::Version(value)) => value.to_string(),
        Some(Attribute::Bools(values)) => format!("{values:?}"),
        Some(Attribute::Ints(values)) => format!("{values:?}"),
        Some(Attribute::Strings(values) | Attribute::Versions(values)) => format!("{values:?}"),
    }
}
