//! One request: which devices it could have, what removed the others, and what would have to change.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Code, RequestNote, general_fix, names,
    obstacles::{Grouping, listed, shown},
};
use crate::{
    allocate::{InspectedDevice, InspectedWant, Inspection, Obstacle, Owner},
    cel::Reference,
    question::Situation,
};

/// All requests and subrequests.
pub(super) fn notes(situation: &Situation<'_>, inspection: &Inspection<'_>) -> Vec<RequestNote> {
    inspection.wants.iter().map(|want| note(situation, want)).collect()
}

fn note(situation: &Situation<'_>, want: &InspectedWant<'_>) -> RequestNote {
    let mut grouping = Grouping::new(situation, want.class);
    let mut possible = 0;
    for device in &want.devices {
        match device.obstacles.first() {
            None => possible += 1,
            Some(obstacle) => grouping.add(device, obstacle),
        }
    }
    let told = nearest(want).map(|device| {
        let reasons: Vec<String> =
            device.obstacles.iter().map(|obstacle| in_short(&grouping, device, obstacle)).collect();
        format!("{}: {}", shown(device), reasons.join("; "))
    });
    let is_short = want.count.map_or(possible == 0, |count| possible < count);
    let mut note = RequestNote {
        claim: situation.claims[want.claim].id.clone(),
        request: match want.subrequest {
            Some(subrequest) => format!("{}/{subrequest}", want.request),
            None => want.request.to_owned(),
        },
        class: want.class.to_owned(),
        wanted: want.count,
        considered: want.devices.len(),
        possible,
        removed: Vec::new(),
        chosen: Vec::new(),
        findings: names::unknown(want, &references(situation, want)),
        nearest: told.filter(|_| is_short),
        fixes: Vec::new(),
    };
    if is_short {
        note.fixes = fixes(&grouping, want, possible);
    }
    note.removed = grouping.finish();
    note
}

/// The device that the fewest things keep away, and rather such that pass.
fn nearest<'w, 'a>(want: &'w InspectedWant<'a>) -> Option<&'w InspectedDevice<'a>> {
    // Where an expression fails, no device is near.
    let is_error = |obstacle: &Obstacle<'_>| matches!(obstacle, Obstacle::Selector(selector) if selector.error.is_some());
    let is_near = |device: &&InspectedDevice<'_>| {
        !device.obstacles.is_empty() && !device.obstacles.iter().any(is_error)
    };
    want.devices.iter().filter(is_near).min_by_key(|device| {
        let lasting = device.obstacles.iter().filter(|obstacle| !passes(obstacle)).count();
        (device.obstacles.len(), lasting)
    })
}

/// Whether it can be waited for.
fn passes(obstacle: &Obstacle<'_>) -> bool {
    match obstacle {
        Obstacle::InUse | Obstacle::Full { .. } | Obstacle::Counters(_) | Obstacle::Groups => true,
        Obstacle::BindingConditions
        | Obstacle::Selector(_)
        | Obstacle::Placement
        | Obstacle::NoCapacity { .. }
        | Obstacle::Amount { .. }
        | Obstacle::Taint(_)
        | Obstacle::NoAttribute { .. } => false,
    }
}

/// Everything that the selectors look at.
fn references(situation: &Situation<'_>, want: &InspectedWant<'_>) -> BTreeSet<Reference> {
    let failing =
        want.devices.iter().flat_map(|device| &device.obstacles).filter_map(|obstacle| match obstacle {
            Obstacle::Selector(selector) => Some(selector.expression),
            _ => None,
        });
    let expressions: BTreeSet<&str> = failing.collect();
    let traces = expressions.into_iter().filter_map(|expression| situation.expressions.trace(expression));
    traces.flat_map(|trace| trace.references().to_vec()).collect()
}

fn in_short(grouping: &Grouping<'_, '_>, device: &InspectedDevice<'_>, obstacle: &Obstacle<'_>) -> String {
    let (_, text) = grouping.key(obstacle);
    match obstacle {
        Obstacle::InUse => {
            let owners: Vec<String> = grouping.owners(device).into_iter().collect();
            format!("{text} by {}", listed(&owners))
        }
        Obstacle::Amount { wanted, total: there, .. }
        | Obstacle::Full { needed: wanted, left: there, .. } => {
            format!("{text}: {wanted} wanted, {there} there")
        }
        Obstacle::Counters(shortage) => {
            format!("{text}: {} wanted, {} there", shortage.needed, shortage.left)
        }
        _ => text.lines().next().unwrap_or_default().to_owned(),
    }
}

