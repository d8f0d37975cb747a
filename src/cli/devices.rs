//! `claimfs devices`: what this machine has, as it would be published.

use std::{collections::BTreeMap, path::PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Error, node_name, output};
use crate::{
    config::{self, Config},
    device::{
        AttributeName, AttributeValue, Device, DeviceName, NetworkData, NodeName, Quantity, Sharing,
        SourceName, Taint,
    },
    discover::{self, Found, Roots},
    inventory::Inventory,
    publish,
};

/// Show what this machine has, as it would be published
///
/// Reads the configuration, looks at the machine and prints the devices. Nothing is changed, and no
/// cluster is needed.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 shown, 1 not possible, 2 wrong usage or configuration.")]
pub(super) struct Devices {
    /// The configuration
    #[arg(long, value_name = "FILE", env = "CLAIMFS_CONFIG", default_value = config::DEFAULT_PATH)]
    config: PathBuf,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,

    /// Print again whenever a device appears, vanishes or changes
    #[arg(short, long)]
    watch: bool,

    /// The node, for the slices; the host name when not given
    #[arg(long, value_name = "NAME", env = "CLAIMFS_NODE_NAME")]
    node_name: Option<NodeName>,

    /// Where the host's /dev is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_DEV", default_value = "/dev")]
    dev: PathBuf,

    /// Where the host's /sys is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_SYSFS", default_value = "/sys")]
    sysfs: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For people with a wide screen: node numbers and every attribute
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// ResourceSlice objects, for kubectl create -f -
    Slices,
}

impl Devices {
    pub(super) fn run(self) -> Result<(), Error> {
        let config = Config::load(&self.config)?;
        let roots = Roots { dev: self.dev.clone(), sys: self.sysfs.clone() };
        discover::check(&config, &roots)?;
        if self.watch {
            self.follow(&config, roots)
        } else {
            self.show(&config, &discover::scan(&config, &roots)).map(|_reader| ())
        }
    }

    fn show(&self, config: &Config, found: &Found) -> Result<output::Reader, Error> {
        for notice in &found.notices {
            output::complain(format_args!("warning: {notice}"));
        }
        output::print(&match self.output {
            Format::Table => table(found),
            Format::Wide => wide(found),
            Format::Json => output::json(&View::from(found)) + "\n",
            Format::Yaml => format!("---\n{}", output::yaml(&View::from(found))),
            Format::Slices => {
                let slices =
                    publish::slices(&config.driver, &node_name(self.node_name.as_ref())?, &found.devices);
                slices.iter().map(|slice| format!("---\n{}", output::yaml(slice))).collect()
            }
        })
    }

    /// Shows every snapshot until a signal ends it.
    fn follow(&self, config: &Config, roots: Roots) -> Result<(), Error> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
        runtime.block_on(async {
            let inventory = Inventory::build(config.clone(), roots)?;
            let mut snapshots = inventory.subscribe();
            let shutdown = CancellationToken::new();
            let mut following = tokio::spawn(inventory.run(shutdown.clone()));
            let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Start)?;
            let mut terminate = signal(SignalKind::terminate()).map_err(Error::Start)?;
            loop {
                let found = snapshots.borrow_and_update().clone();
                if self.show(config, &found)? == output::Reader::Gone {
                    break;
                }
                tokio::select! {
                    Ok(()) = snapshots.changed() => {}
                    ended = &mut following => return Ok(ended.map_err(crate::inventory::Error::from)??),
                    _ = interrupt.recv() => break,
                    _ = terminate.recv() => break,
                }
            }
            shutdown.cancel();
            Ok(following.await.map_err(crate::inventory::Error::from)??)
        })
    }
}

fn table(found: &Found) -> String {
    let rows = found.devices.values().map(|device| {
        // These have columns of their own; names with a domain are for programs.
        let shown = |name: &AttributeName| {
            !name.as_str().contains('/') && !["path", "source"].contains(&name.as_str())
        };
        vec![
            device.name.to_string(),
            device.source.to_string(),
            device.kind.as_str().to_owned(),
            device.sharing.claims().to_string(),
            health(device),
            path(device),
            properties(device, shown),
        ]
    });
    summed(found, output::table(&["NAME", "SOURCE", "KIND", "CLAIMS", "HEALTH", "PATH", "ATTRIBUTES"], rows))
}

