//! How much of a device's capacity a request takes.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Capacity, Cluster, Policy, Range, Release, error::CapacityFlaw};
use crate::device::{Amount, Format};

/// What a request takes of each capacity of a device.
pub(super) type Consumed<'a> = Vec<(&'a str, Cow<'a, Amount>)>;

/// Which capacity cannot be calculated with, and why.
pub(super) type NamedFlaw = (String, CapacityFlaw);

/// What a request would take of a device; nothing if the device cannot give it however empty it is.
pub(super) fn consumed<'a>(
    cluster: &Cluster<'_>,
    wanted: Option<&'a BTreeMap<&'a str, Amount>>,
    capacity: &'a BTreeMap<&'a str, Capacity>,
) -> Result<Option<Consumed<'a>>, NamedFlaw> {
    if wanted.is_some_and(|wanted| wanted.keys().any(|name| !capacity.contains_key(name))) {
        return Ok(None);
    }
    let arithmetic = Arithmetic::of(cluster);
    let mut consumed = Vec::with_capacity(capacity.len());
    for (&name, capacity) in capacity {
        let wanted = wanted.and_then(|wanted| wanted.get(name));
        let amount = arithmetic.amount(wanted, capacity).map_err(|flaw| (name.to_owned(), flaw))?;
        if arithmetic.release >= Release::V1_37 && amount.sign().is_lt() {
            return Err((name.to_owned(), CapacityFlaw::Negative));
        }
        consumed.push((name, amount));
    }
    let is_allowed = |((_, amount), capacity): (&(&str, Cow<'_, Amount>), &Capacity)| {
        capacity.policy.as_ref().is_none_or(|policy| arithmetic.allows(amount, policy))
    };
    let is_possible = consumed.iter().zip(capacity.values()).all(is_allowed);
    Ok(is_possible.then_some(consumed))
}

/// Whether there is enough left besides what others have.
pub(super) fn fits(
    consumed: &Consumed<'_>,
    capacity: &BTreeMap<&str, Capacity>,
    allocated: Option<&BTreeMap<&str, Amount>>,
    chosen: &BTreeMap<&str, Amount>,
) -> bool {
    consumed.iter().zip(capacity.values()).all(|((name, amount), capacity)| {
        let others = [allocated.and_then(|allocated| allocated.get(name)), chosen.get(name)];
        let [None, None] = others else {
            let total = others
                .into_iter()
                .flatten()
                .fold(amount.clone().into_owned(), |total, more| total.plus(more));
            return total <= capacity.value;
        };
        **amount <= capacity.value
    })
}

/// How a release calculates.
#[derive(Clone, Copy)]
struct Arithmetic {
    release: Release,
    fractional: bool,
}

impl Arithmetic {
    fn of(cluster: &Cluster<'_>) -> Self {
        let release = cluster.release;
        let fractional = release >= Release::V1_37 && cluster.features.fractional_capacity_range;
        Self { release, fractional }
    }

    fn amount<'a>(
        self,
        wanted: Option<&'a Amount>,
        capacity: &'a Capacity,
    ) -> Result<Cow<'a, Amount>, CapacityFlaw> {
        let Some(wanted) = wanted else {
            let default = capacity.policy.as_ref().and_then(|policy| policy.default.as_ref());
            return Ok(Cow::Borrowed(default.unwrap_or(&capacity.value)));
        };
        match &capacity.policy {
            Some(Policy { range: Some(range @ Range { min: Some(min), .. }), .. }) => {
                self.rounded(wanted, min, range).map(Cow::Owned)
            }
            Some(Policy { values: Some(values), .. }) => {
                Ok(Cow::Borrowed(values.iter().find(|value| wanted <= value).unwrap_or(wanted)))
            }
            _ => Ok(Cow::Borrowed(wanted)),
        }
    }

    /// The next amount of a range.
    fn rounded(self, wanted: &Amount, min: &Amount, range: &Range) -> Result<Amount, CapacityFlaw> {
        if wanted < min {
            return Ok(min.clone());
        }
        let Some(step) = &range.step else { return Ok(wanted.clone()) };
        if self.uses_thousandths(range) {
            let text = || wanted.to_string();
            let number = exact_thousandths(wanted).ok_or_else(|| CapacityFlaw::Thousandths(text()))?;
            let value = next_step(number, min.thousandths(), step.thousandths())
                .ok_or_else(|| CapacityFlaw::RoundedThousandths(text()))?;
            return Ok(match value % 1000 {
                0 => Amount::whole(value / 1000, step.format()),
                _ => Amount::of_thousandths(value, step.format()),
            });
        }
        let (min, step_value) = (min.rounded_up(), step.rounded_up());
        if self.release == Release::V1_36 {
            let value = next_step_wrapping(wanted.rounded_up(), min, step_value);
            return Ok(Amount::whole(value, Format::BinarySi));
        }
        if *wanted > Amount::whole(i64::MAX, Format::DecimalSi) {
            return Err(CapacityFlaw::Large(wanted.to_string()));
        }
        let value = if min < 0 {
            Some(next_step_wrapping(wanted.rounded_up(), min, step_value))
        } else {
            next_step(wanted.rounded_up(), min, step_value)
        };
        value
            .map(|value| Amount::whole(value, step.format()))
            .ok_or_else(|| CapacityFlaw::RoundedLarge(wanted.to_string()))
    }

    fn allows(self, amount: &Amount, policy: &Policy) -> bool {
        if policy.default.as_ref().is_some_and(|default| amount.is_same_as(default)) {
            return true;
        }
        match policy {
            Policy { range: Some(range), .. } => self.is_in(amount, range),
            Policy { values: Some(values), .. } if !values.is_empty() => values.contains(amount),
            _ => true,
        }
    }

    fn is_in(self, amount: &Amount, range: &Range) -> bool {
        if range.max.as_ref().is_some_and(|max| amount > max) {
            return false;
        }
        let Some(step) = &range.step else { return true };
        let min = range.min.as_ref();
        let (number, min, step) = if self.uses_thousandths(range) {
            let Some(number) = exact_thousandths(amount) else { return false };
            (number, min.map_or(0, Amount::thousandths), step.thousandths())
        } else {
            (amount.rounded_up(), min.map_or(0, Amount::rounded_up), step.rounded_up())
        };
        number.wrapping_sub(min).checked_rem(step) == Some(0)
    }

    /// Whether a range can be calculated with in thousandths.
    fn uses_thousandths(self, range: &Range) -> bool {
        let bounds = [&range.min, &range.max, &range.step];
        self.fractional
            && bounds.into_iter().flatten().all(|bound| exact_thousandths(bound).is_some())
            && range.step.as_ref().is_none_or(|step| step.thousandths() >= 1)
    }
}

fn exact_thousandths(amount: &Amount) -> Option<i64> {
    let value = amount.thousandths();
    (*amount == Amount::of_thousandths(value, amount.format())).then_some(value)
}

/// The first number from `min` in steps that is not below; a step of nothing leaves it as it is.
fn next_step_wrapping(number: i64, min: i64, step: i64) -> i64 {
    let steps = steps(number, min, step);
    min.wrapping_add(step.wrapping_mul(steps))
}

/// The same, where it can be said.
fn next_step(number: i64, min: i64, step: i64) -> Option<i64> {
    step.checked_mul(steps(number, min, step))?.checked_add(min)
}

fn steps(number: i64, min: i64, step: i64) -> i64 {
    let above = number.wrapping_sub(min);
    let exact = above.checked_rem(step).is_none_or(|rest| rest == 0);
    above.checked_div(step).unwrap_or(0).wrapping_add(i64::from(!exact))
}
