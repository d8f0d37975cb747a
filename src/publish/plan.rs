//! What has to be written, given what is there.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{Device, DeviceTaint, ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// A slice of ours in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Existing {
    /// Its name, which begins with its number.
    pub name: String,
    /// Itself.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: String,
    /// What it says.
    pub spec: ResourceSliceSpec,
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Delete this one, if it is still as it was seen.
    Delete(Existing),
    /// Put this in the place of that.
    Update {
        /// What is there.
        existing: Existing,
        /// What should be.
        spec: ResourceSliceSpec,
        /// The number of the slice.
        index: usize,
    },
    /// Make this one.
    Create {
        /// The whole object.
        slice: ResourceSlice,
        /// The number of the slice.
        index: usize,
    },
}

/// What the API server made of what it was given, where that differs: an older one drops fields that it does
/// not know. Asking again would change nothing.
#[derive(Debug, Default)]
pub struct Adopted {
    slices: BTreeMap<usize, (Vec<Device>, Vec<Device>)>,
}

/// What came back from a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// What was sent.
    Same,
    /// Something else, for the first time.
    Different,
    /// Something else, as before.
    Known,
}

impl Adopted {
    /// Remembers what came back from a write.
    pub fn remember(&mut self, index: usize, sent: &ResourceSliceSpec, stored: &ResourceSliceSpec) -> Echo {
        let mut sent = devices(sent).to_vec();
        Times::of(devices(stored)).keep(&mut sent);
        let pair = (sent, devices(stored).to_vec());
        if pair.0 == pair.1 {
            self.slices.remove(&index);
            return Echo::Same;
        }
        match self.slices.insert(index, pair.clone()) {
            Some(before) if before == pair => Echo::Known,
            _ => Echo::Different,
        }
    }

    fn is_so(&self, index: usize, desired: &ResourceSliceSpec, present: &ResourceSliceSpec) -> bool {
        let (desired, present) = (devices(desired), devices(present));
        desired == present
            || self.slices.get(&index).is_some_and(|(sent, stored)| sent == desired && stored == present)
    }
}

/// When the taints of devices were added, by device, key, value and effect.
#[derive(Default)]
struct Times<'a>(BTreeMap<(&'a str, &'a str, Option<&'a str>, &'a str), &'a Time>);

impl<'a> Times<'a> {
    fn of(devices: impl IntoIterator<Item = &'a Device>) -> Self {
        let taints = devices
            .into_iter()
            .flat_map(|device| device.taints.iter().flatten().map(|taint| (device.name.as_str(), taint)));
        let times =
            taints.filter_map(|(device, taint)| Some((key(device, taint), taint.time_added.as_ref()?)));
        Self(times.collect())
    }

    /// A taint that stays was added when it was added.
    fn keep(&self, devices: &mut [Device]) {
        for device in devices {
            for taint in device.taints.iter_mut().flatten() {
                taint.time_added = self.0.get(&key(&device.name, taint)).copied().cloned();
            }
        }
    }
}

fn key<'a>(device: &'a str, taint: &'a DeviceTaint) -> (&'a str, &'a str, Option<&'a str>, &'a str) {
    (device, &taint.key, taint.value.as_deref(), &taint.effect)
}

fn devices(spec: &ResourceSliceSpec) -> &[Device] {
    spec.devices.as_deref().unwrap_or_default()
}

