//! Whole expressions, and the rows that the reference was recorded with.

mod conformance;
mod random;
mod trace;

use super::*;
use crate::device::{Amount, Format};

const FEATURES: Features = Features {
    consumable_capacity: true,
    list_types: true,
    version: Version::V1_37,
    environment: Environment::Stored,
};

const FORMER: Features = Features { version: Version::V1_36, ..FEATURES };

/// What an expression says about a device with one attribute of each type.
fn evaluate_with(expression: &str, features: Features) -> Result<(bool, Cost), String> {
    let attributes = [
        ("text", Attribute::string("fish")),
        ("number", Attribute::int(5)),
        ("truth", Attribute::bool(true)),
        ("version", Attribute::version("1.2.3+build")),
        ("other.example.com/text", Attribute::string("bird")),
        ("list", Attribute::strings(&["a", "b"])),
    ];
    let capacity = [("memory", "1Gi".parse().unwrap())];
    let device = DeviceInput::new("dra.example.com", false, attributes, capacity);
    let program = compile(expression, features).map_err(|error| error.to_string())?;
    program.matches(&device).map_err(|error| error.to_string())
}

fn evaluate(expression: &str) -> Result<(bool, Cost), String> {
    evaluate_with(expression, FEATURES)
}

#[track_caller]
fn assert_true(expressions: &[&str]) {
    for expression in expressions {
        let answer = evaluate(expression);
        assert!(matches!(answer, Ok((true, _))), "{expression}: {answer:?}");
    }
}

#[track_caller]
fn assert_fails(expression: &str, with: &str) {
    let error = evaluate(expression).unwrap_err();
    assert!(error.contains(with), "{expression}: {error}");
}

#[test]
fn a_flaw_is_shown_where_it_is_with_what_may_have_been_meant() {
    let error = compile("true &&\n  device.drivr == 'x'", FEATURES).unwrap_err();
    assert_eq!(
        error.to_string(),
        "compilation failed: ERROR: <input>:2:9: undefined field 'drivr'\n \
         |   device.drivr == 'x'\n | ........^ did you mean 'driver'?"
    );
    let CompileError::Flawed(flaws) = error else { panic!("{error}") };
    assert_eq!(flaws.place(), Some((2, 9)));
    assert_fails("'a'.startWith('a')", "did you mean 'startsWith'?");
}

#[test]
fn an_unknown_domain_is_there_but_empty() {
    assert_true(&[
        "has(device.attributes.nope)",
        "device.attributes.?nope.hasValue()",
        "!('nope' in device.attributes)",
        "device.attributes['nope'].size() == 0",
        "!has(device.attributes['nope'].x)",
    ]);
    assert_fails("device.attributes['nope'].x", "no such key: x");
}

#[test]
fn a_failure_is_forgotten_where_the_other_side_decides() {
    assert_true(&[
        "device.attributes['dra.example.com'].nope || true",
        "true || device.attributes['dra.example.com'].nope",
        "!(device.attributes['dra.example.com'].nope && false)",
        "[0, 1].exists(x, 1 / x == 1)",
    ]);
    assert_fails("false || device.attributes['dra.example.com'].nope", "no such key: nope");
}

#[test]
fn equality_of_kubernetes_types_depends_on_the_side() {
    let version = "device.attributes['dra.example.com'].version";
    assert_fails(&format!("{version} == '1.2.3'"), "no such overload");
    assert_true(&[&format!("!('1.2.3' == {version})"), &format!("{version} != '1.2.3'")]);
    assert_true(&[&format!("{version} == semver('1.2.3')")]);
    assert_fails("quantity('30k') == quantity('20k').add(quantity('10k'))", "no such overload");
    assert_true(&["quantity('20k').add(quantity('10k')) == quantity('30k')"]);
}

#[test]
fn what_is_constant_costs_nothing_and_fails_before_there_is_a_device() {
    assert_eq!(evaluate("[1, 2, 3].size() == int('3')"), Ok((true, 2)));
    let error = compile("int('x') == 1", FEATURES).unwrap_err();
    assert!(matches!(&error, CompileError::Constant { .. }), "{error}");
    assert_fails("'a'.matches('[')", "invalid matches argument");
    assert_fails("matches('[', 'a')", "invalid matches argument");
    assert_fails("matches('a', '[')", "program instantiation failed");
    assert_fails("duration('x') == duration('1s')", "invalid duration argument");
    assert_fails("'%d'.format(['x']) == ''", "decimal clause can only be used on integers");
}

#[test]
fn only_a_decision_is_a_result() {
    assert_fails("1", "must evaluate to bool or the unknown type, not int");
    assert_fails("device.attributes['dra.example.com'].number", "could not be converted to bool");
    assert_true(&["device.attributes['dra.example.com'].truth"]);
}

