//! Exact amounts, calculated with as the Kubernetes API server and scheduler do.

use std::{cmp::Ordering, ops::Neg};

use num_bigint::{BigInt, Sign};

/// How an amount is printed; the one that it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// In powers of 1024: `12Mi`.
    BinarySi,
    /// In powers of 1000: `12M`.
    DecimalSi,
    /// In powers of ten: `12e6`.
    DecimalExponent,
}

impl Format {
    /// The name that the API gives to it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BinarySi => "BinarySI",
            Self::DecimalSi => "DecimalSI",
            Self::DecimalExponent => "DecimalExponent",
        }
    }
}

/// An exact decimal number with the format that it prints in.
///
/// Amounts are equal when their values are, whatever they were written as. Which numbers are kept small and
/// which are not is part of the behaviour: [`Amount::as_i64`] only knows small ones, as in the reference.
#[derive(Debug, Clone)]
pub struct Amount {
    pub(super) number: Number,
    pub(super) format: Format,
    /// As it was written, where the reference prints that again.
    pub(super) written: Option<Box<str>>,
}

/// `value * 10^exponent`.
#[derive(Debug, Clone)]
pub(super) enum Number {
    /// Nearly every amount that there is.
    Small { value: i64, exponent: i32 },
    /// What does not fit, and what needed rounding.
    Big { value: BigInt, exponent: i32 },
}

pub(super) fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

/// `value * 10^exponent`, where that fits.
pub(super) fn scaled_up(value: i64, exponent: u32) -> Option<i64> {
    if value == 0 { Some(0) } else { value.checked_mul(10_i64.checked_pow(exponent)?) }
}

impl Number {
    pub(super) fn sign(&self) -> Ordering {
        match self {
            Self::Small { value, .. } => value.cmp(&0),
            Self::Big { value, .. } => match value.sign() {
                Sign::Minus => Ordering::Less,
                Sign::NoSign => Ordering::Equal,
                Sign::Plus => Ordering::Greater,
            },
        }
    }

    fn exponent(&self) -> i32 {
        match self {
            Self::Small { exponent, .. } | Self::Big { exponent, .. } => *exponent,
        }
    }

    /// The value for an exponent that is not above its own.
    pub(super) fn at(&self, exponent: i32) -> BigInt {
        let value = match self {
            Self::Small { value, .. } => BigInt::from(*value),
            Self::Big { value, .. } => value.clone(),
        };
        let steps = self.exponent().abs_diff(exponent);
        if steps == 0 { value } else { value * power_of_ten(steps) }
    }

    /// Both at the lower exponent, where both are small and stay so.
    fn aligned(&self, other: &Self) -> Option<(i64, i64, i32)> {
        let (&Self::Small { value: left, exponent: from }, &Self::Small { value: right, exponent: to }) =
            (self, other)
        else {
            return None;
        };
        let steps = from.abs_diff(to);
        if from <= to {
            Some((left, scaled_up(right, steps)?, from))
        } else {
            Some((scaled_up(left, steps)?, right, to))
        }
    }

    fn plus(&self, other: &Self) -> Self {
        let small = match (self, other) {
            (Self::Small { .. }, Self::Small { value: 0, .. }) => return self.clone(),
            (Self::Small { value: 0, .. }, Self::Small { .. }) => return other.clone(),
            _ => self.aligned(other).and_then(|(left, right, exponent)| {
                Some(Self::Small { value: left.checked_add(right)?, exponent })
            }),
        };
        small.unwrap_or_else(|| {
            let exponent = self.exponent().min(other.exponent());
            Self::Big { value: self.at(exponent) + other.at(exponent), exponent }
        })
    }

    fn negative(&self) -> Self {
        match self {
            &Self::Small { value, exponent } => match value.checked_neg() {
                Some(value) => Self::Small { value, exponent },
                None => Self::Big { value: -BigInt::from(value), exponent },
            },
            Self::Big { value, exponent } => Self::Big { value: value.neg(), exponent: *exponent },
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        if let Some((left, right, _)) = self.aligned(other) {
            return left.cmp(&right);
        }
        self.sign().cmp(&other.sign()).then_with(|| {
            let exponent = self.exponent().min(other.exponent());
            self.at(exponent).cmp(&other.at(exponent))
        })
    }
}

impl Amount {
    /// A whole number in a format.
    #[must_use]
    pub fn whole(value: i64, format: Format) -> Self {
        Self::of(Number::Small { value, exponent: 0 }, format)
    }

    /// So many thousandths in a format.
    #[must_use]
    pub fn of_thousandths(value: i64, format: Format) -> Self {
        Self::of(Number::Small { value, exponent: -3 }, format)
    }

    pub(super) fn of(number: Number, format: Format) -> Self {
        Self { number, format, written: None }
    }

    /// The format that it prints in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// How it compares with zero.
    #[must_use]
    pub fn sign(&self) -> Ordering {
        self.number.sign()
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.sign() == Ordering::Equal
    }

    /// The sum, in the format of the left one unless that is zero.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self::of(self.number.plus(&other.number), self.format_with(other))
    }

