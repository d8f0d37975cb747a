//! Expressions from templates: most are of the right types, some are not.
//!
//! A template has holes for what is of a type: `{i}` is an int, `{i:x}` one in which the variable `x` of its kind can
//! be used.

use crate::dice::Dice;

/// What is counted, and by what it is known.
pub const LABELS: &[(&str, &[&str])] = &[
    ("macros", &[".all(", ".exists(", ".exists_one(", ".map(", ".filter(", "has("]),
    ("two variables", &["transformList(", "transformMap", "(xi, xs,", "existsOne("]),
    ("bind", &["cel.bind("]),
    ("optionals", &["optional.", ".?", "[?", "orValue(", ".or("]),
    ("lists", &["lists.", ".sort", ".slice(", ".flatten(", ".distinct(", ".reverse(", ".first(", ".last("]),
    ("Kubernetes lists", &[".sum(", ".min(", ".max(", ".isSorted(", ".lastIndexOf(", ".includes("]),
    ("sets", &["sets."]),
    ("regex", &[".find", "matches("]),
    ("strings", &[".split(", ".replace(", ".substring(", ".charAt(", "strings.quote(", ".join(", "Ascii("]),
    ("text format", &[".format("]),
    ("named formats", &["format."]),
    ("URLs", &["url(", "isURL("]),
    ("IP, CIDR", &["ip(", "cidr(", "isIP(", "isCIDR("]),
    ("quantities", &["quantity(", "isQuantity(", "device.capacity"]),
    ("versions", &["semver(", "isSemver(", ".v."]),
    ("time", &["duration(", "timestamp("]),
    ("device", &["device."]),
    ("bytes", &["b'", "bytes("]),
];

/// Kinds of values: letter, the variable of that kind, literals.
const KINDS: &[(char, &str, &[&str])] = &[
    ('b', "xb", &["true", "false", "device.allowMultipleAllocations", "DEVICE.b == true"]),
    (
        'i',
        "xi",
        &["0", "1", "-1", "2", "3", "7", "0x10", "9223372036854775807", "-9223372036854775808", "-5", "1000"],
    ),
    ('u', "xu", &["0u", "1u", "7u", "18446744073709551615u"]),
    ('d', "xd", &["0.0", "1.5", "-2.25", "1e3", "1e308", "0.1", "7.0"]),
    (
        's',
        "xs",
        &[
            "''",
            "'a'",
            "'abc'",
            "'aXbXc'",
            "'é€'",
            "'a.b'",
            "'1'",
            "'-12'",
            "'1.5'",
            "'true'",
            "' t '",
            "'1.2.3'",
            "'v1.2'",
            "'10.0.0.1'",
            "'::1'",
            "'10.0.0.0/8'",
            "'1Gi'",
            "'1500m'",
            "'1h30m'",
            "'2024-02-29T01:02:03Z'",
            "'%s'",
            "'https://h:80/p?q=1'",
            "\"q'\\n\\\"\"",
            "'\\u00e9'",
            "r'\\d+'",
            "'dns-label'",
            "device.driver",
        ],
    ),
    ('y', "xy", &["b''", "b'abc'", "b'\\xff'", "b'é'"]),
    (
        'r',
        "xr",
        &["'a+'", "'^[a-c]*$'", "'(x|X)'", "'\\\\d'", "'[[:alpha:]]'", "'.'", "''", "'(?i)ABC'", "'a{2,3}'"],
    ),
    (
        'D',
        "xD",
        &["duration('1h')", "duration('-1.5s')", "duration('0')", "duration('1ns')", "duration('290h')"],
    ),
    (
        'T',
        "xT",
        &[
            "timestamp('2024-02-29T01:02:03.5Z')",
            "timestamp('1969-12-31T23:59:59+02:00')",
            "timestamp(0)",
            "timestamp('0001-01-01T00:00:00Z')",
        ],
    ),
    (
        'q',
        "xq",
        &[
            "quantity('1Gi')",
            "quantity('1500m')",
            "quantity('-3')",
            "CAPACITY.m",
            "CAPACITY.n",
            "quantity('1e3')",
        ],
    ),
    ('v', "xv", &["semver('1.2.3')", "semver('v2.0', true)", "DEVICE.v", "semver('1.2.3-rc.1+b')"]),
    ('U', "xU", &["url('https://u@h.example:80/a%20b?q=1&q=2&r#f')", "url('/p')", "url('http://[::1]')"]),
    ('p', "xp", &["ip('10.0.0.1')", "ip('::1')", "ip('fe80::1')", "ip('224.0.0.1')", "ip('0.0.0.0')"]),
    ('c', "xc", &["cidr('10.0.0.0/8')", "cidr('10.1.2.3/24')", "cidr('fd00::/64')"]),
    ('I', "xI", &["[1, 2, 3]", "[3, 1, 2, 1]", "[7]", "lists.range(4)", "DEVICE.li"]),
    ('S', "xS", &["['a', 'b']", "['b', 'a', 'b', '']", "['x']", "DEVICE.ls", "'a,b,c'.split(',')"]),
    ('M', "xM", &["{'a': 1}", "{'b': 2}", "{'': 0}"]),
    ('N', "xN", &["{'a': 1, 'b': 2}", "{'a': 1, 'b': 2, 'a.b': 7}"]),
    (
        'O',
        "xO",
        &["optional.of(1)", "optional.none()", "optional.ofNonZeroValue(0)", "{'a': 1}[?'a']", "[1][?2]"],
    ),
    (
        'z',
        "xz",
        &[
            "dyn(1)",
            "dyn('a')",
            "dyn(true)",
            "dyn([1])",
            "dyn(1.0)",
            "dyn(1u)",
            "DEVICE.i",
            "DEVICE.s",
            "DEVICE.gone",
        ],
    ),
];

