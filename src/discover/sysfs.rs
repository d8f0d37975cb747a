//! What sysfs knows about a device node.
//!
//! `/sys/dev/char/188:0` leads to the device; its parents are the buses that it hangs on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::device::{AttributeName, AttributeValue, Node, Text, TextError};

/// What is known, or why it cannot be said in an attribute.
type Fact = Result<AttributeValue, TextError>;

/// Everything that is known, the most useful first: a device has room for 32.
pub(super) fn facts(sys: &Path, node: &Node) -> Vec<(AttributeName, Fact)> {
    let mut facts = Facts::default();
    facts.text("path", node.path.to_str().map(str::to_owned));
    let id = node.id;
    let entry = sys.join("dev").join(id.class.as_str()).join(format!("{}:{}", id.major, id.minor));
    // Not every node has a device behind it, and not every machine has sysfs.
    let Ok(device) = entry.canonicalize() else {
        return facts.0;
    };
    let devices = sys.canonicalize().unwrap_or_else(|_| sys.to_owned()).join("devices");
    let chain: Vec<&Path> = device.ancestors().take_while(|path| path.starts_with(&devices)).collect();

    facts.text("subsystem", link_name(&device, "subsystem"));
    facts.text("driver", chain.iter().find_map(|path| link_name(path, "driver")));
    let numa = chain.iter().find_map(|path| content(path, "numa_node")?.parse().ok());
    // -1 stands for none, and would match every other device that has none.
    facts.number("resource.kubernetes.io/numaNode", numa.filter(|&node: &i64| node >= 0));
    if let Some(pci) = chain.iter().find(|path| link_name(path, "subsystem").as_deref() == Some("pci")) {
        facts.text("resource.kubernetes.io/pciBusID", file_name(pci));
        facts.text("resource.kubernetes.io/pcieRoot", pcie_root(&devices, pci));
    }
    if let Some(usb) = chain.iter().find(|path| path.join("idVendor").is_file()) {
        facts.text("usbVendor", content(usb, "idVendor"));
        facts.text("usbProduct", content(usb, "idProduct"));
        facts.text("usbSerial", content(usb, "serial"));
        facts.text("usbManufacturerName", content(usb, "manufacturer"));
        facts.text("usbProductName", content(usb, "product"));
    }
    facts.0
}

#[derive(Default)]
struct Facts(Vec<(AttributeName, Fact)>);

impl Facts {
    fn text(&mut self, name: &'static str, text: Option<String>) {
        let text = text.filter(|text| !text.is_empty());
        self.push(name, text.map(|text| Text::try_from(text).map(AttributeValue::String)));
    }

    fn number(&mut self, name: &'static str, number: Option<i64>) {
        self.push(name, number.map(|number| Ok(AttributeValue::Int(number))));
    }

    fn push(&mut self, name: &'static str, fact: Option<Fact>) {
        if let Some(fact) = fact {
            self.0.push((AttributeName::literal(name), fact));
        }
    }
}

/// The root complex that a PCI device hangs on, e.g. `pci0000:00`: the first folder of its path.
fn pcie_root(devices: &Path, pci: &Path) -> Option<String> {
    let root = pci.strip_prefix(devices).ok()?.components().next()?.as_os_str().to_str()?;
    root.starts_with("pci").then(|| root.to_owned())
}

fn link_name(folder: &Path, link: &str) -> Option<String> {
    file_name(&fs::read_link(folder.join(link)).ok()?)
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The text of a small file, without what is not a text.
fn content(folder: &Path, file: &str) -> Option<String> {
    let path: PathBuf = folder.join(file);
    Some(fs::read_to_string(path).ok()?.trim().chars().filter(|c| !c.is_control()).collect())
}