#[test]
fn an_evaluation_that_goes_on_for_too_long_is_stopped() {
    let error = "operation cancelled: actual cost limit exceeded";
    assert_fails("lists.range(1000000).all(x, x >= 0)", error);
    assert_fails("lists.range(2000).map(x, lists.range(2000)).size() == 1 || true", error);
}

#[test]
fn an_attribute_without_a_value_fails_every_expression() {
    let device = DeviceInput::new(
        "d",
        false,
        [("x", Attribute::empty())],
        [("y", Amount::whole(1, Format::DecimalSi))],
    );
    let error = compile("true", FEATURES).unwrap().matches(&device).unwrap_err();
    assert_eq!(
        (error.to_string(), error.cost()),
        ("attribute x: unsupported attribute value".to_owned(), None)
    );
}

#[test]
fn lists_are_no_attributes_before_they_were() {
    let features = Features { list_types: false, ..FORMER };
    let error = evaluate_with("true", features).unwrap_err();
    assert_eq!(error, "attribute list: unsupported attribute value");
}

#[test]
fn versions_differ_in_what_functions_do_and_cost() {
    let expression = "device.driver.startsWith('d')";
    assert_eq!(evaluate(expression), Ok((true, 3)));
    assert_eq!(evaluate_with(expression, FORMER), Ok((true, 4)));
    assert_eq!(evaluate_with("lists.range(-1) == []", FORMER), Ok((true, 11)));
    assert_fails("lists.range(-1) == []", "size must be non-negative");
}

#[test]
fn a_text_that_is_too_long_or_too_deep_is_refused() {
    let long = " ".repeat(MAX_LENGTH + 1);
    assert!(matches!(compile(&long, FEATURES), Err(CompileError::Long { .. })));
    for (open, close) in [("(", ")"), ("[", "]"), ("!(", ")"), ("has(", ")"), ("{1:", "}")] {
        let deep = open.repeat(2000) + "true" + &close.repeat(2000);
        assert!(compile(&deep, FEATURES).unwrap_err().to_string().contains("recursion limit"));
    }
    for chain in ["1 + ", "device.", "[1][0] == 1 ? true : "] {
        let deep = chain.repeat(400) + "true";
        let error = compile(&deep, FEATURES).unwrap_err().to_string();
        assert!(error.contains("recursion limit"), "{chain}: {error}");
    }
    let wide = "true || ".repeat(1000) + "true";
    assert!(compile(&wide, FEATURES).is_ok(), "terms are beside each other, not in each other");
}

#[test]
fn what_is_just_not_too_deep_is_evaluated() {
    let chain = "1 + ".repeat(200) + "1 == 201";
    let brackets = "(".repeat(60) + "true" + &")".repeat(60);
    let folds = "[1].all(x, ".repeat(55) + "x == 1" + &")".repeat(55);
    let choices = "false ? false : ".repeat(60) + "true";
    assert_true(&[&chain, &brackets, &folds, &choices]);
}

#[test]
fn what_repeats_itself_does_not_grow_beyond_all_bounds() {
    let binds = |count: usize, value: fn(usize) -> String, body: &str| {
        let bound: String = (1..count).map(|n| format!("cel.bind(v{n}, {}, ", value(n - 1))).collect();
        format!("cel.bind(v0, [1], {bound}{body}{}", ")".repeat(count))
    };
    let limit = "operation cancelled: actual cost limit exceeded";
    let pair: fn(usize) -> String = |n| format!("[v{n}, v{n}]");
    assert_fails(&binds(50, pair, "v49 == v48 + [v48[0]] || v49 == [v48, v48, v48].slice(0, 2)"), "");
    assert_fails(&binds(50, pair, "cel.bind(w, [v48, v48], v49 == w)"), limit);
    assert_fails(&binds(50, pair, "v49.flatten(60).size() == 1"), limit);
    assert_fails(&binds(50, pair, "'%s'.format([v49]) == ''"), limit);
    assert_fails(&binds(50, pair, "v49.includes(1)"), limit);
    assert_fails(&binds(50, |n| format!("v{n} + v{n}"), "v49.size() == 1"), limit);
    assert_fails(&binds(50, |n| format!("{{v{n}: v{n}}}"), "true"), "too large");
    let squared =
        format!("cel.bind(s, '{}', s.replace('a', s).replace('a', s).size() == 1)", "a".repeat(2000));
    assert_fails(&squared, limit);
    assert_fails("sets.contains(lists.range(400000), lists.range(400000).reverse())", limit);
    let chained = format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(40));
    assert_fails(&chained, "limit exceeded");
    let keys = "(true ? {0: 0} : {0: 1})[".repeat(40) + "0" + &"]".repeat(40) + " == 0";
    assert_true(&[&keys]);
}

