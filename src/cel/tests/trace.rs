//! Reasons for what an expression says.

use crate::cel::{Attribute, DeviceInput, Environment, Features, Seen, Side, Trace, Version};

const FEATURES: Features = Features {
    consumable_capacity: true,
    list_types: true,
    version: Version::V1_37,
    environment: Environment::Stored,
};

/// The part that decided, and what it saw, each with its text.
fn why_not(expression: &str) -> (String, Vec<String>) {
    let attributes = [
        ("model", Attribute::string("a")),
        ("cores", Attribute::int(4)),
        ("other.dev/fast", Attribute::bool(false)),
    ];
    let device = DeviceInput::new("d.dev", false, attributes, [("memory", "8Gi".parse().unwrap())]);
    let reason = Trace::new(expression, FEATURES).unwrap().why_not(&device);
    let seen = |seen: &Seen| format!("{} = {}", &expression[seen.span.clone()], seen.value);
    (expression[reason.span.clone()].to_owned(), reason.seen.iter().map(seen).collect())
}

#[test]
fn the_part_that_decides_is_found_with_what_it_saw() {
    let driver = r#"device.driver == "d.dev""#;
    for (expression, part, seen) in [
        (
            r#"device.attributes["d.dev"].model == "b""#,
            None,
            vec![r#"device.attributes["d.dev"].model = "a""#],
        ),
        (
            &format!(r#"{driver} && (device.attributes["d.dev"].cores > 8)"#),
            Some(r#"device.attributes["d.dev"].cores > 8"#),
            vec![r#"device.attributes["d.dev"].cores = 4"#],
        ),
        (
            r#"device.capacity["d.dev"].memory.compareTo(quantity("10Gi")) >= 0"#,
            None,
            vec![r#"device.capacity["d.dev"].memory = 8Gi"#],
        ),
        (
            r#"device.attributes["d.dev"].memry > 1 && true"#,
            Some(r#"device.attributes["d.dev"].memry > 1"#),
            vec![r#"device.attributes["d.dev"].memry = no such key: memry"#],
        ),
        (
            r#"device.attributes["d.dev"].?gone.orValue(1) == 2 || device.driver == "x""#,
            None,
            vec![r#"device.attributes["d.dev"].?gone = not there"#, r#"device.driver = "d.dev""#],
        ),
        (
            r#"device.attributes["other.dev"].fast ? true : device.driver == "x""#,
            Some(r#"device.driver == "x""#),
            vec![r#"device.attributes["other.dev"].fast = false"#, r#"device.driver = "d.dev""#],
        ),
        (
            r#"has(device.attributes["d.dev"].gone)"#,
            None,
            vec![r#"has(device.attributes["d.dev"].gone) = false"#],
        ),
        (
            r#"["x", "y"].exists(name, name in device.attributes["d.dev"])"#,
            None,
            vec![r#"device.attributes["d.dev"] = {cores, model}"#],
        ),
    ] {
        let found = why_not(expression);
        assert_eq!(
            found,
            (part.unwrap_or(expression).to_owned(), seen.into_iter().map(str::to_owned).collect())
        );
    }
}

#[test]
fn what_an_expression_looks_at_is_known_by_name() {
    let expression = r#"device.attributes["d.dev"].model == "b" && device.capacity["d.dev"].memory.isGreaterThan(quantity("1"))
        && device.attributes["d.dev"].model.startsWith("x") && has(device.attributes["d.dev"].gone)"#;
    let trace = Trace::new(expression, FEATURES).unwrap();
    let names: Vec<_> = trace.references().iter().map(|found| (found.side, found.name.as_str())).collect();
    assert_eq!(names, [(Side::Attributes, "model"), (Side::Capacity, "memory")]);
}
