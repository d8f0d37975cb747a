use std::path::Path;

use super::*;

fn parse_file(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("config.yaml"), text).map_err(|error| error.to_string())
}

/// The message without the excerpt, which has a test of its own.
fn refused(text: &str) -> String {
    let message = parse_file(text).expect_err("must be refused");
    message.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_whole_file_is_read() {
    let config = parse_file(
        "
driver: example.com
sources:
- name: gpu
  simulated: {count: 8}
  attributes: {model: {string: LATEST-GPU-MODEL}, driverVersion: {version: 1.0.0}, ecc: {bool: true}, cores: {int: 5}}
  capacity: {memory: 80Gi}
- name: kvm
  dev: {paths: [/dev/kvm]}
  shared: {max: 110}
",
    )
    .unwrap();
    assert_eq!(config.driver.as_str(), "example.com");
    assert_eq!(config.sources[0].discovery, Discovery::Simulated { count: 8 });
    let attributes: Vec<String> = config.sources[0]
        .properties
        .attributes()
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        attributes,
        ["cores=5", "driverVersion=1.0.0", "ecc=true", "model=LATEST-GPU-MODEL", "source=gpu"]
    );
    assert_eq!(config.sources[1].sharing, Sharing::Shared { max: NonZeroU32::new(110).unwrap() });
    assert_eq!(config.sources[1].properties.capacity()[&Sharing::capacity_name()], Quantity::whole(110));
}

#[test]
fn the_driver_has_a_default() {
    assert_eq!(parse_file("sources: []").unwrap().driver.as_str(), "claimfs.dev");
}

#[test]
fn every_flaw_is_answered_with_place_and_what_is_allowed() {
    let cases = [
        ("", "config.yaml:1:1: the file ends here; it must have `sources`"),
        ("- a", "config.yaml:1:1: must be a mapping of names to values"),
        ("sources: [", "config.yaml:1:10: sources: unclosed bracket '['"),
        (
            "driver: Claim_FS\nsources: []",
            "config.yaml:1:9: driver: driver name \"Claim_FS\": must be a DNS name",
        ),
        ("sourcs: []", "config.yaml:1:1: unknown field \"sourcs\"; allowed: driver, sources"),
        ("driver: a.b", "config.yaml:1:1: `sources` is missing"),
        ("sources: []\n---\nsources: []", "config.yaml:3:1: only one document (`---`) is allowed"),
        ("sources:\n  name: gpu", "config.yaml:2:3: sources: must be a list"),
        ("sources:\n- simulated: {count: 1}", "config.yaml:2:3: sources[0]: `name` is missing"),
        (
            "sources:\n- name: gpu",
            "config.yaml:2:3: sources[0]: does not say what its devices are; one of: simulated, dev",
        ),
        (
            "sources:\n- name: gpu\n  simulatd: {count: 8}",
            "config.yaml:3:3: sources[0]: unknown field \"simulatd\"; allowed: name, simulated, dev, attributes, capacity, shared, container",
        ),
        (
            "sources:\n- name: gpu\n  simulated: {count: eight}",
            "config.yaml:3:22: sources[0].simulated.count: must be a whole number from 0 to 4294967295",
        ),
        (
            "sources:\n- name: gpu\n  simulated: {count: 0}",
            "config.yaml:3:22: sources[0].simulated.count: 0 devices; allowed: 1 to 10000, in all sources together",
        ),
        (
            "sources:\n- name: gpu\n  simulated: {count: 1}\n  dev: {paths: [/dev/kvm]}",
            "config.yaml:4:8: sources[0]: a source is either simulated or dev; make it two sources",
        ),
        (
            "sources:\n- name: GPU\n  simulated: {count: 1}",
            "config.yaml:2:9: sources[0].name: source name \"GPU\": must be a DNS label",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n- name: a\n  simulated: {count: 1}",
            "config.yaml:4:9: sources[1].name: \"a\" is the name of sources[0] already; every source has its own",
        ),
        ("sources:\n- name: a\n  name: b", "config.yaml:3:3: sources[0]: \"name\" is there twice"),
        (
            "sources:\n- name: a\n  dev: {paths: []}",
            "config.yaml:3:8: sources[0].dev.paths: must be 1 to 64 paths",
        ),
        (
            "sources:\n- name: a\n  dev: {paths: [/etc/passwd]}",
            "config.yaml:3:17: sources[0].dev.paths[0]: \"/etc/passwd\" is not under /dev",
        ),
        (
            "sources:\n- name: a\n  dev: {paths: [/dev/../etc]}",
            "config.yaml:3:17: sources[0].dev.paths[0]: \"/dev/../etc\" has an empty part",
        ),
        (
            "sources:\n- name: a\n  dev: {paths: ['/dev/[']}",
            "config.yaml:3:17: sources[0].dev.paths[0]: \"/dev/[\" is not a pattern: invalid range pattern",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n  attributes: {model: {strin: x}}",
            "config.yaml:4:24: sources[0].attributes.model: unknown kind \"strin\"; allowed: bool, int, string, version",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n  attributes: {model: {string: x, int: 4}}",
            "config.yaml:4:35: sources[0].attributes.model",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n  attributes: {no-dash: {int: 1}}",
            "config.yaml:4:16: sources[0].attributes.no-dash: attribute name \"no-dash\": must be a C identifier",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n  attributes: {v: {version: '1.0'}}",
            "config.yaml:4:29: sources[0].attributes.v.version: version \"1.0\": ",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n  capacity: {memory: 80GB}",
            "config.yaml:4:22: sources[0].capacity.memory: quantity \"80GB\": must be a number",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n  shared: {max: 0}",
            "config.yaml:4:17: sources[0].shared.max: must be 1 or more",
        ),
        (
            "sources:\n- name: a\n  simulated: {count: 1}\n  capacity: {shares: 4}\n  shared: {max: 2}",
            "config.yaml:5:11: sources[0].shared: a shared device has the capacity shares already",
        ),
    ];
    for (text, expected) in cases {
        let message = refused(text);
        assert!(message.starts_with(expected), "\n{text}\n gave      {message}\n expected  {expected}");
    }
}

