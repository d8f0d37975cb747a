//! Prepare and unprepare beside upstream's helper: the same API server, claims and stand-in for the kubelet, in
//! one run. `hack/bench prepare` builds the peer and runs this.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used, clippy::cast_precision_loss)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use claimfs::kubelet::api::dra::v1::Claim;
use futures::{StreamExt, stream};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client, Config, config::Kubeconfig};
use support::{
    claims::{self, Allocation},
    cluster::Cluster,
    driver::{Daemon, Machine},
    kubelet::{Behaviour, Kubelet, Plugin},
};

const NODE: &str = "bench";
const OURS: &str = "claimfs.dev";
const PEER: &str = "helper.example.com";
/// Claims that are prepared at the same time for the memory, and how many of them are timed.
const CLAIMS: usize = 1000;
const TIMED: usize = 150;
const ROUNDS: usize = 8;
const IN_FLIGHT: [usize; 2] = [1, 32];

/// Times of calls, sorted.
struct Times(Vec<Duration>);

impl Times {
    fn at(&self, percent: usize) -> f64 {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)].as_secs_f64() * 1e3
    }
}

/// Calls something for each claim, so many at a time, in several rounds with something else after each.
async fn timed<'a, F, G>(
    claims: &'a [Claim],
    in_flight: usize,
    call: impl Fn(&'a Claim) -> F,
) -> Vec<Duration>
where
    F: Future<Output = G>,
{
    let calls = stream::iter(claims).map(|claim| {
        let call = call(claim);
        async move {
            let started = Instant::now();
            call.await;
            started.elapsed()
        }
    });
    calls.buffer_unordered(in_flight).collect().await
}

async fn prepare(plugin: &Plugin, claim: &Claim) {
    let mut answer = plugin.prepare(std::slice::from_ref(claim)).await.unwrap();
    answer.remove(&claim.uid).unwrap().unwrap();
}

async fn unprepare(plugin: &Plugin, claim: &Claim) {
    let mut answer = plugin.unprepare(std::slice::from_ref(claim)).await.unwrap();
    answer.remove(&claim.uid).unwrap().unwrap();
}

/// A driver under test.
struct Driver {
    plugin: Plugin,
    daemon: Daemon,
    binary: u64,
}

impl Driver {
    /// Milliseconds of processor time so far.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.daemon.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // In ticks, of which Linux has 100 a second.
        let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) * 10.0
    }

    /// Resident, private and anonymous memory in MiB.
    fn memory(&self) -> [f64; 3] {
        let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.daemon.id())).unwrap();
        let sum = |names: &[&str]| {
            let lines = smaps.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
            lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()).sum::<f64>()
                / 1024.0
        };
        [sum(&["Rss:"]), sum(&["Private_Clean:", "Private_Dirty:"]), sum(&["Anonymous:"])]
    }
}

