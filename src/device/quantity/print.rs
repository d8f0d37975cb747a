//! Amounts as text, in the canonical form of their format.

use std::fmt;

use num_bigint::BigInt;

use super::amount::{Amount, Format, Number, away_from_zero, power_of_ten, scaled_up, without_factor};

impl fmt::Display for Amount {
    /// As it was written, where that is canonical for the reference; from `10^21` and `2^70` on a unit is
    /// missing, as it is there.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.written {
            Some(written) => formatter.pad(written),
            None => formatter.pad(&self.canonical()),
        }
    }
}

impl Amount {
    /// No fraction, and the largest unit that loses nothing.
    fn canonical(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        match self.format {
            Format::DecimalExponent => {
                let (digits, exponent) = self.in_thousands();
                if exponent == 0 { digits } else { format!("{digits}e{exponent}") }
            }
            Format::DecimalSi => self.in_decimal_units(),
            Format::BinarySi => match self.whole_binary() {
                Some(value) => {
                    let (digits, times) = without_factor(value, 1024);
                    format!("{digits}{}", BINARY_UNITS.get(index(times)).unwrap_or(&""))
                }
                None => self.in_decimal_units(),
            },
        }
    }

    fn in_decimal_units(&self) -> String {
        let (digits, exponent) = self.in_thousands();
        let unit = usize::try_from((exponent + 9) / 3).ok().and_then(|index| DECIMAL_UNITS.get(index));
        format!("{digits}{}", unit.unwrap_or(&""))
    }

    /// The value, if it is whole and not so small that a binary unit would only confuse.
    fn whole_binary(&self) -> Option<BigInt> {
        let bound = Self::whole(1024, Format::BinarySi);
        if *self < bound && *self > Self::whole(-1024, Format::BinarySi) {
            return None;
        }
        match &self.number {
            &Number::Small { value, exponent } => match u32::try_from(exponent) {
                Ok(steps) => Some(match scaled_up(value, steps) {
                    Some(value) => value.into(),
                    None => self.number.at(0),
                }),
                Err(_) => {
                    let steps = exponent.unsigned_abs();
                    let rounded = away_from_zero(value, steps);
                    (scaled_up(rounded, steps) == Some(value)).then(|| rounded.into())
                }
            },
            Number::Big { value, exponent } if *exponent < 0 => {
                let (rest, times) = without_factor(value.clone(), 10);
                let missing = exponent + times;
                u32::try_from(missing).ok().map(|steps| rest * power_of_ten(steps))
            }
            Number::Big { .. } => Some(self.number.at(0)),
        }
    }

    /// Digits and a power of ten that is a multiple of three.
    fn in_thousands(&self) -> (String, i32) {
        let (value, mut exponent) = match &self.number {
            &Number::Small { value, exponent } => {
                let (mut value, mut exponent) = (value, exponent);
                while value % 10 == 0 && value != 0 {
                    value /= 10;
                    exponent += 1;
                }
                let steps = exponent.rem_euclid(3);
                match value.checked_mul([1, 10, 100][index(steps)]) {
                    Some(value) => return (value.to_string(), exponent - steps),
                    None => (BigInt::from(value), exponent),
                }
            }
            Number::Big { value, exponent } => {
                let (value, times) = without_factor(value.clone(), 10);
                (value, exponent + times)
            }
        };
        let steps = exponent.rem_euclid(3);
        exponent -= steps;
        ((value * power_of_ten(steps.unsigned_abs())).to_string(), exponent)
    }
}

const BINARY_UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_UNITS: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// A count that is not negative, as an index.
fn index(count: i32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