#[test]
fn limits_of_the_api_are_refused_with_the_field() {
    let long = "x".repeat(65);
    let text =
        format!("sources:\n- name: a\n  simulated: {{count: 1}}\n  attributes: {{m: {{string: {long}}}}}");
    let message = refused(&text);
    assert!(message.contains("sources[0].attributes.m.string: "), "{message}");
    assert!(message.ends_with("has 65 bytes, an attribute holds at most 64"), "{message}");

    let many: String = (0..33).map(|index| format!("    a{index:02}: {{int: 1}}\n")).collect();
    let text = format!("sources:\n- name: a\n  simulated: {{count: 1}}\n  attributes:\n{many}");
    assert_eq!(
        refused(&text),
        "config.yaml:36:10: sources[0].attributes: a31 would be number 33: a device has at most 32 attributes and capacities together"
    );
}

#[test]
fn the_excerpt_points_at_the_place() {
    let message = parse_file("sources:\n- name: gpu\n  simulated: {count: many}\n").unwrap_err();
    let excerpt: Vec<&str> = message.lines().skip(1).collect();
    assert_eq!(excerpt, ["3 |   simulated: {count: many}", "  |                      ^"]);
}

#[test]
fn a_flaw_far_to_the_right_is_shown_in_a_window() {
    let text = format!("{{a: {}, sources: []}}", "x".repeat(100_000));
    let message = parse_file(&format!("{{sources: [], x{}: 1}}", " ".repeat(70_000))).unwrap_err();
    assert!(message.len() < 1_000, "{} bytes", message.len());
    let message = parse_file(&format!("{{sources: [], {}y: 1}}", " ".repeat(70_000))).unwrap_err();
    let lines: Vec<&str> = message.lines().collect();
    assert!(lines[0].starts_with("config.yaml:1:70015: unknown field \"y\""), "{}", lines[0]);
    assert_eq!(lines[1].find('y'), lines[2].find('^'));
    assert!(parse_file(&text).unwrap_err().len() < 1_000);
}

#[test]
fn an_attribute_has_one_name() {
    let config = |attributes: &str| {
        parse_file(&format!("sources: [{{name: a, simulated: {{count: 1}}, attributes: {{{attributes}}}}}]"))
    };
    let names = config("claimfs.dev/model: {int: 1}, example.com/model: {int: 2}").unwrap();
    let names: Vec<String> =
        names.sources[0].properties.attributes().keys().map(ToString::to_string).collect();
    assert_eq!(names, ["example.com/model", "model", "source"]);
    let twice = config("claimfs.dev/model: {int: 1}, model: {int: 2}").unwrap_err();
    assert!(twice.contains("model and claimfs.dev/model are the same attribute"), "{twice}");
}

#[test]
fn a_field_that_is_left_empty_is_not_left_out() {
    for field in ["shared", "dev"] {
        let message =
            parse_file(&format!("sources:\n- name: a\n  simulated: {{count: 1}}\n  {field}:\n")).unwrap_err();
        assert!(
            message.contains(&format!("sources[0].{field}: `")) && message.contains("is missing"),
            "{message}"
        );
    }
}

#[test]
fn the_number_of_everything_is_bounded() {
    let sources: String =
        (0..257).map(|index| format!("- {{name: s{index}, simulated: {{count: 1}}}}\n")).collect();
    assert!(parse_file(&format!("sources:\n{sources}")).unwrap_err().contains("more than 256 sources"));
    let two = "sources: [{name: a, simulated: {count: 6000}}, {name: b, simulated: {count: 6000}}]";
    assert!(parse_file(two).unwrap_err().contains("sources[1].simulated.count: 6000 devices"));
    let deep = "sources: [{name: a, dev: {paths: [/dev/*/*/*/*/*/*/*/*/*]}}]";
    assert!(parse_file(deep).unwrap_err().contains("more than 8 parts"));
}

#[test]
fn hostile_yaml_ends_in_an_error() {
    let deep = "[".repeat(10_000);
    let bomb = format!(
        "a: &a [x,x,x,x,x,x,x,x,x]\n{}",
        ('b'..='j')
            .map(|c| format!("{c}: &{c} [{}]\n", vec![format!("*{}", char::from(c as u8 - 1)); 9].join(",")))
            .collect::<String>()
    );
    let long_line = format!("sources: {}", "x".repeat(100_000));
    let long_name = format!("sources: [{{name: {}}}]", "x".repeat(200_000));
    let long_key = format!("sources: []\n{}: 1", "x".repeat(900));
    for text in [
        deep.as_str(),
        &bomb,
        &long_line,
        &long_name,
        &long_key,
        "\u{0}",
        "sources: *none",
        "? [a]\n: b",
        "%YAML 9.9\n---\n",
    ] {
        let message = parse_file(text).expect_err("must be refused");
        assert!(message.len() < 1_000, "{} bytes", message.len());
    }
}
