//! Quantities such as `80Gi`: [`Quantity`] as a configuration writes them, [`Amount`] to calculate with.

mod amount;
mod parse;
mod print;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::{
    amount::{Amount, Format},
    parse::AmountError,
};
use super::name::quoted;

/// A text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantity {}: must be a number of zero or more and at most 19 digits, with an optional unit (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent like e3)",
    quoted(.0)
)]
pub struct QuantityError(String);

/// An amount of capacity, kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantity(String);

impl Quantity {
    /// A whole number.
    #[must_use]
    pub fn whole(number: u32) -> Self {
        Self(number.to_string())
    }
}

impl TryFrom<String> for Quantity {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        if is_quantity(&text) { Ok(Self(text)) } else { Err(QuantityError(text)) }
    }
}

impl From<&Quantity> for Amount {
    /// What a configuration may say is part of what can be calculated with: the form is narrower, and the
    /// exponent has at most two digits.
    #[expect(clippy::expect_used, reason = "every quantity is an amount, as a property test states")]
    fn from(quantity: &Quantity) -> Self {
        quantity.0.parse().expect("a quantity is an amount")
    }
}

impl From<Quantity> for String {
    fn from(quantity: Quantity) -> Self {
        quantity.0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// `digits [. digits] [unit | exponent]`, with at least one digit.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let is_number = (1..=MAX_DIGITS).contains(&number.bytes().filter(u8::is_ascii_digit).count())
        && number.bytes().filter(|&byte| byte == b'.').count() <= 1;
    is_number && (UNITS.contains(&suffix) || is_exponent(suffix))
}

/// Those of the largest 64-bit number; what is longer the API server rounds or refuses.
const MAX_DIGITS: usize = 19;
const UNITS: [&str; 16] =
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn is_exponent(suffix: &str) -> bool {
    suffix.strip_prefix(['e', 'E']).is_some_and(|digits| {
        let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
        (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests;