/// The changes that make the slices of a pool what they should be, in the order in which they are to be made.
///
/// One changed slice keeps the pool's generation. Where slices come, go or change together, all get the next
/// one: until the last of them is written, nobody takes the pool for complete.
#[must_use]
pub fn plan(desired: &[ResourceSlice], existing: &[Existing], adopted: &Adopted) -> Vec<Write> {
    let times = Times::of(existing.iter().flat_map(|slice| devices(&slice.spec)));
    let mut desired = desired.to_vec();
    for slice in &mut desired {
        times.keep(slice.spec.devices.as_deref_mut().unwrap_or_default());
    }
    let desired = &desired[..];
    let pool = desired.first().map(|slice| slice.spec.pool.name.as_str()).unwrap_or_default();
    let newest = existing.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
    let mut deletes = Vec::new();
    let mut present: BTreeMap<usize, &Existing> = BTreeMap::new();
    for slice in existing {
        let is_current = slice.spec.pool.generation == newest && slice.spec.pool.name == pool;
        match index_of(&slice.name).filter(|&index| is_current && index < desired.len()) {
            Some(index) if !present.contains_key(&index) => drop(present.insert(index, slice)),
            _ => deletes.push(slice.clone()),
        }
    }
    let count = i64::try_from(desired.len()).unwrap_or(i64::MAX);
    let changed: Vec<usize> = (0..desired.len())
        .filter(|index| {
            present.get(index).is_some_and(|slice| {
                slice.spec.pool.resource_slice_count != count
                    || !adopted.is_so(*index, &desired[*index].spec, &slice.spec)
            })
        })
        .collect();
    let is_complete = present.len() == desired.len();
    let generation = if is_complete && changed.len() <= 1 { newest } else { newest + 1 };

    let spec = |index: usize| {
        let mut spec = desired[index].spec.clone();
        spec.pool.generation = generation;
        spec
    };
    let updates = present
        .iter()
        .filter(|(index, slice)| slice.spec.pool.generation != generation || changed.contains(index))
        .map(|(&index, &slice)| Write::Update { existing: slice.clone(), spec: spec(index), index });
    let creates = (0..desired.len()).filter(|index| !present.contains_key(index)).map(|index| {
        Write::Create { slice: ResourceSlice { spec: spec(index), ..desired[index].clone() }, index }
    });
    deletes.into_iter().map(Write::Delete).chain(updates).chain(creates).collect()
}

