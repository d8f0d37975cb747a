//! Addresses and networks.

use std::{fmt, net::IpAddr};

use super::Function;
use crate::cel::value::{Failure, Outcome, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "ip",
        overloads: &[("string_to_ip", "(string) -> ip"), ("cidr_ip", "cidr.() -> ip")],
        run: ip,
    },
    Function { name: "isIP", overloads: &[("is_ip", "(string) -> bool")], run: is_ip },
    Function {
        name: "ip.isCanonical",
        overloads: &[("ip_is_canonical", "(string) -> bool")],
        run: is_canonical,
    },
    Function { name: "family", overloads: &[("ip_family", "ip.() -> int")], run: family },
    Function {
        name: "isUnspecified",
        overloads: &[("ip_is_unspecified", "ip.() -> bool")],
        run: |args| test(args, IpAddr::is_unspecified),
    },
    Function {
        name: "isLoopback",
        overloads: &[("ip_is_loopback", "ip.() -> bool")],
        run: |args| test(args, IpAddr::is_loopback),
    },
    Function {
        name: "isLinkLocalMulticast",
        overloads: &[("ip_is_link_local_multicast", "ip.() -> bool")],
        run: |args| test(args, is_link_local_multicast),
    },
    Function {
        name: "isLinkLocalUnicast",
        overloads: &[("ip_is_link_local_unicast", "ip.() -> bool")],
        run: |args| test(args, is_link_local_unicast),
    },
    Function {
        name: "isGlobalUnicast",
        overloads: &[("ip_is_global_unicast", "ip.() -> bool")],
        run: |args| test(args, is_global_unicast),
    },
    Function { name: "cidr", overloads: &[("string_to_cidr", "(string) -> cidr")], run: cidr },
    Function { name: "isCIDR", overloads: &[("is_cidr", "(string) -> bool")], run: is_cidr },
    Function {
        name: "containsIP",
        overloads: &[
            ("cidr_contains_ip_string", "cidr.(string) -> bool"),
            ("cidr_contains_ip_ip", "cidr.(ip) -> bool"),
        ],
        run: contains_ip,
    },
    Function {
        name: "containsCIDR",
        overloads: &[
            ("cidr_contains_cidr_string", "cidr.(string) -> bool"),
            ("cidr_contains_cidr", "cidr.(cidr) -> bool"),
        ],
        run: contains_cidr,
    },
    Function {
        name: "prefixLength",
        overloads: &[("cidr_prefix_length", "cidr.() -> int")],
        run: prefix_length,
    },
    Function { name: "masked", overloads: &[("cidr_masked", "cidr.() -> cidr")], run: masked },
];

fn not_an_address(text: &str) -> String {
    format!("IP Address {text:?} parse error during conversion from string: not an address")
}

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) struct Ip(IpAddr);

impl Ip {
    fn parse(text: &str) -> Result<Self, String> {
        let without_zone = text.split('%').next().unwrap_or_default();
        match without_zone.parse() {
            Err(_) => Err(not_an_address(text)),
            // Only the longer addresses have zones.
            Ok(IpAddr::V4(_)) if without_zone != text => Err(not_an_address(text)),
            Ok(_) if without_zone != text => {
                Err(format!("IP address {text:?} with zone value is not allowed"))
            }
            Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
                Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
            }
            Ok(address) => Ok(Self(address)),
        }
    }

    /// In bytes.
    pub(in crate::cel) fn size(self) -> usize {
        if self.0.is_ipv4() { 4 } else { 16 }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A network: an address, and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("network address parse error during conversion from string: {text:?}");
        let (address, bits) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        if let IpAddr::V6(mapped) = address
            && mapped.to_ipv4_mapped().is_some()
        {
            return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
        }
        let is_plain = bits == "0" || !bits.starts_with(['0', '+']);
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| is_plain && *bits <= most).ok_or_else(invalid)?;
        Ok(Self { address, bits })
    }

    /// In bytes, as far as they count.
    pub(in crate::cel) fn size(self) -> usize {
        usize::from(self.bits).div_ceil(8)
    }

    fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        };
        Self { address, bits: self.bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, bits: self.bits }.masked() == self.masked()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

fn test(args: &[Value], is_so: fn(&IpAddr) -> bool) -> Outcome {
    match args {
        [Value::Ip(Ip(address))] => Ok(Value::Bool(is_so(address))),
        _ => Err(Failure::NoOverload),
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    let is_local = address.is_loopback() || is_link_local_unicast(address);
    !(is_broadcast || is_local || address.is_unspecified() || address.is_multicast())
}

fn ip(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ip::parse(text).map(Value::Ip).map_err(Failure::because),
        [Value::Cidr(cidr)] => Ok(Value::Ip(Ip(cidr.address))),
        _ => Err(Failure::NoOverload),
    }
}

fn is_ip(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Ip::parse(text).is_ok())),
        _ => Err(Failure::NoOverload),
    }
}

fn is_canonical(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => {
            let ip = Ip::parse(text).map_err(Failure::because)?;
            Ok(Value::Bool(ip.to_string() == **text))
        }
        _ => Err(Failure::NoOverload),
    }
}

fn family(args: &[Value]) -> Outcome {
    match args {
        [Value::Ip(Ip(address))] => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        _ => Err(Failure::NoOverload),
    }
}

fn cidr(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Cidr::parse(text).map(Value::Cidr).map_err(|reason| {
            Failure::because(format!("network address parse error during conversion from string: {reason}"))
        }),
        _ => Err(Failure::NoOverload),
    }
}

fn is_cidr(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Cidr::parse(text).is_ok())),
        _ => Err(Failure::NoOverload),
    }
}

fn contains_ip(args: &[Value]) -> Outcome {
    let (cidr, address) = match args {
        [Value::Cidr(cidr), Value::Ip(Ip(address))] => (cidr, *address),
        // A text that is no address is refused as an argument, and not as an address.
        [Value::Cidr(cidr), Value::String(text)] => match Ip::parse(text) {
            Ok(Ip(address)) => (cidr, address),
            Err(_) => return Err(Failure::NoOverload),
        },
        _ => return Err(Failure::NoOverload),
    };
    Ok(Value::Bool(cidr.contains(address)))
}

fn contains_cidr(args: &[Value]) -> Outcome {
    let (cidr, other) = match args {
        [Value::Cidr(cidr), Value::Cidr(other)] => (cidr, *other),
        [Value::Cidr(cidr), Value::String(text)] => {
            let other = Cidr::parse(text).map_err(|reason| {
                Failure::because(format!(
                    "network address parse error during conversion from string: {reason}"
                ))
            })?;
            (cidr, other)
        }
        _ => return Err(Failure::NoOverload),
    };
    Ok(Value::Bool(cidr.bits <= other.bits && cidr.contains(other.address)))
}

fn prefix_length(args: &[Value]) -> Outcome {
    match args {
        [Value::Cidr(cidr)] => Ok(Value::Int(cidr.bits.into())),
        _ => Err(Failure::NoOverload),
    }
}

fn masked(args: &[Value]) -> Outcome {
    match args {
        [Value::Cidr(cidr)] => Ok(Value::Cidr(cidr.masked())),
        _ => Err(Failure::NoOverload),
    }
}
