//! CDI: how a device reaches a container.
//!
//! [`Spec`] is the document that container runtimes read; [`Folder`] is where they look for it. A spec
//! states the lowest version that has what it uses, because runtimes refuse versions that they do not know
//! and say only that a device is unresolvable. Nothing is written that is already so.

mod folder;
mod spec;

pub use self::{
    folder::{Error, Folder, Outcome},
    spec::{ContainerEdits, Device, DeviceId, DeviceNode, Hook, Mount, Spec},
};
