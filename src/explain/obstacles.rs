//! What keeps devices from a request, in words: one sentence for all devices with the same reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{Code, Group, excerpt::Excerpt};
use crate::{
    allocate::{CelError, DeviceView, Expressions, InspectedDevice, Obstacle, Owner, Selector},
    cel::Trace,
    device::Amount,
    question::Situation,
};

/// How many names are listed.
const NAMES: usize = 8;

/// Puts devices together that have the same reason.
pub(super) struct Grouping<'s, 'a> {
    situation: &'s Situation<'a>,
    class: &'s str,
    traces: BTreeMap<&'a str, Option<Trace>>,
    groups: Vec<(Key, Members<'a>)>,
}

/// Devices with the same key have the same reason.
type Key = (Code, String);

/// Devices with the same reason.
#[derive(Default)]
struct Members<'a> {
    devices: Vec<String>,
    owners: BTreeMap<String, Vec<String>>,
    expression: &'a str,
    excerpt: Excerpt,
    /// What is wanted and the most that there is.
    amounts: Option<(Amount, Amount)>,
}

impl<'s, 'a> Grouping<'s, 'a> {
    pub(super) fn new(situation: &'s Situation<'a>, class: &'s str) -> Self {
        Self { situation, class, traces: BTreeMap::new(), groups: Vec::new() }
    }

    /// Adds a device with its first obstacle.
    pub(super) fn add(&mut self, device: &InspectedDevice<'a>, obstacle: &Obstacle<'a>) {
        let mut key = self.key(obstacle);
        let reason = match obstacle {
            Obstacle::Selector(selector) => self
                .trace(selector.expression)
                .map(|trace| Expressions::why_not(trace, &DeviceView::of(device.id.driver, device.device))),
            _ => None,
        };
        if let Some(reason) = &reason {
            // Another part of the same expression is another reason.
            let _infallible = write!(key.1, "\0{:?}", reason.span);
        }
        let place = self.groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            self.groups.push((key, Members::default()));
            self.groups.len() - 1
        });
        let (name, owners) = (shown(device), self.owners(device));
        let members = &mut self.groups[place].1;
        for owner in owners {
            members.owners.entry(owner).or_default().push(device.id.device.to_owned());
        }
        members.devices.push(name);
        match obstacle {
            Obstacle::Selector(selector) => members.expression = selector.expression,
            Obstacle::Amount { wanted, total: there, .. }
            | Obstacle::Full { needed: wanted, left: there, .. } => members.more(wanted, there),
            Obstacle::Counters(shortage) => members.more(&shortage.needed, &shortage.left),
            _ => {}
        }
        if let Some(reason) = reason {
            members.excerpt.add(&reason);
        }
    }

    fn trace(&mut self, expression: &'a str) -> Option<&Trace> {
        let expressions = self.situation.expressions;
        self.traces.entry(expression).or_insert_with(|| expressions.trace(expression)).as_ref()
    }

    /// The claims that have something of a device.
    pub(super) fn owners(&self, device: &InspectedDevice<'_>) -> BTreeSet<String> {
        self.situation.held.owners.get(&device.id).cloned().unwrap_or_default()
    }

    /// The reasons, those of most devices first.
    pub(super) fn finish(mut self) -> Vec<Group> {
        self.groups.sort_by_key(|(_, members)| std::cmp::Reverse(members.devices.len()));
        let group = |((code, text), members): (Key, Members<'_>)| {
            let text = text.split('\0').next().unwrap_or_default();
            Group {
                code,
                text: members.told(code, text),
                excerpt: members.excerpt.lines(members.expression),
                devices: members.devices,
            }
        };
        self.groups.into_iter().map(group).collect()
    }

    /// What is said of every device with the same reason.
    pub(super) fn key(&self, obstacle: &Obstacle<'_>) -> Key {
        let text = match obstacle {
            Obstacle::InUse => String::from("in use"),
            Obstacle::BindingConditions => {
                String::from("has binding conditions, and DRADeviceBindingConditions is off")
            }
            Obstacle::Selector(selector) => self.selector(selector),
            Obstacle::Placement => String::from("is for other nodes"),
            Obstacle::NoCapacity { name } => format!("has no capacity {name:?}"),
            Obstacle::Amount { name, .. } => format!("cannot give so much {name}"),
            Obstacle::Full { name, .. } => format!("has too little {name} left"),
            Obstacle::Counters(shortage) => {
                format!("too little is left of counter {} in {}", shortage.counter, shortage.counter_set)
            }
            Obstacle::Groups => String::from("cannot stand beside devices that are allocated"),
            Obstacle::Taint(taint) => format!("has the taint {}", tainted(taint)),
            Obstacle::NoAttribute { name } => {
                format!("has no attribute {name:?}, which a constraint is about")
            }
        };
        (obstacle.into(), text)
    }

    fn selector(&self, selector: &Selector<'_>) -> String {
        let owner = match selector.owner {
            Owner::Class => format!("class {}", self.class),
            Owner::Request => String::from("the request"),
        };
        let index = selector.index;
        match &selector.error {
            None => format!("selector #{index} of {owner} is false"),
            Some(CelError::Compile(_)) => format!("selector #{index} of {owner} cannot be evaluated"),
            Some(CelError::Runtime(reason)) => format!("selector #{index} of {owner} fails: {reason}"),
        }
    }
}

impl Members<'_> {
    fn more(&mut self, wanted: &Amount, there: &Amount) {
        match &mut self.amounts {
            Some((_, most)) if *most >= *there => {}
            amounts => *amounts = Some((wanted.clone(), there.clone())),
        }
    }

    fn told(&self, code: Code, text: &str) -> String {
        match (&self.amounts, code) {
            (Some((wanted, most)), _) => {
                format!(
                    "{text}: {wanted} wanted, {most} there{}",
                    if self.devices.len() > 1 { " at most" } else { "" }
                )
            }
            (None, Code::InUse) if !self.owners.is_empty() => {
                let owner =
                    |(owner, devices): (&String, &Vec<String>)| format!("{owner} ({})", listed(devices));
                let owners: Vec<String> = self.owners.iter().take(NAMES).map(owner).collect();
                let more = if self.owners.len() > NAMES { ", …" } else { "" };
                format!("{text} by {}{more}", owners.join(", "))
            }
            _ => text.to_owned(),
        }
    }
}

/// The first of many names.
pub(super) fn listed(names: &[String]) -> String {
    let more =
        if names.len() > NAMES { format!(", and {} more", names.len() - NAMES) } else { String::new() };
    format!("{}{more}", names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", "))
}

/// Pool and name.
pub(super) fn shown(device: &InspectedDevice<'_>) -> String {
    format!("{}/{}", device.id.pool, device.id.device)
}

fn tainted(taint: &k8s_openapi::api::resource::v1::DeviceTaint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        _ => format!("{}:{}", taint.key, taint.effect),
    }
}
