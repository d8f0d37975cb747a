//! Manifests, and an allocation with what they say.

use std::{cell::Cell, path::Path};

use claimfs::{
    allocate::{
        Allocated, Claim, Cluster, Expressions, Features, Interruption, Release, Slice, Slices, allocate,
    },
    objects::Objects,
};
use k8s_openapi::api::core::v1::Node;

/// A search may take long; each step of it must not.
const STEPS: u32 = 500;

/// Manifests, and the allocation of all their claims on the first node.
pub fn objects(text: &str) {
    let mut objects = Objects::default();
    if let Err(error) = objects.parse(Path::new("objects.yaml"), text) {
        assert!(!error.to_string().is_empty());
        return;
    }
    let slices: Result<Slices<'_>, _> = objects.slices.iter().map(Slice::try_from).collect();
    let claims: Result<Vec<Claim<'_>>, _> = objects.claims.iter().map(Claim::try_from).collect();
    let (Ok(slices), Ok(claims)) = (slices, claims) else { return };
    let node = objects.nodes.first().cloned().unwrap_or_else(|| {
        let mut node = Node::default();
        node.metadata.name = Some(String::from("node-1"));
        node
    });
    for release in [Release::V1_36, Release::V1_37] {
        let features = Features { list_type_attributes: true, ..Features::default_of(release) };
        let steps = Cell::new(0);
        let cluster = Cluster {
            release,
            channel: features.channel(),
            features,
            allocated: &Allocated::default(),
            classes: &objects.classes,
            slices: &slices,
            cel: &Expressions::new(release, &features),
            interruption: &|| {
                steps.set(steps.get() + 1);
                (steps.get() > STEPS).then_some(Interruption::Deadline)
            },
            new_share_id: &|| String::from("share"),
        };
        if let Err(error) = allocate(&cluster, &node, &claims) {
            assert!(!error.to_string().is_empty());
        }
    }
}
