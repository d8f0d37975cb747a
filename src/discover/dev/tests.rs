//! A `/dev` and a `/sys` made of links to nodes that every machine has, so that no root is needed.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::discover::{self, Found};

struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir_all(folder.path().join("dev")).unwrap();
        fs::create_dir_all(folder.path().join("sys")).unwrap();
        Self { folder }
    }

    /// A path in the machine, with the folders above it.
    fn path(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) -> &Self {
        let path = self.path(path);
        // A node of the real machine: an absolute target would be looked for in this one.
        let target = match target.as_ref().strip_prefix("/dev") {
            Ok(_) => outside(&path, target.as_ref()),
            Err(_) => target.as_ref().to_owned(),
        };
        symlink(target, path).unwrap();
        self
    }

    fn file(&self, path: &str, content: &str) -> &Self {
        fs::write(self.path(path), content).unwrap();
        self
    }

    fn roots(&self) -> Roots {
        Roots { dev: self.folder.path().join("dev"), sys: self.folder.path().join("sys") }
    }

    fn scan(&self, config: &str) -> Found {
        discover::scan(&parse(config), &self.roots())
    }

    fn folders(&self, config: &str) -> Vec<String> {
        let dev = self.roots().dev;
        let below = |path: PathBuf| Some(path.strip_prefix(&dev).ok()?.display().to_string());
        discover::folders(&parse(config), &self.roots()).into_iter().filter_map(below).collect()
    }
}

/// A relative path from a link to an absolute one.
fn outside(link: &Path, absolute: &Path) -> PathBuf {
    let up = link.parent().unwrap().canonicalize().unwrap().components().count() - 1;
    Path::new(&"../".repeat(up)).join(absolute.strip_prefix("/").unwrap())
}

fn parse(config: &str) -> Config {
    Config::parse(Path::new("test"), config).unwrap()
}

fn names(found: &Found) -> Vec<&str> {
    found.devices.keys().map(crate::device::DeviceName::as_str).collect()
}

fn attributes(found: &Found, device: &str) -> Vec<String> {
    let device = &found.devices[&device.parse().unwrap()];
    device.properties.attributes().iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn nodes_are_named_by_the_link_that_found_them() {
    let machine = Machine::new();
    machine
        .link("dev/serial/by-id/usb-a", "/dev/null")
        .link("dev/ttya", "/dev/null")
        .link("dev/ttyb", "/dev/zero");
    let found = machine.scan("sources: [{name: serial, dev: {paths: ['/dev/serial/by-id/*', '/dev/tty*']}}]");
    assert_eq!(names(&found), ["ttyb", "usb-a-12786f"]);
    let node = found.devices[&"usb-a-12786f".parse().unwrap()].node.clone().unwrap();
    assert_eq!(node.link.as_deref(), Some(Path::new("/dev/serial/by-id/usb-a")));
    assert_eq!(node.path, Path::new("/dev/null"));
    assert_eq!((node.id.class, node.id.major, node.id.minor), (NodeClass::Char, 1, 3));
    assert!(found.notices.is_empty(), "{:?}", found.notices);
}

#[test]
fn a_node_belongs_to_the_first_source_that_finds_it() {
    let machine = Machine::new();
    machine.link("dev/one", "/dev/null").link("dev/two", "/dev/null");
    let found =
        machine.scan("sources: [{name: a, dev: {paths: [/dev/two]}}, {name: b, dev: {paths: ['/dev/*']}}]");
    assert_eq!(names(&found), ["two"]);
    assert_eq!(
        found.notices.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "source b: /dev/one is device two of source a already; its first source keeps it",
            "source b: /dev/two is device two of source a already; its first source keeps it",
        ]
    );
}

#[test]
fn what_is_no_device_node_is_passed_over() {
    let machine = Machine::new();
    machine.file("dev/file", "").file("dev/folder/file", "").link("dev/dangling", "nowhere");
    machine.link("dev/loop-a", "loop-b").link("dev/loop-b", "loop-a");
    let found = machine.scan("sources: [{name: a, dev: {paths: ['/dev/*', '/dev/*/*', '/dev/file/below']}}]");
    assert_eq!(names(&found), [""; 0]);
    // A link that leads to itself is worth a word; what is no device is not.
    assert_eq!(found.notices.len(), 2, "{:?}", found.notices);
}

