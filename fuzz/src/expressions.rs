//! Expressions and quantities.

use std::sync::LazyLock;

use claimfs::{
    cel::{Attribute, DeviceInput, Environment, Features, Trace, Version, compile},
    device::Amount,
};

static DEVICE: LazyLock<DeviceInput> = LazyLock::new(|| {
    let texts = [String::from("x"), String::from("é")];
    let attributes = [
        ("s", Attribute::string("text")),
        ("i", Attribute::int(-7)),
        ("b", Attribute::bool(true)),
        ("v", Attribute::version("1.2.3-rc.1+b")),
        ("is", Attribute::ints(&[1, i64::MAX, i64::MIN])),
        ("ss", Attribute::strings(&texts)),
        ("other.example.com/s", Attribute::string("")),
    ];
    let memory = "80Gi".parse().expect("a quantity");
    DeviceInput::new("d.example.com", true, attributes, [("memory", memory)])
});

/// Compiled as both releases do, evaluated, and asked for its reasons.
pub fn cel(text: &str) {
    for version in [Version::V1_36, Version::V1_37] {
        let features = Features {
            consumable_capacity: true,
            list_types: true,
            version,
            environment: Environment::Stored,
        };
        match compile(text, features) {
            Ok(program) => {
                assert_eq!(program.matches(&DEVICE), program.matches(&DEVICE), "it has one answer");
                if let Some(trace) = Trace::new(text, features) {
                    let reason = trace.why_not(&DEVICE);
                    let parts = reason.seen.iter().map(|seen| &seen.span).chain([&reason.span]);
                    assert!(
                        parts.into_iter().all(|part| text.get(part.clone()).is_some()),
                        "it is a part of the text"
                    );
                }
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
