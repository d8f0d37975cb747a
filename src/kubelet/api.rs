//! Messages, clients and servers generated from `proto/`.
//!
//! Different interfaces share proto packages (`v1`), so each has a module of its own.

#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic)]

/// How the kubelet learns of a plugin.
pub mod registration {
    tonic::include_proto!("registration_v1/pluginregistration");
}

/// What the kubelet asks of a DRA driver.
pub mod dra {
    pub mod v1 {
        tonic::include_proto!("dra_v1/k8s.io.kubelet.pkg.apis.dra.v1");
    }
    pub mod v1beta1 {
        tonic::include_proto!("dra_v1beta1/k8s.io.kubelet.pkg.apis.dra.v1beta1");
    }
}

/// The health of devices, as the kubelet watches it.
pub mod health {
    pub mod v1 {
        tonic::include_proto!("dra_health_v1/v1");
    }
    pub mod v1alpha1 {
        tonic::include_proto!("dra_health_v1alpha1/v1alpha1");
    }
}
