//! Messages, client and server generated from `proto/control_v1.proto`.

#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic)]

tonic::include_proto!("control_v1/claimfs.control.v1");