/// What can be made of others, by kind.
const TEMPLATES: &[(char, &str)] = &[
    ('b', "!{b}"),
    ('b', "{b} && {b}"),
    ('b', "{b} || {b}"),
    ('b', "({b} ? {b} : {b})"),
    ('b', "{i} < {i}"),
    ('b', "{i} >= {d}"),
    ('b', "{u} <= {i}"),
    ('b', "{d} > {u}"),
    ('b', "{s} < {s}"),
    ('b', "{y} < {y}"),
    ('b', "{i} == {i}"),
    ('b', "{s} != {s}"),
    ('b', "{d} == {d}"),
    ('b', "{u} == {u}"),
    ('b', "{y} == {y}"),
    ('b', "{z} == {z}"),
    ('b', "{z} != {z}"),
    ('b', "{z} < {z}"),
    ('b', "{I} == {I}"),
    ('b', "{S} != {S}"),
    ('b', "{N} == {N}"),
    ('b', "{O} == {O}"),
    ('b', "{D} < {D}"),
    ('b', "{T} >= {T}"),
    ('b', "{q} == {q}"),
    ('b', "{v} == {v}"),
    ('b', "{p} == {p}"),
    ('b', "{c} != {c}"),
    ('b', "{U} == {U}"),
    ('b', "{i} in {I}"),
    ('b', "{s} in {S}"),
    ('b', "{s} in {N}"),
    ('b', "{z} in {I}"),
    ('b', "has({N}.a)"),
    ('b', "has(DEVICE.i)"),
    ('b', "has(DEVICE.gone)"),
    ('b', "has(device.attributes.nope)"),
    ('b', "{s} in device.attributes"),
    ('b', "{s} in device.attributes[{s}]"),
    ('b', "{s}.contains({s})"),
    ('b', "{s}.startsWith({s})"),
    ('b', "{s}.endsWith({s})"),
    ('b', "{s}.matches({r})"),
    ('b', "matches({s}, {r})"),
    ('b', "{I}.all(xi, {b:i})"),
    ('b', "{I}.exists(xi, {b:i})"),
    ('b', "{I}.exists_one(xi, {b:i})"),
    ('b', "{S}.all(xs, {b:s})"),
    ('b', "{S}.exists(xs, {b:s})"),
    ('b', "{S}.all(xi, xs, {b:is})"),
    ('b', "{S}.exists(xi, xs, {b:is})"),
    ('b', "{S}.existsOne(xi, xs, {b:is})"),
    ('b', "{M}.all(xs, {b:s})"),
    ('b', "{M}.exists(xs, xi, {b:is})"),
    ('b', "cel.bind(xi, {i}, {b:i})"),
    ('b', "cel.bind(xs, {s}, {b:s})"),
    ('b', "cel.bind(xI, {I}, {b:I})"),
    ('b', "cel.bind(xz, {z}, {b:z})"),
    ('b', "{O}.hasValue()"),
    ('b', "{O}.optMap(xi, {b:i}).orValue({b})"),
    ('b', "sets.contains({I}, {I})"),
    ('b', "sets.equivalent({I}, {I})"),
    ('b', "sets.intersects({S}, {S})"),
    ('b', "{I}.isSorted()"),
    ('b', "{S}.isSorted()"),
    ('b', "DEVICE.li.includes({z})"),
    ('b', "DEVICE.s.includes({z})"),
    ('b', "{I}.includes({z})"),
    ('b', "isURL({s})"),
    ('b', "isIP({s})"),
    ('b', "isCIDR({s})"),
    ('b', "ip.isCanonical({s})"),
    ('b', "isQuantity({s})"),
    ('b', "isSemver({s})"),
    ('b', "isSemver({s}, {b})"),
    ('b', "{q}.isGreaterThan({q})"),
    ('b', "{q}.isLessThan({q})"),
    ('b', "{q}.isInteger()"),
    ('b', "{v}.isGreaterThan({v})"),
    ('b', "{v}.isLessThan({v})"),
    ('b', "{p}.isLoopback()"),
    ('b', "{p}.isGlobalUnicast()"),
    ('b', "{p}.isLinkLocalMulticast()"),
    ('b', "{p}.isLinkLocalUnicast()"),
    ('b', "{p}.isUnspecified()"),
    ('b', "{c}.containsIP({s})"),
    ('b', "{c}.containsIP({p})"),
    ('b', "{c}.containsCIDR({s})"),
    ('b', "{c}.containsCIDR({c})"),
    ('b', "format.dns1123Label().validate({s}).hasValue()"),
    ('b', "!format.named({s}).hasValue()"),
    ('b', "format.qualifiedName().validate({s}) == optional.none()"),
    ('b', "format.uuid().validate({s}).hasValue()"),
    ('b', "format.uri().validate({s}).hasValue()"),
    ('b', "format.date().validate({s}).hasValue()"),
    ('b', "format.labelValue().validate({s}).hasValue()"),
    ('b', "format.byte().validate({s}).hasValue()"),
    ('b', "format.datetime().validate({s}).hasValue()"),
    ('b', "type({z}) == int"),
    ('b', "type({z}) == type({z})"),
    ('b', "bool({s})"),
    ('i', "{i} + {i}"),
    ('i', "{i} - {i}"),
    ('i', "{i} * {i}"),
    ('i', "{i} / {i}"),
    ('i', "{i} % {i}"),
    ('i', "-({i})"),
    ('i', "({b} ? {i} : {i})"),
    ('i', "size({s})"),
    ('i', "{S}.size()"),
    ('i', "size({N})"),
    ('i', "{y}.size()"),
    ('i', "int({s})"),
    ('i', "int({d})"),
    ('i', "int({u})"),
    ('i', "int({T})"),
    ('i', "int({D})"),
    ('i', "{I}[{i}]"),
    ('i', "{N}[{s}]"),
    ('i', "{N}.a"),
    ('i', "{M}.b"),
    ('i', "{s}.indexOf({s})"),
    ('i', "{s}.indexOf({s}, {i})"),
    ('i', "{s}.lastIndexOf({s})"),
    ('i', "{s}.lastIndexOf({s}, {i})"),
    ('i', "{I}.indexOf({i})"),
    ('i', "{S}.lastIndexOf({s})"),
    ('i', "{I}.sum()"),
    ('i', "{I}.min()"),
    ('i', "{I}.max()"),
    ('i', "{O}.orValue({i})"),
    ('i', "{O}.value()"),
    ('i', "{I}.first().orValue({i})"),
    ('i', "{I}.last().value()"),
    ('i', "cel.bind(xi, {i}, {i:i})"),
    ('i', "cel.bind(xS, {S}, {i:S})"),
    ('i', "{q}.compareTo({q})"),
    ('i', "sign({q})"),
    ('i', "{q}.asInteger()"),
    ('i', "{v}.compareTo({v})"),
    ('i', "{v}.major()"),
    ('i', "{v}.patch()"),
    ('i', "{p}.family()"),
    ('i', "{c}.prefixLength()"),
    ('i', "{D}.getSeconds()"),
    ('i', "{D}.getMilliseconds()"),
    ('i', "{D}.getHours()"),
    ('i', "{T}.getFullYear()"),
    ('i', "{T}.getMonth()"),
    ('i', "{T}.getDate()"),
    ('i', "{T}.getDayOfWeek()"),
    ('i', "{T}.getDayOfYear()"),
    ('i', "{T}.getHours('+01:30')"),
    ('i', "{T}.getMinutes('-02:15')"),
    ('i', "{T}.getMilliseconds()"),
    ('i', "DEVICE.?i.orValue({i})"),
    ('u', "{u} + {u}"),
    ('u', "{u} - {u}"),
    ('u', "{u} * {u}"),
    ('u', "{u} / {u}"),
    ('u', "{u} % {u}"),
    ('u', "uint({i})"),
    ('u', "uint({s})"),
    ('u', "uint({d})"),
    ('u', "[{u}, {u}].max()"),
    ('d', "{d} + {d}"),
    ('d', "{d} - {d}"),
    ('d', "{d} * {d}"),
    ('d', "{d} / {d}"),
    ('d', "-({d})"),
    ('d', "double({s})"),
    ('d', "double({i})"),
    ('d', "double({u})"),
    ('d', "{q}.asApproximateFloat()"),
    ('d', "[{d}, {d}].sum()"),
    ('s', "{s} + {s}"),
    ('s', "({b} ? {s} : {s})"),
    ('s', "string({i})"),
    ('s', "string({u})"),
    ('s', "string({d})"),
    ('s', "string({b})"),
    ('s', "string({D})"),
    ('s', "string({T})"),
    ('s', "string({y})"),
    ('s', "string({p})"),
    ('s', "string({c})"),
    ('s', "{S}[{i}]"),
    ('s', "{S}.join({s})"),
    ('s', "{S}.join()"),
    ('s', "{S}.min()"),
    ('s', "{s}.charAt({i})"),
    ('s', "{s}.lowerAscii()"),
    ('s', "{s}.upperAscii()"),
    ('s', "{s}.trim()"),
    ('s', "{s}.replace({s}, {s})"),
    ('s', "{s}.replace({s}, {s}, {i})"),
    ('s', "{s}.substring({i})"),
    ('s', "{s}.substring({i}, {i})"),
    ('s', "strings.quote({s})"),
    ('s', "{s}.find({r})"),
    ('s', "'%s %d'.format([{s}, {i}])"),
    ('s', "'%s|%s|%s'.format([{S}, {N}, {b}])"),
    ('s', "'%x %X %o %b'.format([{i}, {s}, {i}, {u}])"),
    ('s', "'%.3f %e'.format([{d}, {d}])"),
    ('s', "'%s %s %s'.format([{D}, {T}, {z}])"),
    ('s', "'%s%%'.format([{z}])"),
    ('s', "'%d'.format([{z}])"),
    ('s', "{s}.format([{s}])"),
    ('s', "{U}.getHost()"),
    ('s', "{U}.getHostname()"),
    ('s', "{U}.getPort()"),
    ('s', "{U}.getScheme()"),
    ('s', "{U}.getEscapedPath()"),
    ('s', "{U}.getQuery()['q'].join('+')"),
    ('s', "cel.bind(xs, {s}, {s:s})"),
    ('s', "{S}.first().orValue({s})"),
    ('s', "DEVICE.?s.orValue({s})"),
    ('y', "{y} + {y}"),
    ('y', "bytes({s})"),
    ('D', "{D} + {D}"),
    ('D', "{D} - {D}"),
    ('D', "{T} - {T}"),
    ('D', "duration({s})"),
    ('D', "[{D}, {D}].sum()"),
    ('T', "{T} + {D}"),
    ('T', "{D} + {T}"),
    ('T', "{T} - {D}"),
    ('T', "timestamp({s})"),
    ('T', "timestamp({i})"),
    ('q', "{q}.add({q})"),
    ('q', "{q}.sub({q})"),
    ('q', "{q}.add({i})"),
    ('q', "{q}.sub({i})"),
    ('q', "quantity({s})"),
    ('v', "semver({s})"),
    ('v', "semver({s}, {b})"),
    ('U', "url({s})"),
    ('p', "ip({s})"),
    ('p', "{c}.ip()"),
    ('c', "cidr({s})"),
    ('c', "{c}.masked()"),
    ('I', "[{i}, {i}]"),
    ('I', "[{i}, {i}, {i}]"),
    ('I', "[?{O}, {i}]"),
    ('I', "{I} + {I}"),
    ('I', "({b} ? {I} : {I})"),
    ('I', "{I}.map(xi, {i:i})"),
    ('I', "{I}.map(xi, {b:i}, {i:i})"),
    ('I', "{S}.map(xs, {i:s})"),
    ('I', "{I}.filter(xi, {b:i})"),
    ('I', "{S}.transformList(xi, xs, {i:is})"),
    ('I', "{S}.transformList(xi, xs, {b:is}, {i:is})"),
    ('I', "{M}.transformList(xs, xi, {i:is})"),
    ('I', "{I}.sort()"),
    ('I', "{I}.sortBy(xi, {i:i})"),
    ('I', "{I}.slice({i}, {i})"),
    ('I', "{I}.reverse()"),
    ('I', "{I}.distinct()"),
    ('I', "[{I}, {I}].flatten()"),
    ('I', "lists.range(size({s}))"),
    ('I', "[{O}, {O}].unwrapOpt()"),
    ('I', "optional.unwrap([{O}])"),
    ('I', "{M}.map(xs, {i:s})"),
    ('S', "[{s}, {s}]"),
    ('S', "{S} + {S}"),
    ('S', "{S}.map(xs, {s:s})"),
    ('S', "{S}.filter(xs, {b:s})"),
    ('S', "{I}.map(xi, {s:i})"),
    ('S', "{s}.split({s})"),
    ('S', "{s}.split({s}, {i})"),
    ('S', "{s}.findAll({r})"),
    ('S', "{s}.findAll({r}, {i})"),
    ('S', "{S}.sort()"),
    ('S', "{S}.sortBy(xs, {i:s})"),
    ('S', "{S}.distinct()"),
    ('S', "{S}.slice({i}, {i})"),
    ('S', "{M}.transformList(xs, xi, {s:is})"),
    ('M', "{{s}: {i}}"),
    ('M', "{M}.transformMap(xs, xi, {i:is})"),
    ('M', "{M}.transformMap(xs, xi, {b:is}, {i:is})"),
    ('M', "['q'].transformMapEntry(xi, xs, {{s:is}: {i:is}})"),
    ('N', "{'a': {i}, {s}: {i}}"),
    ('N', "{S}.transformMapEntry(xi, xs, {xs: {i:is}})"),
    ('N', "{?'a': {O}, 'b': {i}}"),
    ('O', "optional.of({i})"),
    ('O', "optional.ofNonZeroValue({i})"),
    ('O', "{O}.or({O})"),
    ('O', "{N}[?{s}]"),
    ('O', "{I}[?{i}]"),
    ('O', "{N}.?a"),
    ('O', "{O}.optMap(xi, {i:i})"),
    ('O', "{O}.optFlatMap(xi, {O:i})"),
    ('O', "{I}.last()"),
    ('z', "dyn({i})"),
    ('z', "dyn({s})"),
    ('z', "dyn({I})"),
    ('z', "dyn({d})"),
    ('z', "dyn({q})"),
    ('z', "dyn({v})"),
    ('z', "dyn({N})"),
    ('z', "device.attributes[{s}].i"),
    ('z', "device.attributes['d.example.com'][{s}]"),
    ('z', "device.attributes['other.example.com'].i"),
    ('r', "{s}"),
];

