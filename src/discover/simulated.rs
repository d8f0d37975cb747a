//! Devices that exist only by configuration.

use std::sync::Arc;

use super::{Collected, label};
use crate::{
    config::Source,
    device::{Device, Kind},
};

/// `<source>-<index>`, for each index below the count.
pub(super) fn scan(source: &Source, count: u32, found: &mut Collected) {
    for index in 0..count {
        found.add(Device {
            name: label::simulated(&source.name, index),
            source: source.name.clone(),
            kind: Kind::Simulated,
            sharing: source.sharing,
            properties: source.properties.clone(),
            node: None,
            access: Arc::clone(&source.access),
            condition: source.condition(),
            exposure: Arc::clone(&source.exposure),
        });
    }
}