#[test]
fn every_signature_is_understood() {
    let unknown = |of: &Type| *of == Type::Dyn;
    let may_be_unknown = ["dyn", "format", "flatten", "includes", "@includes"];
    for name in library::names().filter(|name| !may_be_unknown.contains(name)) {
        let declaration = library::find(name).unwrap();
        for overload in &declaration.overloads {
            let all = overload.params.iter().chain([&overload.result]);
            assert!(!all.into_iter().any(unknown), "{name}: {}", overload.id);
        }
    }
}

#[test]
fn texts_are_counted_in_characters() {
    assert_true(&[
        "'日本語'.size() == 3 && size(bytes('日')) == 3",
        "'日本語'.indexOf('語') == 2 && '日本語'.charAt(1) == '本'",
        "'日本語'.substring(1, 2) == '本' && '日本語'.lastIndexOf('本') == 1",
        "'abc'.split('') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "'hello'.replace('l', 'L', 1) == 'heLlo' && ['a', 'b'].join('-') == 'a-b'",
    ]);
    assert_fails("'abc'.charAt(4) == ''", "index out of range: 4");
}

#[test]
fn templates_are_filled_as_english_has_it() {
    assert_true(&[
        "'%s has %d'.format(['a', 1]) == 'a has 1'",
        "'%f'.format([1234567.5]) == '1,234,567.500000'",
        "'%e'.format([0.00015]) == '1.500000×10⁻⁰⁴'",
        "'%x %X %o %b'.format([255, 255, 8, 5]) == 'ff FF 10 101'",
        "'%s'.format([{'b': [1.5], 'a': ['x']}]) == '{\"a\":[\"x\"], \"b\":[1.500000]}'",
    ]);
}

#[test]
fn points_in_time_know_their_date() {
    assert_true(&[
        "timestamp('2020-02-29T12:34:56.789Z').getDayOfYear() == 59",
        "timestamp('2020-02-29T12:34:56.789Z').getDayOfWeek() == 6",
        "timestamp('2020-02-29T23:00:00Z').getDate('+02:00') == 1",
        "timestamp('2020-01-01T00:00:00+01:00') == timestamp('2019-12-31T23:00:00Z')",
        "timestamp('2020-03-01T00:00:00Z') - timestamp('2020-02-28T00:00:00Z') == duration('48h')",
        "string(timestamp(0)) == '1970-01-01T00:00:00Z' && string(duration('-1.5s')) == '-1.5s'",
    ]);
}

#[test]
fn networks_contain_addresses_of_their_own_family() {
    assert_true(&[
        "cidr('10.0.0.0/8').containsIP('10.1.1.1') && !cidr('10.0.0.0/8').containsIP('::1')",
        "cidr('192.168.0.5/24').masked() == cidr('192.168.0.0/24')",
        "cidr('192.168.0.0/24').containsCIDR('192.168.0.0/25')",
        "!isIP('01.2.3.4') && !isCIDR('10.0.0.0/33') && isCIDR('::/0')",
    ]);
    assert_fails("cidr('10.0.0.0/8').containsIP('bad')", "no such overload");
}

#[test]
fn addresses_of_the_web_are_taken_apart() {
    assert_true(&[
        "url('https://user@example.com:80/a').getHost() == 'example.com:80'",
        "url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://example.com?x=1&x=2&y=a+b').getQuery() == {'x': ['1', '2'], 'y': ['a b']}",
        "url('https://example.com/a b').getEscapedPath() == '/a%20b'",
        "!isURL('../relative') && isURL('mailto:a@b.c')",
    ]);
}

#[test]
fn presence_is_asked_of_the_branch_that_is_chosen() {
    assert_true(&[
        "has((true ? {'a': 1} : {'b': 1}).a) && !has((false ? {'a': 1} : {'b': 1}).a)",
        "!has((device.driver == '' ? dyn(1) : dyn('x')).a)",
    ]);
}

#[test]
fn optional_values_are_passed_through() {
    assert_true(&[
        "device.attributes['dra.example.com'].?nope.orValue(true)",
        "device.attributes['dra.example.com'].?text.optMap(t, t == 'fish').orValue(false)",
        "[?optional.of(1), ?optional.none()] == [1] && {?'a': optional.none()} == {}",
        "optional.of({'a': [1]}).a[0].orValue(0) == 1",
        "[?dyn(optional.of(1))] == [1]",
    ]);
    assert_fails("[?dyn(1)] == [1]", "non-optional value");
}

