//! Expressions and quantities.

use std::{collections::BTreeMap, sync::LazyLock};

use claimfs::{
    cel::{Attribute, DeviceInput, Environment, Features, Version, compile},
    device::Amount,
};

static ATTRIBUTES: LazyLock<BTreeMap<String, Attribute>> = LazyLock::new(|| {
    let texts = [String::from("x"), String::from("é")];
    BTreeMap::from([
        (String::from("s"), Attribute::string("text")),
        (String::from("i"), Attribute::int(-7)),
        (String::from("b"), Attribute::bool(true)),
        (String::from("v"), Attribute::version("1.2.3-rc.1+b")),
        (String::from("is"), Attribute::ints(&[1, i64::MAX, i64::MIN])),
        (String::from("ss"), Attribute::strings(&texts)),
        (String::from("other.example.com/s"), Attribute::string("")),
    ])
});

static CAPACITY: LazyLock<BTreeMap<String, Amount>> = LazyLock::new(|| {
    let memory = "80Gi".parse().expect("a quantity");
    BTreeMap::from([(String::from("memory"), memory)])
});

/// Compiled as both releases do, and evaluated.
pub fn cel(text: &str) {
    let device = DeviceInput {
        driver: "d.example.com",
        attributes: &ATTRIBUTES,
        capacity: &CAPACITY,
        allow_multiple_allocations: Some(true),
    };
    for version in [Version::V1_36, Version::V1_37] {
        let features = Features {
            consumable_capacity: true,
            list_types: true,
            version,
            environment: Environment::Stored,
        };
        match compile(text, features) {
            Ok(program) => {
                assert_eq!(program.matches(&device), program.matches(&device), "it has one answer");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Two of them, calculated with and printed.
pub fn quantity(text: &str) {
    let (one, other) = text.split_once(' ').unwrap_or((text, "1"));
    let (Ok(one), Ok(other)) = (one.parse::<Amount>(), other.parse::<Amount>()) else { return };
    let sum = one.plus(&other);
    assert_eq!(sum.minus(&other), one);
    assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
    let _ = (sum.to_string(), one.minus(&other).to_string(), one.rounded_up(), one.as_i64(), one.as_f64());
}
