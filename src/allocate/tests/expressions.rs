//! As much of CEL as the recorded rows need.

use crate::{
    allocate::{Attribute, Cel, CelError, DeviceView},
    device::Amount,
};

/// Understands comparisons of the driver, attributes and capacity with literals, joined by `&&` or `||`.
pub(super) struct FewExpressions {
    /// Whether attributes can be lists.
    pub(super) knows_lists: bool,
}

impl Cel for FewExpressions {
    fn matches(&self, expression: &str, device: &DeviceView<'_>) -> Result<bool, CelError> {
        if let Some((name, _)) = device.attributes.iter().find(|(_, value)| !self.knows(value)) {
            return Err(CelError::Runtime(format!("attribute {name}: unsupported attribute value")));
        }
        if let Some((left, right)) = expression.split_once(" && ") {
            return Ok(self.matches(left, device)? && self.matches(right, device)?);
        }
        if let Some((left, right)) = expression.split_once(" || ") {
            return Ok(self.matches(left, device)? || self.matches(right, device)?);
        }
        if let Some(driver) = expression.strip_prefix("device.driver == ") {
            return Ok(driver.trim_matches('"') == device.driver);
        }
        if let Some(value) = expression.strip_prefix("device.allowMultipleAllocations == ") {
            return Ok(value.parse() == Ok(device.allow_multiple_allocations));
        }
        if let Some(rest) = expression.strip_prefix("device.capacity[\"driver-a\"]") {
            let (name, rest) = rest.split_once(".compareTo(quantity(\"").expect(expression);
            let least: Amount = rest.trim_end_matches("\")) >= 0").parse().expect(expression);
            let name = name.trim_start_matches("[\"").trim_end_matches("\"]").trim_start_matches('.');
            let capacity = device.capacity.get(name).ok_or_else(|| no_such_key(name))?;
            return Ok(capacity.value >= least);
        }
        if let Some(rest) = expression.strip_prefix("device.attributes[\"driver-a\"].") {
            let (name, wanted) = rest.split_once(" == ").unwrap_or((rest, "true"));
            return Ok(match attribute_of("driver-a", name, device)? {
                Attribute::Bool(value) => value.to_string() == wanted,
                Attribute::String(text) => text == wanted.trim_matches('"'),
                other => panic!("{expression}: {other:?}"),
            });
        }
        assert_eq!(expression, "noSuchVar");
        Err(CelError::Compile(
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'noSuchVar' (in container '')\n | noSuchVar\n | ^"
                .to_owned(),
        ))
    }

    fn attribute(&self, expression: &str, device: &DeviceView<'_>) -> Result<Attribute<'static>, CelError> {
        if let Some(text) = expression.strip_prefix('"') {
            return Ok(Attribute::String(text.trim_matches('"').to_owned().into()));
        }
        let names = expression.strip_prefix("device.attributes[\"").expect(expression);
        let (domain, name) = names.trim_end_matches("\"]").split_once("\"][\"").expect(expression);
        match attribute_of(domain, name, device)? {
            Attribute::String(text) => Ok(Attribute::String(text.clone().into_owned().into())),
            Attribute::Int(number) => Ok(Attribute::Int(*number)),
            other => panic!("{expression}: {other:?}"),
        }
    }
}

impl FewExpressions {
    fn knows(&self, value: &Attribute<'_>) -> bool {
        match value {
            Attribute::Unknown => false,
            Attribute::Bools(_) | Attribute::Ints(_) | Attribute::Strings(_) | Attribute::Versions(_) => {
                self.knows_lists
            }
            _ => true,
        }
    }
}

fn attribute_of<'a>(
    domain: &str,
    name: &str,
    device: &DeviceView<'a>,
) -> Result<&'a Attribute<'a>, CelError> {
    let bare = device.attributes.get(name).filter(|_| domain == device.driver);
    bare.or_else(|| device.attributes.get(format!("{domain}/{name}").as_str()))
        .ok_or_else(|| no_such_key(name))
}

fn no_such_key(name: &str) -> CelError {
    CelError::Runtime(format!("no such key: {name}"))
}
