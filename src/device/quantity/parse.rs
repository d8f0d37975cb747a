//! Amounts from text, with everything that the reference takes.

use std::str::FromStr;

use num_bigint::{BigInt, Sign};

use super::amount::{Amount, Format, Number, power_of_ten};

/// Why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Something stands where nothing may.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Form,
    /// No digits where they are needed.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// No unit that exists.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// Calculating with it would take all memory or all time; the reference tries.
    #[error("exponents beyond {limit} are not supported", limit = MAX_EXPONENT)]
    Exponent,
}

const MAX_EXPONENT: i32 = 1000;
/// Nothing is finer than a billionth.
const FINEST: i32 = -9;
/// The most digits of a number that is kept small.
const SMALL_DIGITS: usize = 18;

/// The parts of a text.
struct Parts<'a> {
    negative: bool,
    /// Sign, digits and point.
    number: &'a str,
    /// Without leading zeros, but never empty.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// The leading part of which every byte is such a one, and the rest.
fn split_while(text: &str, is: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !is(byte)).unwrap_or(text.len()))
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, AmountError> {
        let is_digit = |byte: u8| byte.is_ascii_digit();
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_while(unsigned.trim_start_matches('0'), is_digit);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_while(rest, is_digit),
            None => ("", rest),
        };
        let (_, after_unit) = split_while(suffix, |byte| b"eEinumkKMGTP".contains(&byte));
        let exponent = after_unit.strip_prefix(['-', '+']).unwrap_or(after_unit);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(AmountError::Form);
        }
        Ok(Self {
            negative: text.starts_with('-'),
            number: &text[..text.len() - suffix.len()],
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            suffix,
        })
    }

    /// The digits as one number, and whether they are written as an amount is printed.
    fn digits(&self) -> Option<(i64, bool)> {
        let digits = [self.whole, self.fraction].concat();
        Some((digits.parse().ok()?, !digits.ends_with("000") && !digits.starts_with('0')))
    }

    /// The number, of any length, and how many of its digits come after the point.
    fn long(&self) -> Result<(BigInt, usize), AmountError> {
        let (number, fraction) = self.number.split_once('.').unwrap_or((self.number, ""));
        let digits = [number, fraction].concat();
        let value = digits.parse().map_err(|_| AmountError::Number)?;
        Ok((value, fraction.len()))
    }
}

/// What a suffix multiplies with.
#[derive(Clone, Copy)]
enum Unit {
    Binary(u8),
    Decimal(i32, Format),
}

impl Unit {
    /// `digits_before` is the most digits that the number has.
    fn of(suffix: &str, digits_before: i64) -> Result<Self, AmountError> {
        let si = |exponent| Self::Decimal(exponent, Format::DecimalSi);
        Ok(match suffix {
            "n" => si(-9),
            "u" => si(-6),
            "m" => si(-3),
            "" => si(0),
            "k" => si(3),
            "M" => si(6),
            "G" => si(9),
            "T" => si(12),
            "P" => si(15),
            "E" => si(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => {
                let digits = suffix.strip_prefix(['e', 'E']).ok_or(AmountError::Suffix)?;
                let exponent: i64 = digits.parse().map_err(|_| AmountError::Suffix)?;
                // However small it is, it is rounded up to the finest: this is small enough for every number.
                let exponent = exponent.max(-digits_before - i64::from(MAX_EXPONENT));
                let exponent = i32::try_from(exponent).map_err(|_| AmountError::Exponent)?;
                if exponent > MAX_EXPONENT {
                    return Err(AmountError::Exponent);
                }
                Self::Decimal(exponent, Format::DecimalExponent)
            }
        })
    }
}

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        if text.is_empty() {
            return Err(AmountError::Form);
        }
        let parts = Parts::of(text)?;
        let digits = i64::try_from(parts.number.len()).unwrap_or(i64::MAX / 2);
        let unit = Unit::of(parts.suffix, digits)?;
        match small(text, &parts, unit) {
            Some(amount) => Ok(amount),
            None => big(&parts, unit),
        }
    }
}

/// What fits into a machine's word with nothing rounded.
fn small(text: &str, parts: &Parts<'_>, unit: Unit) -> Option<Amount> {
    let length = parts.whole.len() + parts.fraction.len();
    let (exponent, factor, format) = match unit {
        Unit::Decimal(exponent, format) => {
            let exponent = exponent.checked_sub(i32::try_from(parts.fraction.len()).ok()?)?;
            (length <= SMALL_DIGITS).then_some((exponent, 1, format))?
        }
        Unit::Binary(bits) => {
            // Three digits for every ten bits, and room for one more.
            let digits = length + usize::from(bits) * 3 / 10;
            (parts.fraction.is_empty() && digits < 15).then_some((0, 1 << bits, Format::BinarySi))?
        }
    };
    if exponent < FINEST {
        return None;
    }
    let (digits, is_printed_so) = parts.digits()?;
    let value = digits.checked_mul(factor)?;
    let value = if parts.negative { -value } else { value };
    let keeps_text = match format {
        Format::BinarySi => digits % 8 != 0,
        Format::DecimalSi | Format::DecimalExponent => exponent % 3 == 0 && is_printed_so,
    };
    let written = keeps_text.then(|| text.into());
    Some(Amount { number: Number::Small { value, exponent }, format, written })
}

/// Everything else: rounded up to what is finest, and binary numbers cut to the largest of 64 bits.
fn big(parts: &Parts<'_>, unit: Unit) -> Result<Amount, AmountError> {
    let (value, places) = parts.long()?;
    let negative = value.sign() == Sign::Minus;
    let places = i32::try_from(places).map_err(|_| AmountError::Exponent)?;
    let (magnitude, exponent) = match unit {
        Unit::Binary(bits) => (BigInt::from(value.magnitude().clone()) << bits, -places),
        Unit::Decimal(exponent, _) => (value.magnitude().clone().into(), exponent.saturating_sub(places)),
    };
    if magnitude.sign() == Sign::NoSign {
        let format = match unit {
            Unit::Binary(_) => Format::BinarySi,
            Unit::Decimal(_, format) => format,
        };
        return Ok(Amount::of(Number::Big { value: magnitude, exponent }, format));
    }
    let billionths = match u32::try_from(exponent - FINEST) {
        Ok(steps) => magnitude * power_of_ten(steps),
        Err(_) => divided_up(&magnitude, exponent.abs_diff(FINEST)),
    };
    let one = power_of_ten(FINEST.unsigned_abs());
    let (billionths, format) = match unit {
        Unit::Decimal(_, format) => (billionths, format),
        // Printed in binary, less than one would be rounded.
        Unit::Binary(_) if billionths < one => (billionths, Format::DecimalSi),
        Unit::Binary(_) => {
            let largest = BigInt::from(i64::MAX);
            if billionths > &largest * &one {
                let value = if negative { -largest } else { largest };
                return Ok(Amount::of(Number::Big { value, exponent: 0 }, Format::BinarySi));
            }
            (billionths, Format::BinarySi)
        }
    };
    let value = if negative { -billionths } else { billionths };
    Ok(Amount::of(Number::Big { value, exponent: FINEST }, format))
}

/// `magnitude / 10^steps`, rounded up, without a power that is longer than the number.
fn divided_up(magnitude: &BigInt, steps: u32) -> BigInt {
    if u64::from(steps) > magnitude.bits() {
        return BigInt::from(1);
    }
    let divisor = power_of_ten(steps);
    (magnitude + &divisor - 1) / divisor
}
