//! API servers that speak only an older version of `resource.k8s.io`.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use claimfs::kubelet::api::dra::v1::Claim;
use support::{
    cluster::{Cluster, Part},
    setup::Setup,
};

/// Publishes and prepares where `version` is all that the API server knows; `request` is what a request looks
/// like there.
async fn serves(version: &'static str, request: &str) {
    let setup = Setup::on_own(Cluster::start(version, Part::OlderControlPlane(version)), "older").await;
    let plane = setup.plane();
    assert_eq!(plane.kubectl(&["api-versions"]).matches("resource.k8s.io/").count(), 1);
    let slices = setup.slices();
    assert_eq!(slices[0]["apiVersion"], format!("resource.k8s.io/{version}"));
    assert_eq!(slices[0]["spec"]["devices"].as_array().unwrap().len(), 41);
    let claim = format!(
        "{{apiVersion: resource.k8s.io/{version}, kind: ResourceClaim, metadata: {{name: a, namespace: default}}, \
         spec: {{devices: {{requests: [{request}]}}}}"
    );
    plane.apply("apply", &format!("{claim}}}"));
    plane.apply_status(&format!(
        "{claim}, status: {{allocation: {{devices: {{results: [\
         {{request: r, driver: claimfs.dev, pool: older, device: gpu-0}}]}}}}}}}}"
    ));
    let uid = plane.kubectl(&["get", "resourceclaim", "a", "-o", "jsonpath={.metadata.uid}"]);
    let claim = Claim { namespace: "default".into(), name: "a".into(), uid };
    assert_eq!(setup.prepare(&claim).await.unwrap(), [format!("claimfs.dev/device={}-gpu-0", claim.uid)]);
    setup.unprepare(&claim).await.unwrap();
    // What others remove comes back in the same words.
    plane.kubectl(&["delete", "resourceslices", "--all"]);
    setup.slices_become(|slices| slices.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c47_v1beta1_alone() {
    serves("v1beta1", "{name: r, deviceClassName: any}").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn c47_v1beta2_alone() {
    serves("v1beta2", "{name: r, exactly: {deviceClassName: any}}").await;
}
