//! Addresses of the web.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use super::Function;
use crate::cel::value::{Failure, Map, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "url", overloads: &[("string_to_url", "(string) -> url")], run: url },
    Function { name: "isURL", overloads: &[("is_url_string", "(string) -> bool")], run: is_url },
    Function {
        name: "getScheme",
        overloads: &[("url_get_scheme", "url.() -> string")],
        run: |args| part(args, |url| url.scheme.clone()),
    },
    Function {
        name: "getHost",
        overloads: &[("url_get_host", "url.() -> string")],
        run: |args| part(args, |url| url.host.clone()),
    },
    Function {
        name: "getHostname",
        overloads: &[("url_get_hostname", "url.() -> string")],
        run: |args| part(args, |url| split_port(&url.host).0.to_owned()),
    },
    Function {
        name: "getPort",
        overloads: &[("url_get_port", "url.() -> string")],
        run: |args| part(args, |url| split_port(&url.host).1.to_owned()),
    },
    Function {
        name: "getEscapedPath",
        overloads: &[("url_get_escaped_path", "url.() -> string")],
        run: |args| part(args, |url| escaped(&url.path)),
    },
    Function {
        name: "getQuery",
        overloads: &[("url_get_query", "url.() -> map(string, list(string))")],
        run: query,
    },
];

/// A parsed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cel) struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

impl Url {
    /// As a request would have it: with a scheme, or with a path that begins at the root.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let refuse = |reason: String| Err(format!("parse {text:?}: {reason}"));
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return refuse("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() {
            return refuse("empty url".to_owned());
        }
        let (scheme, rest) = match split_scheme(text) {
            Ok(parts) => parts,
            Err(reason) => return refuse(reason),
        };
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_opaque = !rest.starts_with('/');
        if is_opaque && scheme.is_empty() {
            return refuse("invalid URI for request".to_owned());
        }
        // What has a scheme and no path is not looked into.
        let rest = if is_opaque { "" } else { rest };
        let (host, path) = match rest.strip_prefix("//") {
            Some(behind) => {
                let end = behind.find('/').unwrap_or(behind.len());
                let (authority, path) = behind.split_at(end);
                match host(authority) {
                    Ok(host) => (host, path),
                    Err(reason) => return refuse(reason),
                }
            }
            None => (String::new(), rest),
        };
        if let Err(reason) = unescaped(path) {
            return refuse(reason);
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            host,
            path: path.to_owned(),
            query: query.to_owned(),
            fragment: fragment.to_owned(),
        })
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match text.find(|c| !is_scheme(c)) {
        Some(0) if text.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some(end) if text[end..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

/// What is behind the name and the password of somebody, if they are there.
fn host(authority: &str) -> Result<String, String> {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match (host.strip_prefix('['), host.rfind(']'), host.rfind(':')) {
        (Some(_), None, _) => return Err("missing ']' in host".to_owned()),
        (Some(_), Some(end), _) => &host[end + 1..],
        (None, _, Some(colon)) => &host[colon..],
        (None, _, None) => "",
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {port:?} after host"));
    }
    if let Some(c) = host.chars().find(|c| matches!(c, ' ' | '\\' | '^' | '`' | '{' | '|' | '}')) {
        return Err(format!("invalid character {:?} in host name", c.to_string()));
    }
    let host = if host.contains('%') { unescaped(host)? } else { host.to_owned() };
    if let Some((inner, _)) = host.strip_prefix('[').and_then(|rest| rest.rsplit_once(']')) {
        let (address, zone) = inner.split_once('%').unwrap_or((inner, "none"));
        if zone.is_empty() || address.parse::<Ipv6Addr>().is_err() {
            return Err(format!("invalid host: {inner:?} is no IPv6 address"));
        }
    }
    Ok(host)
}

fn split_port(host: &str) -> (&str, &str) {
    if let Some((inner, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (inner, rest.strip_prefix(':').unwrap_or_default());
    }
    host.rsplit_once(':').unwrap_or((host, ""))
}

/// The text that `%41` and the like stand for.
fn unescaped(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        bytes.extend(rest[..at].bytes());
        let hex = rest.get(at + 1..at + 3).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
            let wrong: String = rest[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {wrong:?}"));
        };
        bytes.push(byte);
        rest = &rest[at + 3..];
    }
    bytes.extend(rest.bytes());
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A path in which everything that cannot be in one is escaped.
fn escaped(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
    if path.bytes().all(is_plain) {
        return path.to_owned();
    }
    let plain = unescaped(path).unwrap_or_default();
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    plain
        .bytes()
        .map(|byte| if is_kept(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn url(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => match Url::parse(text) {
            Ok(url) => Ok(Value::Url(Arc::new(url))),
            Err(reason) => {
                Err(Failure::because(format!("URL parse error during conversion from string: {reason}")))
            }
        },
        _ => Err(Failure::NoOverload),
    }
}

fn is_url(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text).is_ok())),
        _ => Err(Failure::NoOverload),
    }
}

fn part(args: &[Value], pick: fn(&Url) -> String) -> Outcome {
    match args {
        [Value::Url(url)] => Ok(Value::string(pick(url))),
        _ => Err(Failure::NoOverload),
    }
}

/// What cannot be understood is left out.
fn query(args: &[Value]) -> Outcome {
    let [Value::Url(url)] = args else { return Err(Failure::NoOverload) };
    let mut values = BTreeMap::<String, Vec<String>>::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |text: &str| unescaped(&text.replace('+', " "));
        if let (Ok(key), Ok(value)) = (plain(key), plain(value)) {
            values.entry(key).or_default().push(value);
        }
    }
    let mut map = Map::default();
    for (key, values) in values {
        map.insert(Value::string(key), Value::strings(values))?;
    }
    Ok(Value::Map(Arc::new(map)))
}
