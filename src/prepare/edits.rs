//! From allocated devices to the CDI spec of their claim: a pure function.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    cdi::{self, ContainerEdits, DeviceNode, Hook, Spec},
    claims::Allocation,
    device::{Access, Device, DriverName, Node, NodeClass, RequestName},
    exhibit::{Exhibit, Prepared},
};

/// The spec of a claim: one CDI device an allocation, in order.
pub(super) fn spec(
    driver: &DriverName,
    prepared: &Prepared,
    devices: &[&Device],
    exhibit: Option<&Exhibit>,
) -> Spec {
    let Prepared { claim, allocations, .. } = prepared;
    let claim = &claim.uid;
    let mut in_request: BTreeMap<&RequestName, usize> = BTreeMap::new();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let edited = allocations.iter().zip(devices).map(|(allocation, device)| {
        let number = in_request.entry(&allocation.request).or_default();
        let again = names.entry(device.name.as_str()).or_default();
        // Several requests of one claim can have shares of one device.
        let name = match *again {
            0 => format!("{claim}-{}", device.name),
            again => format!("{claim}-{}.{again}", device.name),
        };
        let mut container_edits = edits(allocation, device, *number);
        // Whoever gets a request gets its first device.
        if let Some(exhibit) = exhibit.filter(|_| *number == 0) {
            container_edits.mounts.push(metadata(exhibit.mount(prepared, &allocation.request)));
        }
        *number += 1;
        *again += 1;
        cdi::Device { name, container_edits }
    });
    Spec::new(driver, edited.collect())
}

fn edits(allocation: &Allocation, device: &Device, number: usize) -> ContainerEdits {
    let access = &*device.access;
    let variable = format!("CLAIMFS_DEVICE_{}_{number}", variable_part(&allocation.request));
    let mut env = vec![format!("{variable}={}", device.name)];
    if let Some(node) = &device.node {
        env.push(format!("{variable}_PATH={}", node.stable_path().display()));
    }
    let mut configured = access.env.clone();
    configured.extend(allocation.parameters.env.clone());
    env.extend(configured.iter().map(|(name, value)| format!("{name}={value}")));
    ContainerEdits {
        env,
        device_nodes: device.node.as_ref().map(|node| nodes(node, access, allocation)).unwrap_or_default(),
        hooks: access.hooks.iter().map(hook).collect(),
        mounts: access.mounts.iter().map(mount).collect(),
        additional_gids: access.additional_gids.clone(),
    }
}

/// A request's name in the letters of a variable.
fn variable_part(request: &RequestName) -> String {
    request.as_str().to_ascii_uppercase().replace('-', "_")
}

/// The node, and the same node again under its stable path: a link would need a program in the container's
/// root, and a node opens all the same.
fn nodes(node: &Node, access: &Access, allocation: &Allocation) -> Vec<DeviceNode> {
    let parameters = &allocation.parameters;
    let host_path = node.path.display().to_string();
    let at = |path: String| DeviceNode {
        host_path: (path != host_path).then(|| host_path.clone()),
        path,
        kind: String::from(match node.id.class {
            NodeClass::Char => "c",
            NodeClass::Block => "b",
        }),
        major: node.id.major,
        minor: node.id.minor,
        // Without one, runtimes let everybody in the container read and write.
        file_mode: Some(parameters.mode.or(access.mode).unwrap_or(node.mode).bits()),
        permissions: access.permissions.as_ref().map_or_else(|| String::from("rw"), ToString::to_string),
        uid: parameters.uid.or(access.uid),
        gid: parameters.gid.or(access.gid),
    };
    let link = node.link.iter().map(|link| link.display().to_string()).filter(|link| *link != host_path);
    [host_path.clone()].into_iter().chain(link).map(at).collect()
}

/// What a container reads about a request. As a slave it gets what is put over the anchor later.
fn metadata((anchor, inside): (PathBuf, PathBuf)) -> cdi::Mount {
    let options = ["bind", "ro", "nosuid", "nodev", "noexec", "rslave"];
    cdi::Mount {
        host_path: anchor.display().to_string(),
        container_path: inside.display().to_string(),
        options: options.map(String::from).to_vec(),
    }
}

fn mount(mount: &crate::device::Mount) -> cdi::Mount {
    let container_path = mount.container_path.as_ref().unwrap_or(&mount.host_path);
    let default = || ["ro", "nosuid", "nodev"].map(String::from).to_vec();
    let mut options = mount.options.clone().unwrap_or_else(default);
    if !options.iter().any(|option| option == "bind" || option == "rbind") {
        options.insert(0, String::from("bind"));
    }
    cdi::Mount { host_path: mount.host_path.to_string(), container_path: container_path.to_string(), options }
}

fn hook(hook: &crate::device::Hook) -> Hook {
    Hook { hook_name: hook.name, path: hook.path.to_string(), args: hook.args.clone() }
}
