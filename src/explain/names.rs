//! Attributes and capacities that expressions look at, and that no device has.

use std::collections::{BTreeMap, BTreeSet};

use super::{Code, Finding};
use crate::{
    allocate::{Device, DeviceId, InspectedWant},
    cel::{Reference, Side, similar},
};

/// Says which names exist on no device, and which were perhaps meant.
pub(super) fn unknown(want: &InspectedWant<'_>, references: &BTreeSet<Reference>) -> Vec<Finding> {
    let all = want.devices.len();
    if all == 0 {
        return Vec::new();
    }
    let names = Names::of(want);
    references.iter().filter_map(|reference| names.finding(reference, all)).collect()
}

/// On how many devices each name is.
struct Names(BTreeMap<Reference, usize>);

impl Names {
    fn of(want: &InspectedWant<'_>) -> Self {
        let mut names = BTreeMap::new();
        for device in &want.devices {
            for reference in of_device(&device.id, device.device) {
                *names.entry(reference).or_default() += 1;
            }
        }
        Self(names)
    }

    fn finding(&self, reference: &Reference, all: usize) -> Option<Finding> {
        let Reference { side, domain, name } = reference;
        if self.0.contains_key(reference) {
            return None;
        }
        let of_side = |known: &&Reference| known.side == *side;
        if !self.0.keys().any(|known| of_side(&known) && known.domain == *domain) {
            let mut text = format!("domain {domain:?} has {} on 0 of {all} devices", plural(*side));
            let domains = self.0.keys().filter(of_side).map(|known| known.domain.as_str());
            let with_name = self.0.keys().filter(of_side).find(|known| known.name == *name);
            let meant = with_name.map(|known| known.domain.as_str()).or_else(|| similar(domain, domains));
            if let Some(meant) = meant {
                let in_domain = self.0.iter().filter(|(known, _)| of_side(known) && known.domain == meant);
                let most = in_domain.map(|(_, count)| *count).max().unwrap_or_default();
                text += &format!("; {meant:?} on {most}");
            }
            let fix = meant.map(|meant| format!("write {meant:?} instead of {domain:?}"));
            return Some(Finding { code: Code::UnknownDomain, text, fix });
        }
        let mut text = format!("{name:?} exists on 0 of {all} devices");
        let of_domain = |known: &&Reference| known.domain == *domain;
        let elsewhere = self.0.iter().find(|(known, _)| of_domain(known) && known.name == *name);
        if let Some((known, count)) = elsewhere {
            text += &format!(" as {}; as {} on {count}", singular(*side), singular(known.side));
            let fix = format!("write {} instead of {}", written(known), written(reference));
            return Some(Finding { code: Code::UnknownName, text, fix: Some(fix) });
        }
        let known = self.0.keys().filter(of_side).filter(of_domain).map(|known| known.name.as_str());
        let meant = similar(name, known.clone());
        let fix = match meant {
            Some(meant) => {
                let known = Reference { name: meant.to_owned(), ..reference.clone() };
                let count = self.0.get(&known).copied().unwrap_or_default();
                text += &format!("; {meant:?} on {count}");
                Some(format!("write {meant:?} instead of {name:?}"))
            }
            None => {
                let known: Vec<&str> = known.collect();
                text += &format!("; there are: {}", known.join(", "));
                None
            }
        };
        Some(Finding { code: Code::UnknownName, text, fix })
    }
}

fn of_device(id: &DeviceId<'_>, device: &Device<'_>) -> Vec<Reference> {
    let split = |name: &str| {
        let (domain, name) = name.split_once('/').unwrap_or((id.driver, name));
        (domain.to_owned(), name.to_owned())
    };
    let reference = |side: Side, name: &str| {
        let (domain, name) = split(name);
        Reference { side, domain, name }
    };
    let attributes = device.attributes.keys().map(|name| reference(Side::Attributes, name));
    let capacity = device.capacity.keys().map(|name| reference(Side::Capacity, name));
    attributes.chain(capacity).collect()
}

fn singular(side: Side) -> &'static str {
    match side {
        Side::Attributes => "an attribute",
        Side::Capacity => "a capacity",
    }
}

fn plural(side: Side) -> &'static str {
    match side {
        Side::Attributes => "attributes",
        Side::Capacity => "capacities",
    }
}

fn written(reference: &Reference) -> String {
    let side = match reference.side {
        Side::Attributes => "attributes",
        Side::Capacity => "capacity",
    };
    format!("device.{side}[{:?}].{}", reference.domain, reference.name)
}
