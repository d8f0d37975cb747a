//! What others report about devices: one small file a device, in a folder that the configuration names.
//!
//! A script, a monitor or a person writes `<device>.yaml`; the device has what it says from then on, until
//! the file is gone. What cannot be read makes the health of its device unknown, with the reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::Notice;
use crate::{
    config::Config,
    device::{AttributeName, AttributeValue, Device, DeviceName, Health, NetworkData, Taint, quoted},
};

/// More than a report can need.
const MAX_BYTES: u64 = 64 * 1024;
/// What the API has room for.
const MAX_MESSAGE: usize = 1024;
const MAX_IPS: usize = 16;
const MAX_NETWORK_TEXT: usize = 128;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Report {
    health: Word,
    message: String,
    taints: Vec<Taint>,
    attributes: BTreeMap<AttributeName, AttributeValue>,
    network_data: Option<NetworkData>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Word {
    #[default]
    Healthy,
    Unhealthy,
    Unknown,
}

/// Adds what is reported to every device.
pub(super) fn apply(config: &Config, devices: &mut BTreeMap<DeviceName, Device>, notices: &mut Vec<Notice>) {
    let Some(folder) = &config.reports else { return };
    for device in devices.values_mut() {
        let path = folder.as_path().join(format!("{}.yaml", device.name));
        let reported = match read(&path) {
            Ok(None) => continue,
            Ok(Some(text)) => parse(&text).and_then(|report| report.apply(config, device)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = reported {
            device.condition.health =
                Health::Unknown { message: format!("its report cannot be used: {reason}") };
            notices.push(Notice::Report { device: device.name.clone(), path, reason });
        }
    }
}

/// The folder and the one above it: it may be put in place of another.
pub(super) fn folders(config: &Config) -> BTreeSet<PathBuf> {
    let Some(folder) = &config.reports else { return BTreeSet::new() };
    let there = folder.as_path().ancestors().filter(|folder| folder.is_dir());
    there.take(2).map(Path::to_owned).collect()
}

fn read(path: &Path) -> io::Result<Option<String>> {
    // Whatever it is, it must not keep us waiting.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(Some(text))
}

fn parse(text: &str) -> Result<Report, String> {
    if text.trim().is_empty() {
        return Ok(Report::default());
    }
    let report: Report = serde_saphyr::from_str(text).map_err(|error| {
        // The first line says what is wrong and where; the rest shows the text around it.
        error.to_string().lines().next().unwrap_or_default().to_owned()
    })?;
    if report.message.len() > MAX_MESSAGE {
        return Err(format!("its message has more than {MAX_MESSAGE} bytes"));
    }
    let network = report.network_data.iter();
    let texts = network.clone().flat_map(|network| {
        network.interface_name.iter().chain(&network.hardware_address).chain(&network.ips)
    });
    if let Some(long) = texts.clone().find(|text| text.is_empty() || text.len() > MAX_NETWORK_TEXT) {
        return Err(format!("networkData: {} must have 1 to {MAX_NETWORK_TEXT} bytes", quoted(long)));
    }
    if network.clone().any(|network| network.ips.len() > MAX_IPS) {
        return Err(format!("networkData has more than {MAX_IPS} ips"));
    }
    Ok(report)
}

impl Report {
    fn apply(self, config: &Config, device: &mut Device) -> Result<(), String> {
        let mut changed = device.clone();
        for (name, value) in self.attributes {
            let set = changed.properties.set_attribute(name.within(&config.driver), value);
            set.map_err(|error| error.to_string())?;
        }
        let condition = &mut changed.condition;
        condition.taints.extend(self.taints);
        if condition.taints.len() > Taint::MAX {
            return Err(format!("a device has at most {} taints", Taint::MAX));
        }
        let message = self.message;
        condition.health = match self.health {
            Word::Healthy => Health::Healthy,
            Word::Unhealthy => Health::Unhealthy { message },
            Word::Unknown => Health::Unknown { message },
        };
        condition.network = self.network_data;
        *device = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use crate::{
        config::Config,
        device::{Device, Health},
        discover::{self, Roots},
    };

    fn reported(text: &str) -> (Device, Vec<String>) {
        let folder = TempDir::new().unwrap();
        let config = format!(
            "reports: {}\nsources: [{{name: gpu, simulated: {{count: 2}}, attributes: {{model: {{string: a}}}}, \
             taints: [{{key: old, effect: None}}]}}]",
            folder.path().display()
        );
        let config = Config::parse("test".as_ref(), &config).unwrap();
        fs::write(folder.path().join("gpu-1.yaml"), text).unwrap();
        let found = discover::scan(&config, &Roots::default());
        assert_eq!(found.devices[&"gpu-0".parse().unwrap()].condition.health, Health::Healthy);
        (
            found.devices[&"gpu-1".parse().unwrap()].clone(),
            found.notices.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn a_report_changes_its_device_and_no_other() {
        let (device, notices) = reported(
            "health: unhealthy\nmessage: the fan stands still\ntaints: [{key: claimfs.dev/fan, effect: NoSchedule}]\n\
             attributes: {model: {string: b}, speed: {int: 0}}\nnetworkData: {ips: [10.0.0.1/24]}\n",
        );
        assert_eq!(notices, [""; 0]);
        let message = String::from("the fan stands still");
        assert_eq!(device.condition.health, Health::Unhealthy { message });
        let taints: Vec<String> = device.condition.taints.iter().map(ToString::to_string).collect();
        assert_eq!(taints, ["old:None", "claimfs.dev/fan:NoSchedule"]);
        assert_eq!(device.properties.attributes().len(), 3);
        assert_eq!(device.condition.network.unwrap().ips, ["10.0.0.1/24"]);
    }

    #[test]
    fn what_cannot_be_used_makes_the_health_unknown_and_is_told() {
        let many = (0..40).map(|index| format!("a{index}: {{int: 1}}")).collect::<Vec<_>>().join(", ");
        let long = format!("message: {}", "x".repeat(2000));
        let large = "#".repeat(70_000);
        for (text, expected) in [
            ("healht: unhealthy", "unknown field"),
            ("health: sick", "unknown variant"),
            ("{", "line 1"),
            (&format!("attributes: {{{many}}}"), "a device has at most 32"),
            ("taints: [{key: /x, effect: None}]", "taint key"),
            ("networkData: {interfaceName: ''}", "must have 1 to 128 bytes"),
            (&long, "more than 1024 bytes"),
            (&large, "larger than 65536 bytes"),
        ] {
            let (device, notices) = reported(text);
            assert!(matches!(device.condition.health, Health::Unknown { .. }), "{text:.40}");
            assert!(notices.len() == 1 && notices[0].contains(expected), "{text:.40}: {notices:?}");
            assert_eq!(device.condition.taints.len(), 1, "nothing of it is taken");
        }
        assert_eq!(reported("").0.condition.health, Health::Healthy);
    }
}