fn wide(found: &Found) -> String {
    let rows = found.devices.values().map(|device| {
        let node = device.node.as_ref().map_or_else(
            || String::from("-"),
            |node| {
                format!(
                    "{} {} {}:{}",
                    node.path.display(),
                    node.id.class.as_str(),
                    node.id.major,
                    node.id.minor
                )
            },
        );
        vec![
            device.name.to_string(),
            device.source.to_string(),
            device.kind.as_str().to_owned(),
            device.sharing.claims().to_string(),
            health(device),
            path(device),
            node,
            properties(device, |_| true),
        ]
    });
    summed(
        found,
        output::table(&["NAME", "SOURCE", "KIND", "CLAIMS", "HEALTH", "PATH", "NODE", "ATTRIBUTES"], rows),
    )
}

fn summed(found: &Found, table: String) -> String {
    match found.devices.len() {
        0 => String::from("no devices: nothing that the configuration looks for is here\n"),
        1 => table + "1 device. As a ResourceSlice: claimfs devices -o slices\n",
        count => format!("{table}{count} devices. As ResourceSlices: claimfs devices -o slices\n"),
    }
}

/// With what keeps claims away.
fn health(device: &Device) -> String {
    let condition = &device.condition;
    let taints = condition.taints.iter().map(ToString::to_string);
    let words: Vec<String> = [condition.health.as_str().to_owned()].into_iter().chain(taints).collect();
    words.join(" ")
}

fn path(device: &Device) -> String {
    device.node.as_ref().map_or_else(|| String::from("-"), |node| node.stable_path().display().to_string())
}

fn properties(device: &Device, shown: impl Fn(&AttributeName) -> bool) -> String {
    let attributes = device.properties.attributes().iter().filter(|(name, _)| shown(name));
    let capacity = device.properties.capacity().iter().filter(|(name, _)| **name != Sharing::capacity_name());
    let words: Vec<String> = attributes
        .map(|(name, value)| format!("{name}={value}"))
        .chain(capacity.map(|(name, value)| format!("{name}={value}")))
        .collect();
    words.join(" ")
}

/// The devices as programs get them.
#[derive(Serialize)]
struct View<'a> {
    devices: Vec<DeviceView<'a>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceView<'a> {
    name: &'a DeviceName,
    source: &'a SourceName,
    kind: &'static str,
    /// How many claims can hold it at the same time.
    claims: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeView>,
    attributes: &'a BTreeMap<AttributeName, AttributeValue>,
    capacity: &'a BTreeMap<AttributeName, Quantity>,
    health: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    taints: &'a [Taint],
    #[serde(skip_serializing_if = "Option::is_none")]
    network_data: Option<&'a NetworkData>,
}

#[derive(Serialize)]
struct NodeView {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    class: &'static str,
    major: u32,
    minor: u32,
}

impl<'a> From<&'a Found> for View<'a> {
    fn from(found: &'a Found) -> Self {
        Self {
            devices: found.devices.values().map(DeviceView::from).collect(),
            warnings: found.notices.iter().map(ToString::to_string).collect(),
        }
    }
}

impl<'a> From<&'a Device> for DeviceView<'a> {
    fn from(device: &'a Device) -> Self {
        Self {
            name: &device.name,
            source: &device.source,
            kind: device.kind.as_str(),
            claims: device.sharing.claims(),
            node: device.node.as_ref().map(|node| NodeView {
                path: node.path.display().to_string(),
                link: node.link.as_ref().map(|link| link.display().to_string()),
                class: node.id.class.as_str(),
                major: node.id.major,
                minor: node.id.minor,
            }),
            attributes: device.properties.attributes(),
            capacity: device.properties.capacity(),
            health: device.condition.health.as_str(),
            message: device.condition.health.message(),
            taints: &device.condition.taints,
            network_data: device.condition.network.as_ref(),
        }
    }
}