#[test]
fn attributes_come_from_the_buses_above_the_device() {
    let machine = Machine::new();
    let usb = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-2";
    machine
        .link("dev/serial/by-id/x", "/dev/null")
        .link("sys/dev/char/1:3", format!("../../../{usb}/1-2:1.0/tty/ttyUSB0"))
        .link(&format!("{usb}/1-2:1.0/tty/ttyUSB0/subsystem"), "../../class/tty")
        .link(&format!("{usb}/1-2:1.0/driver"), "../../drivers/ftdi_sio")
        .link(&format!("{usb}/subsystem"), "../../bus/usb")
        .file(&format!("{usb}/idVendor"), "0403\n")
        .file(&format!("{usb}/idProduct"), "6001\n")
        .file(&format!("{usb}/serial"), "SN42\n")
        .file(&format!("{usb}/product"), &"long ".repeat(20))
        .file("sys/devices/pci0000:00/0000:00:14.0/numa_node", "1\n")
        .link("sys/devices/pci0000:00/0000:00:14.0/subsystem", "../../bus/pci")
        .link("sys/devices/pci0000:00/0000:00:14.0/driver", "../../drivers/xhci_hcd");
    let found = machine.scan(
        "sources: [{name: a, dev: {paths: ['/dev/serial/by-id/*']}, attributes: {usbSerial: {string: mine}}}]",
    );
    let name = *names(&found).first().unwrap();
    assert_eq!(
        attributes(&found, name),
        [
            "driver=ftdi_sio",
            "path=/dev/null",
            "resource.kubernetes.io/numaNode=1",
            "resource.kubernetes.io/pciBusID=0000:00:14.0",
            "resource.kubernetes.io/pcieRoot=pci0000:00",
            "source=a",
            "subsystem=tty",
            "usbProduct=6001",
            "usbSerial=mine",
            "usbVendor=0403",
        ]
    );
    let notices: Vec<String> = found.notices.iter().map(ToString::to_string).collect();
    assert_eq!(notices.len(), 1);
    assert!(
        notices[0].starts_with(&format!("device {name}: attribute usbProductName is left out: \"long long"))
    );
}

#[test]
fn facts_beyond_the_32nd_property_are_left_out_and_named() {
    let machine = Machine::new();
    machine.link("dev/x", "/dev/null").link("sys/dev/char/1:3", "../../devices/virtual/mem/null");
    machine.link("sys/devices/virtual/mem/null/subsystem", "../../../../class/mem");
    let many: String = (0..30).map(|index| format!("a{index}: {{int: 1}}, ")).collect();
    let found =
        machine.scan(&format!("sources: [{{name: a, dev: {{paths: [/dev/x]}}, attributes: {{{many}}}}}]"));
    assert_eq!(attributes(&found, "x").len(), 32);
    assert!(
        found.notices[0]
            .to_string()
            .starts_with("device x: attribute subsystem is left out: subsystem would be number 33")
    );
}

#[test]
fn a_node_without_sysfs_or_numa_has_only_its_path_and_source() {
    let machine = Machine::new();
    machine.link("dev/x", "/dev/null").link("dev/y", "/dev/zero");
    machine.link("sys/dev/char/1:5", "../../devices/pci0000:00/0000:00:01.0");
    machine.file("sys/devices/pci0000:00/0000:00:01.0/numa_node", "-1\n");
    let found = machine.scan("sources: [{name: a, dev: {paths: ['/dev/*']}}]");
    assert_eq!(attributes(&found, "x"), ["path=/dev/null", "source=a"]);
    assert_eq!(attributes(&found, "y"), ["path=/dev/zero", "source=a"]);
}

#[test]
fn what_leads_through_proc_is_no_device() {
    let machine = Machine::new();
    machine.link("dev/stdin", "/proc/self/fd/0").link("dev/fd", "/proc/self/fd");
    let found = machine.scan("sources: [{name: a, dev: {paths: ['/dev/*', '/dev/fd/*']}}]");
    assert_eq!(names(&found), [""; 0]);
}

#[test]
fn absolute_links_are_followed_in_the_dev_that_is_looked_at() {
    let machine = Machine::new();
    machine.link("dev/null", "/dev/zero");
    symlink("/dev/null", machine.path("dev/by-name/x")).unwrap();
    let found = machine.scan("sources: [{name: a, dev: {paths: ['/dev/by-name/*']}}]");
    let node = found.devices.values().next().unwrap().node.clone().unwrap();
    assert_eq!((node.id.major, node.id.minor), (1, 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Two machines with the same nodes, made in different orders, have the same devices.
    #[test]
    fn the_order_in_which_nodes_appear_changes_nothing(
        (one, other) in prop::collection::btree_set("[aA_-]{1,4}", 1..20).prop_flat_map(|names| {
            let names: Vec<String> = names.into_iter().collect();
            (Just(names.clone()).prop_shuffle(), Just(names).prop_shuffle())
        })
    ) {
        // All links lead to few nodes, so that the order could decide which of them names a device.
        let nodes = ["/dev/null", "/dev/zero", "/dev/full"];
        let make = |names: &[String]| {
            let machine = Machine::new();
            for name in names {
                machine.link(&format!("dev/x/{name}"), nodes[name.len() % nodes.len()]);
            }
            machine.scan("sources: [{name: a, dev: {paths: ['/dev/x/A*', '/dev/x/*']}}]")
        };
        prop_assert_eq!(make(&one), make(&other));
    }
}

#[test]
fn the_folders_of_a_pattern_are_those_where_a_match_can_appear() {
    let machine = Machine::new();
    machine
        .link("dev/bus/usb/001/002", "/dev/null")
        .link("dev/bus/usb/003/001", "/dev/zero")
        .file("dev/bus/usb/file", "");
    let config = "sources: [{name: a, dev: {paths: ['/dev/bus/usb/0*/*', '/dev/serial/by-id/*']}}, {name: b, simulated: {count: 1}}]";
    assert_eq!(machine.folders(config), ["", "bus", "bus/usb", "bus/usb/001", "bus/usb/003"]);
    machine.link("dev/serial/by-id/x", "../../far/away/node");
    assert_eq!(machine.folders(config).len(), 7);
    machine.file("dev/far/away/other", "");
    assert!(machine.folders(config).contains(&String::from("far/away")));
}
