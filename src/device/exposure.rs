//! Which attributes of a device its containers see.

use std::collections::BTreeSet;

use super::AttributeName;

/// What the configuration says about the metadata of a source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exposure {
    /// Only these; without it all.
    pub only: Option<BTreeSet<AttributeName>>,
    /// Not these.
    pub without: BTreeSet<AttributeName>,
}

impl Exposure {
    /// Whether an attribute of this name is shown.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        let named = |names: &BTreeSet<AttributeName>| names.iter().any(|one| one.as_str() == name);
        self.only.as_ref().is_none_or(named) && !named(&self.without)
    }
}