/// What a whole expression is: a decision, or a text that the error shows.
const WHOLE: [&str; 6] = ["{b}", "{b}", "{b}", "{'-': true}[{s}]", "{'-': true}[string({i})]", "{z}"];

pub fn expression(dice: &mut Dice) -> String {
    let mut grammar = Grammar { dice, room: 6 };
    grammar.room += grammar.dice.below(14);
    let whole = grammar.dice.one_of(&WHOLE);
    let mut text = grammar.fill(whole, "");
    if grammar.dice.odd(40) {
        text = grammar.spoiled(&text);
    }
    text
}

struct Grammar<'d> {
    dice: &'d mut Dice,
    /// How many templates may still be used.
    room: usize,
}

impl Grammar<'_> {
    /// The template with its holes filled. Variables are the kinds of those that can be used.
    fn fill(&mut self, template: &str, variables: &str) -> String {
        let mut text = String::new();
        let mut rest = template;
        while let Some(at) = rest.find('{') {
            text += &rest[..at];
            rest = &rest[at..];
            match hole(rest) {
                Some((kind, more, length)) => {
                    text += &self.of_kind(kind, &format!("{variables}{more}"));
                    rest = &rest[length..];
                }
                None => {
                    text.push('{');
                    rest = &rest[1..];
                }
            }
        }
        text + rest
    }

    fn of_kind(&mut self, kind: char, variables: &str) -> String {
        let kind = if self.dice.odd(40) { KINDS[self.dice.below(KINDS.len())].0 } else { kind };
        if self.room == 0 || self.dice.once_in(4) {
            return self.leaf(kind, variables);
        }
        self.room -= 1;
        let templates: Vec<&str> =
            TEMPLATES.iter().filter(|(of, _)| *of == kind).map(|(_, text)| *text).collect();
        let template = self.dice.one_of(&templates);
        self.fill(&named(template), variables)
    }

    fn leaf(&mut self, kind: char, variables: &str) -> String {
        let (_, variable, literals) = KINDS.iter().find(|(letter, ..)| *letter == kind).unwrap();
        if variables.contains(kind) && !self.dice.once_in(3) {
            return (*variable).to_owned();
        }
        named(self.dice.one_of(literals))
    }

    /// With one character too few, or one too many.
    fn spoiled(&mut self, text: &str) -> String {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let at = self.dice.one_of(&places);
        let (before, after) = text.split_at(at);
        if self.dice.once_in(2) {
            format!("{before}{}", after.chars().skip(1).collect::<String>())
        } else {
            let character =
                self.dice.one_of(&['(', ')', '[', ',', '.', '?', '\'', '!', '-', 'x', '0', '\\', '&', ' ']);
            format!("{before}{character}{after}")
        }
    }
}

/// With the paths that are too long for a table.
fn named(text: &str) -> String {
    text.replace("CAPACITY.", "device.capacity['d.example.com'].")
        .replace("DEVICE.", "device.attributes['d.example.com'].")
}

/// The kind of a hole at the beginning of a text, the variables in it, and its length.
fn hole(text: &str) -> Option<(char, &str, usize)> {
    let (inside, _) = text[1..].split_once('}')?;
    let mut letters = inside.chars();
    let kind = letters.next().filter(|letter| KINDS.iter().any(|(kind, ..)| kind == letter))?;
    let more = match letters.as_str() {
        "" => "",
        more => more.strip_prefix(':')?,
    };
    Some((kind, more, inside.len() + 2))
}
