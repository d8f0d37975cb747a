use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::recorded::{Recorded, recorded};

#[test]
fn quantities_are_recognized() {
    for good in ["0", "80Gi", "1.5", ".5", "5.", "+5", "100m", "1e3", "12E", "12E3", "1e-3", "1E+2"] {
        assert!(is_quantity(good), "{good}");
    }
    for bad in [
        "",
        ".",
        "Gi",
        "-1",
        "1.2.3",
        "80 Gi",
        "80GB",
        "1e",
        "e3",
        "1e3Ki",
        "٣",
        "0x10",
        "1_000",
        "1e100",
        "12345678901234567890",
    ] {
        assert!(!is_quantity(bad), "{bad}");
    }
}

/// What the reference answered.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    a: String,
    #[serde(default)]
    parse_error: bool,
    canonical: Option<String>,
    format: Option<String>,
    as_int64: Option<i64>,
    value_rounded_up: i64,
    b: Option<String>,
    cmp: Option<i8>,
    add: Option<String>,
    sub: Option<String>,
}

fn amount(text: &str) -> Amount {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn amounts_are_those_of_the_reference() {
    for Recorded { name, text } in recorded("quantity-") {
        for line in text.lines() {
            compare(&serde_json::from_str(line).unwrap());
        }
        eprintln!("{} rows equal in {name}", text.lines().count());
    }
}

fn compare(row: &Row) {
    let a = &row.a;
    if row.parse_error {
        assert!(a.parse::<Amount>().is_err(), "{a}");
        return;
    }
    let left = amount(a);
    assert_eq!(Some(left.to_string()), row.canonical, "{a}");
    assert_eq!(Some(left.format().as_str()), row.format.as_deref(), "{a}");
    assert_eq!(left.as_i64(), row.as_int64, "{a}");
    assert_eq!(left.rounded_up(), row.value_rounded_up, "{a}");
    if let Some(b) = &row.b {
        let right = amount(b);
        assert_eq!(Some(left.cmp(&right) as i8), row.cmp, "{a} {b}");
        assert_eq!(Some(left.plus(&right).to_string()), row.add, "{a} + {b}");
        assert_eq!(Some(left.minus(&right).to_string()), row.sub, "{a} - {b}");
    }
}

#[test]
fn floats_are_near() {
    for (text, float) in [("1500m", 1.5), ("1Ki", 1024.0), ("-2e3", -2000.0), ("1e400", f64::INFINITY)] {
        assert_eq!(amount(text).as_f64().total_cmp(&float), Ordering::Equal, "{text}");
    }
    let long = amount("12345678901234567890").as_f64();
    assert!((long - 12_345_678_901_234_567_890.0).abs() < 10_000.0, "{long}");
}

#[test]
fn an_exponent_that_nothing_could_hold_is_refused() {
    assert_eq!("1e2000000000".parse::<Amount>(), Err(AmountError::Exponent));
    assert_eq!("1e1001".parse::<Amount>(), Err(AmountError::Exponent));
    assert_eq!(amount("1e-99999").to_string(), "1e-9");
    // The time for it grew with the square of the exponent.
    assert_eq!(amount("-0e-90471").plus(&amount("1")).to_string(), "1");
}

prop_compose! {
    fn any_text()(
        sign in "[+-]?",
        whole in "[0-9]{1,24}",
        fraction in prop_oneof![Just(String::new()), "[.][0-9]{0,12}"],
        unit in prop::sample::select(vec![
            "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e1",
        ]),
    ) -> String {
        format!("{sign}{whole}{fraction}{unit}")
    }
}

proptest! {
    #[test]
    fn order_is_total(a in any_text(), b in any_text(), c in any_text()) {
        let (a, b, c) = (amount(&a), amount(&b), amount(&c));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
        prop_assert_eq!(a.minus(&b).sign(), a.cmp(&b));
    }

    #[test]
    fn what_is_added_can_be_taken_away(a in any_text(), b in any_text()) {
        let (a, b) = (amount(&a), amount(&b));
        prop_assert_eq!(a.plus(&b).minus(&b), a.clone());
        prop_assert_eq!(a.plus(&b), b.plus(&a));
    }

    #[test]
    fn what_is_printed_reads_back(text in any_text()) {
        let amount = amount(&text);
        // Beyond the last unit the reference prints none.
        prop_assume!(amount.as_f64().abs() < 1e21);
        let again: Amount = amount.to_string().parse().unwrap();
        prop_assert_eq!(&again, &amount);
        prop_assert_eq!(again.to_string(), amount.to_string());
    }

    #[test]
    fn every_quantity_is_an_amount(text in "[+]?[0-9]{0,3}[.]?[0-9]{0,19}([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?") {
        if let Ok(quantity) = Quantity::try_from(text) {
            let _ = Amount::from(&quantity);
        }
    }
}