    /// The difference, in the format of the left one unless that is zero.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self::of(self.number.plus(&other.number.negative()), self.format_with(other))
    }

    fn format_with(&self, other: &Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }

    /// The whole number that it is, where the reference knows it without long arithmetic.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self.number {
            Number::Small { value, exponent } => scaled_up(value, exponent.try_into().ok()?),
            Number::Big { .. } => None,
        }
    }

    /// The whole number, rounded up. What does not fit comes out as in the reference: most small numbers as
    /// zero, others cut to their lowest 64 bits; and negative long ones are rounded one too far.
    #[must_use]
    pub fn rounded_up(&self) -> i64 {
        self.rounded_up_to(0)
    }

    /// The number of thousandths, with the same rounding.
    #[must_use]
    pub fn thousandths(&self) -> i64 {
        self.rounded_up_to(-3)
    }

    fn rounded_up_to(&self, finest: i32) -> i64 {
        match &self.number {
            &Number::Small { value, exponent } => match u32::try_from(exponent - finest) {
                // These the reference multiplies in one go, and so wraps.
                Ok(steps @ (1 | 2 | 3 | 6 | 9)) => value.wrapping_mul(10_i64.pow(steps)),
                Ok(steps) => scaled_up(value, steps).unwrap_or(0),
                Err(_) => away_from_zero(value, exponent.abs_diff(finest)),
            },
            Number::Big { value, exponent } if *exponent == finest => low_bits(value),
            Number::Big { value, exponent } => match u32::try_from(exponent - finest) {
                // What the conversion of too large a float gives on the machines that schedulers run on.
                Ok(steps) => low_bits(value).wrapping_mul(10_i64.checked_pow(steps).unwrap_or(i64::MIN)),
                Err(_) => divided_up(value, exponent.abs_diff(finest)),
            },
        }
    }

    /// Whether nothing distinguishes the two: not the value, and not the way in which it is written or kept.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (&self.number, &other.number) {
            (
                Number::Small { value, exponent },
                Number::Small { value: other_value, exponent: other_exponent },
            ) => {
                value == other_value
                    && exponent == other_exponent
                    && self.format == other.format
                    && self.written == other.written
            }
            // Long numbers are known by where they are, and no two are in the same place.
            _ => false,
        }
    }

    /// The nearest float, by way of the mantissa and a power of ten; infinite where there is none.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        let (mantissa, exponent) = match &self.number {
            #[expect(clippy::cast_precision_loss, reason = "an approximation is what is asked for")]
            &Number::Small { value, exponent } => (value as f64, exponent),
            Number::Big { value, exponent } => (nearest_float(&value.to_string()), *exponent),
        };
        if exponent == 0 { mantissa } else { mantissa * float_power_of_ten(exponent) }
    }
}

/// `value / 10^steps`, rounded away from zero.
pub(super) fn away_from_zero(value: i64, steps: u32) -> i64 {
    let Some(divisor) = 10_i64.checked_pow(steps) else { return value.signum() };
    let exact = value % divisor == 0;
    value / divisor + if exact { 0 } else { value.signum() }
}

/// The lowest 63 bits with the sign, as a conversion that does not look whether the number fits.
fn low_bits(value: &BigInt) -> i64 {
    let lowest = value.magnitude().iter_u64_digits().next().unwrap_or(0).cast_signed();
    if value.sign() == Sign::Minus { lowest.wrapping_neg() } else { lowest }
}

fn divided_up(value: &BigInt, steps: u32) -> i64 {
    const LONGEST: u32 = 18;
    if *value < BigInt::from(i64::MAX) && steps <= LONGEST {
        let divisor = 10_i64.pow(steps);
        let (value, exact) = (low_bits(value), low_bits(value) % divisor == 0);
        return value / divisor + i64::from(!exact);
    }
    let divisor = power_of_ten(steps);
    let (mut quotient, remainder) = (value / &divisor, value % &divisor);
    if remainder.sign() == Sign::Minus {
        quotient -= 1;
    }
    low_bits(&quotient).wrapping_add(i64::from(remainder.sign() != Sign::NoSign))
}

#[expect(clippy::expect_used, reason = "digits with an exponent are a float")]
fn nearest_float(decimal: &str) -> f64 {
    decimal.parse().expect("a decimal number is a float")
}

/// From two tables of 32 steps, so that it is rounded where the reference rounds.
fn float_power_of_ten(exponent: i32) -> f64 {
    const STEP: i32 = 32;
    let part = |exponent: i32| nearest_float(&format!("1e{exponent}"));
    match exponent {
        0..=308 => part(exponent / STEP * STEP) * part(exponent % STEP),
        -323..0 => part(exponent / STEP * STEP) / part(-(exponent % STEP)),
        ..0 => 0.0,
        _ => f64::INFINITY,
    }
}

/// What is left when a factor is taken out as often as it is in, and how often that is.
pub(super) fn without_factor(mut value: BigInt, factor: u32) -> (BigInt, i32) {
    let factor = BigInt::from(factor);
    let mut times = 0;
    while value.sign() != Sign::NoSign && (&value % &factor).sign() == Sign::NoSign {
        value /= &factor;
        times += 1;
    }
    (value, times)
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.compare(&other.number)
    }
}