#[tokio::main]
async fn main() {
    let json = env::args().any(|argument| argument == "--json");
    let peer =
        env::var("CLAIMFS_BENCH_HELPER").expect("hack/bench builds the peer and sets CLAIMFS_BENCH_HELPER");
    let plane = Cluster::shared_control_plane();
    let config = format!("sources: [{{name: gpu, simulated: {{count: {CLAIMS}}}}}]");
    // Made first, so that it goes last: the machine unmounts what is in it.
    // As on a node: /run and /var/run/cdi are in memory, /var/lib/kubelet is on a disk.
    let on_disk = env::args().any(|argument| argument == "--on-disk");
    let memory = if on_disk { tempfile::TempDir::new() } else { tempfile::TempDir::new_in("/dev/shm") };
    let memory = memory.unwrap();
    let machine = Machine::new(plane, NODE, &config);
    for folder in ["run", "cdi", "peer-cdi"] {
        fs::create_dir(memory.path().join(folder)).unwrap();
        std::os::unix::fs::symlink(memory.path().join(folder), machine.path(folder)).unwrap();
    }
    eprintln!("allocating {CLAIMS} claims");
    let devices: Vec<String> = (0..CLAIMS).map(|index| format!("gpu-{index}")).collect();
    let both: Vec<[Allocation<'_>; 2]> = devices
        .iter()
        .map(|device| [OURS, PEER].map(|driver| Allocation { driver, ..Allocation::of("r", NODE, device) }))
        .collect();
    let wanted: Vec<(String, &[Allocation<'_>])> =
        both.iter().enumerate().map(|(index, both)| (format!("bench-{index}"), &both[..])).collect();
    let claims = claims::create_all(plane, &wanted);

    let drivers = start(&machine, &peer, plane.kubeconfig()).await;
    let mut rows: Vec<(String, [f64; 2])> = Vec::new();
    let mut get_rows: BTreeMap<usize, Times> = BTreeMap::new();
    let api = api(plane.kubeconfig()).await;
    let cpu_before = drivers.each_ref().map(Driver::cpu);
    for in_flight in IN_FLIGHT {
        eprintln!("{in_flight} in flight");
        let mut gets = Vec::new();
        let mut times: [[Vec<Duration>; 2]; 2] = Default::default();
        for round in 0..ROUNDS {
            gets.extend(
                timed(&claims[..TIMED], in_flight, async |claim: &Claim| api.get(&claim.name).await.unwrap())
                    .await,
            );
            // In turn the first: what the API server still has to do is not always the same driver's.
            for which in [round % 2, (round + 1) % 2] {
                let (driver, times) = (&drivers[which], &mut times[which]);
                times[0]
                    .extend(timed(&claims[..TIMED], in_flight, |claim| prepare(&driver.plugin, claim)).await);
                times[1].extend(
                    timed(&claims[..TIMED], in_flight, |claim| unprepare(&driver.plugin, claim)).await,
                );
            }
        }
        let sorted = |mut times: Vec<Duration>| {
            times.sort();
            Times(times)
        };
        let get = sorted(gets);
        let [ours, peers] = times.map(|both| both.map(sorted));
        for (index, what) in ["prepare", "unprepare"].into_iter().enumerate() {
            for percent in [50, 99] {
                let row = [ours[index].at(percent), peers[index].at(percent)];
                rows.push((format!("{what} p{percent}, {in_flight} in flight (ms)"), row));
            }
        }
        let own = [&ours, &peers].map(|times| (times[0].at(50) - get.at(50)).max(0.001));
        rows.push((format!("prepare p50 without the GET, {in_flight} in flight (ms)"), own));
        get_rows.insert(in_flight, get);
    }
    let cycles = (IN_FLIGHT.len() * ROUNDS * TIMED) as f64;
    let cpu_after = drivers.each_ref().map(Driver::cpu);
    rows.push((
        String::from("processor time a cycle (ms)"),
        [0, 1].map(|one| (cpu_after[one] - cpu_before[one]) / cycles),
    ));
    for driver in &drivers {
        timed(&claims, 32, |claim| prepare(&driver.plugin, claim)).await;
    }
    let memory = drivers.each_ref().map(Driver::memory);
    for (index, what) in ["resident", "private", "anonymous"].into_iter().enumerate() {
        rows.push((format!("{what} memory, {CLAIMS} claims (MiB)"), memory.map(|memory| memory[index])));
    }
    rows.push((
        String::from("binary (MiB)"),
        drivers.each_ref().map(|driver| driver.binary as f64 / 1024.0 / 1024.0),
    ));
    print(&rows, &get_rows, json);
}

async fn start(machine: &Machine, peer: &str, kubeconfig: &Path) -> [Driver; 2] {
    let mut kubelet = Kubelet::start(&machine.kubelet(), Behaviour::default());
    let ours = machine.start();
    let our_plugin = kubelet.registered().await;
    let mut helper = Command::new(peer);
    helper.args(["-node-name", NODE, "-driver", PEER]).arg("-kubeconfig").arg(kubeconfig);
    helper.arg("-kubelet-dir").arg(machine.kubelet()).arg("-cdi-dir").arg(machine.path("peer-cdi"));
    let helper = Daemon::spawn(helper.stdin(Stdio::null()).stderr(Stdio::piped()));
    let peer_plugin = kubelet.registered().await;
    // It watches for as long as the process lives.
    std::mem::forget(kubelet);
    let size = |path: &str| fs::metadata(path).unwrap().len();
    [
        Driver { plugin: our_plugin, daemon: ours, binary: size(&support::driver::binary()) },
        Driver { plugin: peer_plugin, daemon: helper, binary: size(peer) },
    ]
}

async fn api(kubeconfig: &Path) -> Api<ResourceClaim> {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let config =
        Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await.unwrap();
    Api::namespaced(Client::try_from(config).unwrap(), "default")
}

fn print(rows: &[(String, [f64; 2])], gets: &BTreeMap<usize, Times>, json: bool) {
    if json {
        let rows: Vec<serde_json::Value> = rows
            .iter()
            .map(|(what, [ours, peer])| serde_json::json!({"what": what, "claimfs": ours, "helper": peer, "ratio": ours / peer}))
            .collect();
        println!("{}", serde_json::to_string_pretty(&rows).unwrap());
        return;
    }
    for (in_flight, get) in gets {
        println!(
            "a bare GET of the same claims, {in_flight} in flight: p50 {:.2} ms, p99 {:.2} ms",
            get.at(50),
            get.at(99)
        );
    }
    println!("{:<56} {:>9} {:>9} {:>7}", "", "claimfs", "helper", "ratio");
    for (what, [ours, peer]) in rows {
        println!("{what:<56} {ours:>9.2} {peer:>9.2} {:>7.2}", ours / peer);
    }
}