#[test]
fn times_and_spans_are_shown_as_the_reference_shows_them() {
    assert_true(&[
        "string(timestamp('1969-12-31T23:59:59+02:00')) == '1969-12-31T23:59:59+02:00'",
        "string(timestamp('2024-01-01T00:30:00-00:45') + duration('1h')) == '2024-01-01T01:30:00-00:45'",
        "string(timestamp('2024-01-01T00:00:00+00:00')) == '2024-01-01T00:00:00Z'",
        "timestamp('1969-12-31T23:59:59+02:00') == timestamp('1969-12-31T21:59:59Z')",
        "timestamp('1969-12-31T23:59:59+02:00').getHours() == 21",
        "timestamp('2024-01-01T0:00:00,5Z') == timestamp('2024-01-01T00:00:00.5Z')",
        // As a number of seconds it has no more digits.
        "string(timestamp('2024-02-29T01:02:03.500000001Z') - timestamp(0)) == '1709168523.5s'",
        "string(duration('-1.5s')) == '-1.5s' && string(duration('1ns')) == '0.000000001s'",
    ]);
    assert_fails(
        "timestamp('2024-01-01T00:00:00Z') - timestamp('0001-01-01T00:00:00Z') > duration('0')",
        "integer overflow",
    );
}

#[test]
fn odd_values_are_formatted_as_the_reference_formats_them() {
    assert_true(&[
        "'%.3f|%.3f'.format([-0.0, -0.0001]) == '0.000|-0.000'",
        "'%e'.format([-0.0]) == '0.000000×10⁰⁰'",
        "'%e|%.3e'.format([1.0 / 0.0, 0.0 / 0.0]) == '     ∞|NaN'",
        "'%s'.format([b'\\xc3\\xa9']) == 'é'",
    ]);
    assert_fails("{'a': true}[dyn(1e308)]", "no such key: 1e+308");
    assert_fails("'%s'.format([[b'\\xff']]) == ''", "invalid UTF-8 in bytes");
    assert_fails("'%s'.format([[b'', quantity('1')]]) == ''", "was given");
}

#[test]
fn a_text_to_be_formatted_is_not_evaluated_twice_over_a_failure() {
    // Neither the list nor the call is paid for.
    let failing = "{'a': 'b'}[device.driver]";
    let cost = |expression: String| {
        let program = compile(&expression, FEATURES).unwrap();
        let device = DeviceInput::new("d", false, [("a", Attribute::int(0))], [("a", "1".parse().unwrap())]);
        program.matches(&device).unwrap_err().cost()
    };
    let alone = cost(format!("{failing} == 'x'"));
    assert_eq!(cost(format!("{failing}.format([device.driver + 'x']) == 'x'")), alone);
    // What the text is made of need not be of one type.
    assert_true(&["string([1, 'a'].size()).format([]) == '2'"]);
    assert!(evaluate("[1, 'a'].size() == 2").is_err());
}

#[test]
fn a_brace_without_a_count_is_a_character() {
    assert_true(&[
        "'{a}'.matches('^{a}$')",
        "'a{,5}'.matches('^a{,5}$')",
        "'aa'.matches('^a{2}$') && 'aa'.matches('^a{1,}$')",
        "'{'.matches('[{]') && '{'.matches('\\\\{')",
    ]);
    assert_fails("'a'.matches(device.driver + '(')", "error parsing regexp: ");
    assert_fails("'a'.find(device.driver + '(') == ''", "Illegal regex: ");
}

#[test]
fn nothing_is_found_within_the_text_since_1_37() {
    assert_true(&["'abc'.indexOf('', 9) == 3", "'abc'.lastIndexOf('', 9) == 3", "'abc'.indexOf('', 2) == 2"]);
    assert_fails("'abc'.indexOf('', -1) == 0", "index out of range: -1");
    assert_fails("'abc'.lastIndexOf('', -1) == 0", "index out of range: -1");
    for expression in
        ["'abc'.indexOf('', 9) == 9", "'abc'.lastIndexOf('', -1) == -1", "'abc'.indexOf('c', 1) == 2"]
    {
        assert!(matches!(evaluate_with(expression, FORMER), Ok((true, _))), "{expression}");
    }
}

#[test]
fn only_long_addresses_have_zones() {
    assert_fails("ip('fe80::1%eth0') == ip('::1')", "with zone value is not allowed");
    assert_true(&[
        "url('http://[fe80::1%25en0]:8').getHostname() == 'fe80::1%en0'",
        "isURL('http://[::ffff:1.2.3.4]') && !isURL('http://[1.2.3.4]') && !isURL('http://[zz]')",
        "!isURL('http://[fe80::1%25]') && !isURL('http://[]')",
    ]);
    assert_fails("ip('10.0.0.1%eth0') == ip('::1')", "parse error during conversion");
}

#[test]
fn large_numbers_lose_what_they_lose_in_the_reference() {
    assert_true(&[
        "!(double(18446744073709551615u) > 18446744073709551615u)",
        "dyn(9007199254740993) == dyn(9007199254740992.0)",
        "1.5 > 1 && 1 < 1.5 && -1.5 < -1 && 2.0 == dyn(2)",
        "!(0.0 / 0.0 == dyn(1))",
        "semver('18446744073709551615.0.0').major() == -1",
    ]);
}
