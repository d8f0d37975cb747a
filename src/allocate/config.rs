//! What drivers are told about the devices of a claim.

use k8s_openapi::api::resource::v1::{DeviceAllocationConfiguration, OpaqueDeviceConfiguration};

use super::{Claim, Release, requests::CheckedWant};

/// The configurations of the classes that were used, each once, and then those of the claim. `chosen` has the want
/// that each request got.
pub(super) fn resolve(
    release: Release,
    claim: &Claim<'_>,
    chosen: &[&CheckedWant<'_>],
) -> Vec<DeviceAllocationConfiguration> {
    let mut config = of_classes(chosen);
    for own in claim.config {
        let requests = own.requests.as_deref().unwrap_or_default();
        let times = match (requests, release) {
            ([], _) => 1,
            // Once for every request that it names.
            (names, Release::V1_36) => chosen.iter().filter(|want| is_named(names, want)).count(),
            (names, Release::V1_37) => usize::from(chosen.iter().any(|want| is_named(names, want))),
        };
        let named = own.requests.clone().filter(|names| !names.is_empty());
        let entry = entry("FromClaim", named, own.opaque.clone());
        config.extend(std::iter::repeat_n(entry, times));
    }
    if release >= Release::V1_37 {
        for entry in &mut config {
            // No names mean all requests.
            entry.requests.take_if(|names| chosen.iter().all(|want| is_named(names, want)));
        }
    }
    config
}

fn of_classes(chosen: &[&CheckedWant<'_>]) -> Vec<DeviceAllocationConfiguration> {
    fn class_of<'w>(want: &'w CheckedWant<'_>) -> Option<&'w str> {
        want.class.metadata.name.as_deref()
    }
    let mut config = Vec::new();
    for (index, want) in chosen.iter().enumerate() {
        let class = class_of(want);
        if chosen[..index].iter().any(|before| class_of(before) == class) {
            continue;
        }
        let users = chosen.iter().filter(|other| class_of(other) == class);
        let requests: Vec<_> = users.map(|want| want.full_name()).collect();
        let own = want.class.spec.iter().flat_map(|spec| spec.config.iter().flatten());
        config.extend(own.map(|own| entry("FromClass", Some(requests.clone()), own.opaque.clone())));
    }
    config
}

fn entry(
    source: &str,
    requests: Option<Vec<String>>,
    opaque: Option<OpaqueDeviceConfiguration>,
) -> DeviceAllocationConfiguration {
    DeviceAllocationConfiguration { opaque, requests, source: source.to_owned() }
}

/// Whether names contain a request, or the subrequest that was chosen for it.
fn is_named(names: &[String], want: &CheckedWant<'_>) -> bool {
    names.iter().any(|name| name == want.request()) || names.contains(&want.full_name())
}
