//! Which version of `resource.k8s.io` a cluster speaks: asked once, by whoever reads or writes its objects.

use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
};

/// A version of `resource.k8s.io` that we can speak. What is read of a claim is the same in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    /// Kubernetes 1.34 and newer.
    V1,
    /// Kubernetes 1.33.
    V1beta2,
    /// Kubernetes 1.32.
    V1beta1,
}

impl ApiVersion {
    /// All of them, the preferred first.
    pub const ALL: [Self; 3] = [Self::V1, Self::V1beta2, Self::V1beta1];

    /// As in `apiVersion`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta2 => "v1beta2",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// The resource of a kind in this version.
    #[must_use]
    pub fn resource(self, kind: &str, plural: &str) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("resource.k8s.io", self.as_str(), kind),
            plural,
        )
    }
}

/// Why no version could be agreed on.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The API server did not answer.
    #[error("cannot ask the API server for its versions: {0}")]
    Api(#[from] kube::Error),
    /// It has none of ours.
    #[error(
        "the API server has no resource.k8s.io in v1, v1beta2 or v1beta1: Dynamic Resource Allocation is off there"
    )]
    None,
}

impl ApiVersion {
    /// The best version that a server has.
    pub async fn discover(client: &Client) -> Result<Self, VersionError> {
        let groups = client.list_api_groups().await?.groups;
        let group = groups.iter().find(|group| group.name == "resource.k8s.io");
        let served = group.map(|group| group.versions.as_slice()).unwrap_or_default();
        let is_served = |version: &Self| served.iter().any(|one| one.version == version.as_str());
        Self::ALL.into_iter().find(is_served).ok_or(VersionError::None)
    }
}
