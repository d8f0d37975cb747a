//! Containers that read device metadata, on a machine whose devices can be reported about.

use std::{fs, os::unix::fs::symlink, time::Duration};

use claimfs::kubelet::api::dra::v1::Claim;
use tempfile::TempDir;

use super::{cluster::Cluster, driver::Machine, kubelet::Behaviour, podman::Container, setup::Setup};

pub const PLACE: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// Counts reads and errors until it is told to stop, and the longest read in hundredths of a second. The file is read as a
/// whole by every `cat`.
pub const READER: &str = r#"
    now() { read -r up rest </proc/uptime; up=${up%.*}${up#*.}; }
    n=0 e=0 longest=0
    echo started
    now
    while [ ! -e /shared/stop ]; do
        before=$up
        if cat "$FILE" >/dev/null 2>&1; then n=$((n+1)); else e=$((e+1)); fi
        now
        [ $((up - before)) -le "$longest" ] || longest=$((up - before))
    done
    echo "$n $e $longest"
"#;

/// What is said about devices, one file each.
pub struct Reports(TempDir);

impl Reports {
    pub fn write(&self, device: &str, report: &str) {
        fs::write(self.0.path().join(format!("{device}.yaml")), report).unwrap();
    }
}

/// A machine with 8 devices, a daemon and a kubelet.
pub async fn setup(node: &str, flags: &[&'static str]) -> (Setup, Reports) {
    let reports = Reports(TempDir::new().unwrap());
    let config =
        format!("reports: {}\nsources: [{{name: gpu, simulated: {{count: 8}}}}]", reports.0.path().display());
    let mut machine = Machine::new(Cluster::shared_control_plane(), node, &config);
    machine.flags = flags.to_vec();
    // As /var/run is: mount tables know no links.
    fs::create_dir(machine.path("real-run")).unwrap();
    symlink("real-run", machine.path("run")).unwrap();
    (Setup::on(machine, Behaviour::default()).await, reports)
}

/// Where a container finds the document of a request.
pub fn file(claim: &Claim, request: &str) -> String {
    format!("{PLACE}/resourceclaims/{}/{request}/claimfs.dev-metadata.json", claim.name)
}

/// A container that runs a script on a file, which says when it has started.
pub fn reader(setup: &Setup, devices: &[String], file: &str, script: &str) -> Container {
    let mut reader = Container::start(&setup.machine, devices, &["--env", &format!("FILE={file}")], script);
    assert_eq!(reader.line(), "started");
    reader
}

/// What a reader has counted.
pub struct Counted {
    pub reads: u64,
    pub errors: u64,
    /// The longest read, where the reader measures it.
    pub longest: Duration,
}

/// What a reader has counted, once it is told to stop.
pub fn counted(reader: Container) -> Counted {
    let last = reader.stop();
    let numbers: Vec<u64> = last.split(' ').map(|number| number.parse().unwrap()).collect();
    let longest = Duration::from_millis(numbers.get(2).copied().unwrap_or_default() * 10);
    Counted { reads: numbers[0], errors: numbers[1], longest }
}

/// Kills the holders and waits until the daemon has another.
pub fn replace_holder(setup: &Setup) {
    setup.machine.kill_holders();
    setup.daemon().wait_for("there is a holder again");
}