/// What would help: what keeps away, alone, as many devices as are missing; else what keeps away most.
fn fixes(grouping: &Grouping<'_, '_>, want: &InspectedWant<'_>, possible: usize) -> Vec<String> {
    let missing = want.count.unwrap_or(1).saturating_sub(possible);
    let mut alone: BTreeMap<Code, Vec<(&InspectedDevice<'_>, &Obstacle<'_>)>> = BTreeMap::new();
    let mut any: BTreeMap<Code, Vec<(&InspectedDevice<'_>, &Obstacle<'_>)>> = BTreeMap::new();
    for device in &want.devices {
        if let [obstacle] = device.obstacles.as_slice() {
            alone.entry(obstacle.into()).or_default().push((device, obstacle));
        }
        for obstacle in &device.obstacles {
            any.entry(obstacle.into()).or_default().push((device, obstacle));
        }
    }
    let is_enough = |found: &&Vec<_>| found.len() >= missing;
    // To want something else is what is left when nothing else helps.
    let selector = alone.remove(&Code::Selector);
    let mut chosen: Vec<&Vec<_>> = alone.values().filter(is_enough).collect();
    if chosen.is_empty() {
        chosen.extend(selector.iter().filter(is_enough));
    }
    if chosen.is_empty() {
        chosen = any.values().max_by_key(|found| found.len()).into_iter().collect();
    }
    let fixes = chosen.into_iter().filter_map(|found| fix(grouping, want, found, missing, possible));
    let mut fixes: Vec<String> = fixes.collect();
    if want.devices.len() < want.count.unwrap_or(1) && possible == want.devices.len() {
        fixes.push(few(want));
    }
    fixes
}

fn few(want: &InspectedWant<'_>) -> String {
    match want.devices.len() {
        0 => String::from("choose a node with devices, or start the driver on this one"),
        there => format!("ask for {there}, which is all that this node has"),
    }
}

fn fix(
    grouping: &Grouping<'_, '_>,
    want: &InspectedWant<'_>,
    found: &[(&InspectedDevice<'_>, &Obstacle<'_>)],
    missing: usize,
    possible: usize,
) -> Option<String> {
    let (device, obstacle) = *found.first()?;
    let or_fewer = if possible > 0 { format!(", or ask for {possible}") } else { String::new() };
    let owners = || -> Vec<String> {
        let owners: BTreeSet<String> =
            found.iter().take(missing).flat_map(|(device, _)| grouping.owners(device)).collect();
        owners.into_iter().collect()
    };
    Some(match obstacle {
        Obstacle::InUse => format!("wait for {}, or delete what is not needed{or_fewer}", listed(&owners())),
        Obstacle::BindingConditions => String::from("switch DRADeviceBindingConditions on"),
        Obstacle::Selector(selector) => match &selector.error {
            Some(error) => general_fix(error.into())?.to_owned(),
            None => {
                let whose = match selector.owner {
                    Owner::Class => "class",
                    Owner::Request => "request",
                };
                let index = selector.index;
                match possible {
                    0 => format!("let selector #{index} of the {whose} ask for what the devices have"),
                    _ => format!(
                        "ask for {possible}, or let selector #{index} of the {whose} ask for what the others have"
                    ),
                }
            }
        },
        Obstacle::Placement => String::from("choose another node"),
        Obstacle::NoCapacity { name } => format!("do not ask for {name}, or choose devices that have it"),
        Obstacle::Amount { name, .. } => {
            let most = found.iter().filter_map(|(_, obstacle)| match obstacle {
                Obstacle::Amount { total, .. } => Some(total),
                _ => None,
            });
            format!("ask for at most {} of {name}{or_fewer}", most.max()?)
        }
        Obstacle::Full { name, .. } => {
            let most = found.iter().filter_map(|(_, obstacle)| match obstacle {
                Obstacle::Full { left, .. } => Some(left),
                _ => None,
            });
            let owners: Vec<String> = grouping.owners(device).into_iter().collect();
            format!("ask for at most {} of {name}, or wait for {}", most.max()?, listed(&owners))
        }
        Obstacle::Counters(shortage) => {
            let takes = |other: &&InspectedDevice<'_>| {
                let mut consumes = other.device.consumes.iter();
                other.id.pool == device.id.pool && consumes.any(|set| set.counter_set == shortage.counter_set)
            };
            let takers = want.devices.iter().filter(takes).flat_map(|other| {
                grouping.owners(other).into_iter().map(|owner| format!("{owner} ({})", other.id.device))
            });
            let takers: Vec<String> = takers.collect();
            format!(
                "wait for {}, which takes from {}, or ask for a smaller device{or_fewer}",
                listed(&takers),
                shortage.counter_set
            )
        }
        Obstacle::Groups => String::from("wait for devices that cannot stand beside these"),
        Obstacle::Taint(taint) => format!(
            "repair the device, or tolerate it in the request: tolerations: [{{key: {}, operator: Exists}}]",
            taint.key
        ),
        Obstacle::NoAttribute { name } => {
            format!("publish {name} for all devices, or leave the constraint out")
        }
    })
}
