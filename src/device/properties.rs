//! Attributes and capacity together.

use std::collections::BTreeMap;

use super::{AttributeName, AttributeValue, Quantity};

/// A property that a device cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertiesError {
    /// There is no room.
    #[error("{name} would be number {}: a device has at most {} attributes and capacities together", Properties::MAX + 1, Properties::MAX)]
    Full {
        /// The one that did not fit.
        name: AttributeName,
    },
}

/// The attributes and capacities of a device: at most 32 together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    attributes: BTreeMap<AttributeName, AttributeValue>,
    capacity: BTreeMap<AttributeName, Quantity>,
}

impl Properties {
    /// `ResourceSliceMaxAttributesAndCapacitiesPerDevice` of the API.
    pub const MAX: usize = 32;

    /// Sets an attribute.
    pub fn set_attribute(
        &mut self,
        name: AttributeName,
        value: AttributeValue,
    ) -> Result<(), PropertiesError> {
        if !self.attributes.contains_key(&name) && self.is_full() {
            return Err(PropertiesError::Full { name });
        }
        self.attributes.insert(name, value);
        Ok(())
    }

    /// Sets a capacity.
    pub fn set_capacity(&mut self, name: AttributeName, value: Quantity) -> Result<(), PropertiesError> {
        if !self.capacity.contains_key(&name) && self.is_full() {
            return Err(PropertiesError::Full { name });
        }
        self.capacity.insert(name, value);
        Ok(())
    }

    /// All attributes, by name.
    #[must_use]
    pub fn attributes(&self) -> &BTreeMap<AttributeName, AttributeValue> {
        &self.attributes
    }

    /// All capacities, by name.
    #[must_use]
    pub fn capacity(&self) -> &BTreeMap<AttributeName, Quantity> {
        &self.capacity
    }

    fn is_full(&self) -> bool {
        self.attributes.len() + self.capacity.len() >= Self::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_33rd_property_is_refused_and_named() {
        let mut properties = Properties::default();
        let name = |index: usize| format!("p{index}").parse::<AttributeName>().unwrap();
        for index in 0..Properties::MAX {
            let value = Quantity::whole(1);
            match index % 2 {
                0 => properties.set_attribute(name(index), AttributeValue::Bool(true)).unwrap(),
                _ => properties.set_capacity(name(index), value).unwrap(),
            }
        }
        let refused = properties.set_attribute(name(32), AttributeValue::Bool(true)).unwrap_err();
        assert!(refused.to_string().starts_with("p32 would be number 33"));
        properties.set_attribute(name(0), AttributeValue::Bool(false)).unwrap();
        assert_eq!(properties.attributes()[&name(0)], AttributeValue::Bool(false));
    }
}