/// The number in front of a slice's name; none in those that others have made.
fn index_of(name: &str) -> Option<usize> {
    let (number, _) = name.split_once('-')?;
    let is_number = number.len() == 5
        && number.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    is_number.then(|| usize::from_str_radix(number, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        config::Config,
        discover::{self, Roots},
        publish::slices,
    };

    fn desired(count: u32, model: &str) -> Vec<ResourceSlice> {
        let config = format!(
            "sources: [{{name: gpu, simulated: {{count: {count}}}, attributes: {{model: {{string: {model}}}}}}}]"
        );
        let config = Config::parse(Path::new("test"), &config).unwrap();
        let found = discover::scan(&config, &Roots::default());
        slices(&config.driver, &"n1".parse().unwrap(), &found.devices)
    }

    /// A cluster that does as it is told.
    #[derive(Default)]
    struct Cluster {
        slices: Vec<Existing>,
        serial: usize,
        /// Drops the attributes, as a server that does not know them.
        drops: bool,
        adopted: Adopted,
    }

    impl Cluster {
        /// Makes what is desired so; answers with the number of deletes, updates and creates.
        fn sync(&mut self, desired: &[ResourceSlice]) -> (usize, usize, usize) {
            let mut counts = (0, 0, 0);
            for write in plan(desired, &self.slices, &self.adopted) {
                self.serial += 1;
                match write {
                    Write::Delete(gone) => {
                        counts.0 += 1;
                        self.slices.retain(|slice| slice.name != gone.name);
                    }
                    Write::Update { existing, spec, index } => {
                        counts.1 += 1;
                        self.slices.retain(|slice| slice.name != existing.name);
                        self.store(existing.name, &spec, index);
                    }
                    Write::Create { slice, index } => {
                        counts.2 += 1;
                        let name = format!("{}{}", slice.metadata.generate_name.unwrap(), self.serial);
                        self.store(name, &slice.spec, index);
                    }
                }
            }
            counts
        }

        fn store(&mut self, name: String, sent: &ResourceSliceSpec, index: usize) {
            let mut spec = sent.clone();
            if self.drops {
                spec.devices.iter_mut().flatten().for_each(|device| device.attributes = None);
            }
            self.adopted.remember(index, sent, &spec);
            let resource_version = self.serial.to_string();
            self.slices.push(Existing { name, uid: self.serial.to_string(), resource_version, spec });
        }

        fn generations(&self) -> Vec<i64> {
            self.slices.iter().map(|slice| slice.spec.pool.generation).collect()
        }
    }

    #[test]
    fn a_new_pool_has_generation_one_and_its_count() {
        let mut cluster = Cluster::default();
        assert_eq!(cluster.sync(&desired(300, "a")), (0, 0, 3));
        assert_eq!(cluster.generations(), [1, 1, 1]);
        assert!(cluster.slices.iter().all(|slice| slice.spec.pool.resource_slice_count == 3));
    }

    #[test]
    fn what_is_already_so_is_not_written() {
        let mut cluster = Cluster::default();
        cluster.sync(&desired(300, "a"));
        assert_eq!(cluster.sync(&desired(300, "a")), (0, 0, 0));
    }

    #[test]
    fn one_changed_slice_keeps_the_generation_and_several_do_not() {
        let mut cluster = Cluster::default();
        cluster.sync(&desired(200, "a"));
        let mut one = desired(200, "a");
        one[1].spec.devices.as_mut().unwrap().pop();
        assert_eq!(cluster.sync(&one), (0, 1, 0));
        assert_eq!(cluster.generations(), [1, 1]);
        assert_eq!(cluster.sync(&desired(200, "b")), (0, 2, 0));
        assert_eq!(cluster.generations(), [2, 2]);
    }

    #[test]
    fn slices_that_come_and_go_make_a_new_generation() {
        let mut cluster = Cluster::default();
        cluster.sync(&desired(100, "a"));
        assert_eq!(cluster.sync(&desired(200, "a")), (0, 1, 1));
        assert_eq!(cluster.generations(), [2, 2]);
        assert_eq!(cluster.sync(&desired(100, "a")), (1, 1, 0));
        assert_eq!(cluster.sync(&desired(100, "a")), (0, 0, 0));
    }

    #[test]
    fn what_others_have_changed_is_put_right() {
        let mut cluster = Cluster::default();
        cluster.sync(&desired(200, "a"));
        // Wiped by the kubelet, in part or in whole.
        cluster.slices.remove(0);
        assert_eq!(cluster.sync(&desired(200, "a")), (0, 1, 1));
        cluster.slices.clear();
        assert_eq!(cluster.sync(&desired(200, "a")), (0, 0, 2));
        // Doubled, of another pool, without a number.
        let mut twin = cluster.slices[0].clone();
        twin.name += "twin";
        let mut other = twin.clone();
        other.spec.pool.name = String::from("other");
        other.name = String::from("00000-other");
        let foreign = Existing { name: String::from("foreign"), ..twin.clone() };
        cluster.slices.extend([twin, other, foreign]);
        assert_eq!(cluster.sync(&desired(200, "a")), (3, 0, 0));
        assert_eq!(cluster.sync(&desired(200, "a")), (0, 0, 0));
    }

    #[test]
    fn fields_that_the_server_drops_make_no_loop() {
        let mut cluster = Cluster { drops: true, ..Cluster::default() };
        cluster.sync(&desired(100, "a"));
        assert_eq!(cluster.sync(&desired(100, "a")), (0, 0, 0));
        assert_eq!(cluster.sync(&desired(100, "b")), (0, 1, 0));
        assert_eq!(cluster.sync(&desired(100, "b")), (0, 0, 0));
        let (sent, stored) = (&desired(1, "a")[0].spec, &desired(1, "b")[0].spec);
        let mut adopted = Adopted::default();
        let echoes = [stored, stored, sent].map(|stored| adopted.remember(0, sent, stored));
        assert_eq!(echoes, [Echo::Different, Echo::Known, Echo::Same]);
    }
}
