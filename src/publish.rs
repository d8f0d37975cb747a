//! The inventory as `ResourceSlice` objects in the cluster.
//!
//! [`slices`] says what should be there, [`plan`] what has to be written so that it is: both are pure.
//! [`Publisher::run`] does it, whenever the inventory or somebody else changes something, and writes nothing
//! that is already so.

mod plan;
mod slices;
mod wire;
mod writer;

pub use self::{
    plan::{Adopted, Existing, Write, plan},
    slices::{named_slices, slices},
    writer::{Error, Published, Publisher, Settings},
};
