//! Points in time and the spans between them.

use std::{cmp::Ordering, fmt};

use super::Function;
use crate::cel::value::{Failure, Outcome, Value};

macro_rules! part {
    ($name:literal, $overload:literal, $pick:expr) => {
        Function {
            name: $name,
            overloads: &[
                (concat!("timestamp_to_", $overload), "timestamp.() -> int"),
                (concat!("timestamp_to_", $overload, "_with_tz"), "timestamp.(string) -> int"),
            ],
            run: |args| part(args, $pick),
        }
    };
}

macro_rules! part_or_span {
    ($name:literal, $overload:literal, $pick:expr, $unit:expr) => {
        Function {
            name: $name,
            overloads: &[
                (concat!("timestamp_to_", $overload), "timestamp.() -> int"),
                (concat!("timestamp_to_", $overload, "_with_tz"), "timestamp.(string) -> int"),
                (concat!("duration_to_", $overload), "duration.() -> int"),
            ],
            run: |args| match args {
                [Value::Duration(nanoseconds)] => Ok(Value::Int(nanoseconds / $unit)),
                _ => part(args, $pick),
            },
        }
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    part!("getFullYear", "year", |time| time.date().year),
    part!("getMonth", "month", |time| time.date().month - 1),
    part!("getDayOfYear", "day_of_year", Timestamp::day_of_year),
    part!("getDayOfMonth", "day_of_month", |time| time.date().day - 1),
    part!("getDate", "day_of_month_1_based", |time| time.date().day),
    part!("getDayOfWeek", "day_of_week", |time| (time.days() + 4).rem_euclid(7)),
    part_or_span!("getHours", "hours", |time| time.second_of_day() / 3600, 3600 * NANOS),
    part_or_span!("getMinutes", "minutes", |time| time.second_of_day() / 60 % 60, 60 * NANOS),
    part_or_span!("getSeconds", "seconds", |time| time.second_of_day() % 60, NANOS),
    part_or_span!("getMilliseconds", "milliseconds", |time| i64::from(time.nanos) / 1_000_000, 1_000_000),
];

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// A point in time between the years 1 and 9999.
#[derive(Debug, Clone, Copy)]
pub(in crate::cel) struct Timestamp {
    seconds: i64,
    nanos: u32,
    /// How far the clock was ahead of UTC where it was written, in seconds: it is shown as that clock has it.
    ahead: i64,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Timestamp {
    const FIRST: i64 = -62_135_596_800;
    const LAST: i64 = 253_402_300_799;

    pub(in crate::cel) fn from_seconds(seconds: i64) -> Result<Self, Failure> {
        Self::new(i128::from(seconds), 0).ok_or_else(|| Failure::because("timestamp overflow"))
    }

    fn new(seconds: i128, nanos: u32) -> Option<Self> {
        let seconds = i64::try_from(seconds).ok()?;
        (Self::FIRST..=Self::LAST).contains(&seconds).then_some(Self { seconds, nanos, ahead: 0 })
    }

    pub(super) fn seconds(self) -> i64 {
        self.seconds
    }

    fn total(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos)
    }

    pub(super) fn moved(self, by: i128) -> Result<Self, Failure> {
        let total = self.total() + by;
        let nanos = u32::try_from(total.rem_euclid(i128::from(NANOS))).unwrap_or_default();
        let moved = Self::new(total.div_euclid(i128::from(NANOS)), nanos);
        let moved = moved.ok_or_else(|| Failure::because("timestamp overflow"))?;
        Ok(Self { ahead: self.ahead, ..moved })
    }

    pub(super) fn since(self, other: Self) -> Result<i64, Failure> {
        i64::try_from(self.total() - other.total()).map_err(|_| Failure::because("integer overflow"))
    }

    fn days(self) -> i64 {
        self.seconds.div_euclid(DAY)
    }

    fn second_of_day(self) -> i64 {
        self.seconds.rem_euclid(DAY)
    }

    /// Counted in eras of 400 years that begin with March: a leap day is then the last of its year.
    fn date(self) -> Date {
        let days = self.days() + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Date { year: era * 400 + year_of_era + i64::from(month <= 2), month, day }
    }

    fn day_of_year(self) -> i64 {
        self.days() - days_before(self.date().year, 1, 1)
    }

    /// From RFC 3339, and with an hour of one digit or a comma before the fraction, which the reference takes, too.
    pub(in crate::cel) fn parse(text: &str) -> Option<Self> {
        let padded = match text.split_at_checked(11) {
            Some((date, time)) if time.get(1..2) == Some(":") => Some(format!("{date}0{time}")),
            _ => None,
        };
        let text = padded.as_deref().unwrap_or(text);
        let number = |range: std::ops::Range<usize>| -> Option<i64> {
            let digits = text.get(range)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let is_at = |place: usize, mark: &str| text.get(place..=place) == Some(mark);
        let marks = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")];
        if !marks.iter().all(|(place, mark)| is_at(*place, mark)) {
            return None;
        }
        let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
        let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
        let is_date = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        if !is_date || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let rest = text.get(19..)?;
        let (nanos, rest) = match rest.strip_prefix(['.', ',']) {
            Some(fraction) => {
                let length = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
                let digits = format!("{:0<9}", &fraction[..length.min(9)]);
                ((length > 0).then(|| digits.parse::<u32>().ok()).flatten()?, &fraction[length..])
            }
            None => (0, rest),
        };
        let offset = if rest == "Z" { 0 } else { offset(rest)? };
        let seconds = days_before(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
        Self::new(i128::from(seconds), nanos).map(|time| Self { ahead: offset, ..time })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = Self { seconds: self.seconds + self.ahead, ..*self };
        let Date { year, month, day } = there.date();
        let second = there.second_of_day();
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.nanos != 0 {
            let fraction = format!("{:09}", self.nanos);
            write!(formatter, ".{}", fraction.trim_end_matches('0'))?;
        }
        let (hours, minutes) = (self.ahead.abs() / 3600, self.ahead.abs() / 60 % 60);
        match self.ahead {
            0 => formatter.write_str("Z"),
            1.. => write!(formatter, "+{hours:02}:{minutes:02}"),
            _ => write!(formatter, "-{hours:02}:{minutes:02}"),
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// From 1970 to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// `+01:30` in seconds.
fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str| (text.len() == 2).then(|| text.parse::<u8>().ok()).flatten();
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 24 && minutes <= 60).then(|| sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
}

/// A part of a point in time where somebody lives. Zones have no names here: their rules change, and a
/// selector must mean the same everywhere.
fn part(args: &[Value], pick: fn(Timestamp) -> i64) -> Outcome {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Int(pick(*time))),
        [Value::Timestamp(time), Value::String(zone)] => {
            let signed = if zone.starts_with(['+', '-']) { (**zone).to_owned() } else { format!("+{zone}") };
            let seconds = if matches!(&**zone, "UTC" | "") { Some(0) } else { offset(&signed) };
            let seconds = seconds.ok_or_else(|| Failure::because(format!("unknown time zone {zone}")))?;
            let local = Timestamp { seconds: time.seconds + seconds, ..*time };
            Ok(Value::Int(pick(local)))
        }
        _ => Err(Failure::NoOverload),
    }
}

/// A span such as `1h30m` or `-1.5s` in nanoseconds.
pub(in crate::cel) fn parse_duration(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.split_at_checked(1)? {
        ("-", rest) => (true, rest),
        ("+", rest) => (false, rest),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_i128;
    loop {
        let length = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(length);
        let units = [("ns", 1), ("us", 1000), ("µs", 1000), ("μs", 1000), ("ms", 1_000_000), ("s", NANOS)];
        let units = units.into_iter().chain([("m", 60 * NANOS), ("h", 3600 * NANOS)]);
        let (unit, scale) = units.into_iter().find(|(unit, _)| behind.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let fraction = format!("{:0<18}", fraction.get(..18).unwrap_or(fraction));
        let fraction: i128 = fraction.parse().ok()?;
        let part = whole.checked_mul(i128::from(scale))?;
        total = total.checked_add(part + fraction * i128::from(scale) / 1_000_000_000_000_000_000)?;
        rest = &behind[unit.len()..];
        if rest.is_empty() {
            break;
        }
    }
    i64::try_from(if is_negative { -total } else { total }).ok()
}

/// In seconds, as exactly as the reference's number has it.
pub(super) fn shown_duration(nanoseconds: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the reference loses as much")]
    let seconds = (nanoseconds / NANOS) as f64 + (nanoseconds % NANOS) as f64 / NANOS as f64;
    format!("{seconds}s")
}
