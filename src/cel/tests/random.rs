//! No text makes it panic, and every evaluation ends.

use proptest::prelude::*;

use super::{FEATURES, FORMER, evaluate_with};

/// Pieces that expressions are made of, so that some of what is put together means something.
const PIECES: [&str; 48] = [
    "device",
    ".attributes",
    ".capacity",
    "['dra.example.com']",
    ".text",
    ".number",
    ".?list",
    "[?'x']",
    "[0]",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "==",
    "<",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "/",
    " in ",
    "1",
    "2.5",
    "3u",
    "'a'",
    "b'\\xff'",
    "true",
    "null",
    "x",
    ".all(x, ",
    ".map(x, ",
    ".transformMap(x, y, ",
    ".exists(x, ",
    "has(",
    "cel.bind(x, ",
    ".optMap(x, ",
    ".size()",
    ".matches('[a-z]+')",
    "quantity('1Ki')",
    ".format([",
    "lists.range(99)",
    ".sort()",
];

const EXPRESSIONS: [&str; 8] = [
    "device.attributes['dra.example.com'].list.exists(x, x == 'a') && device.driver.startsWith('dra')",
    "cel.bind(d, device.attributes['dra.example.com'], d.number > 3 && d.version.isGreaterThan(semver('1.0.0')))",
    "device.capacity['dra.example.com'].memory.compareTo(quantity('1Gi')) >= 0 ? true : 1 / 0 == 1",
    "{'a': [1, 2], 'b': [3]}.transformList(k, v, v.sum()).sortBy(x, -x)[0] == 3 || has({'a': 1}.b)",
    "'%s %d'.format(['a', 1]).matches(r'\\w+ \\d') && timestamp('2020-01-01T00:00:00Z').getMonth() == 0",
    "[?optional.of(1), ?optional.none()].map(x, x + 1) == [2] && url('https://a.b/c').getHost() == 'a.b'",
    "device.attributes.?nope[?'x'].orValue('y') in ['y', 'z'] && !isQuantity('1,3')",
    "cidr('10.0.0.0/8').containsIP('10.1.1.1') && format.dns1123Label().validate('a-').hasValue()",
];

fn no_panic(text: &str) {
    for features in [FEATURES, FORMER] {
        let _whatever = evaluate_with(text, features);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        no_panic(&text);
    }

    #[test]
    fn any_pieces_are_answered(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40)) {
        no_panic(&pieces.concat());
    }

    #[test]
    fn a_changed_expression_is_answered(
        expression in prop::sample::select(&EXPRESSIONS[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>(), 0..3_u8), 1..6),
    ) {
        let mut characters: Vec<char> = expression.chars().collect();
        for (place, character, change) in changes {
            let place = place.index(characters.len() + 1);
            match change {
                0 => characters.insert(place, character),
                1 if place < characters.len() => characters[place] = character,
                _ if place < characters.len() => drop(characters.remove(place)),
                _ => characters.push(character),
            }
        }
        no_panic(&characters.into_iter().collect::<String>());
    }
}
