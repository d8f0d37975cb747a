//! Allocation beside upstream's allocator: the same objects, in one run. `hack/bench allocate` builds the peer and runs
//! this.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used, clippy::cast_precision_loss)]

#[path = "allocate/plot.rs"]
mod plot;
#[path = "allocate/workloads.rs"]
mod workloads;

use std::{
    collections::HashMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use claimfs::allocate::{
    Allocated, Claim, Cluster, Device, DeviceId, Expressions, Features, Interruption, Release, Slice, Slices,
    allocate,
};
use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{
        AllocationResult, DeviceClass, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice,
    },
};
use plot::Curve;
use serde::Deserialize;
use serde_json::{Value, json};
use workloads::Workload;

/// How long one side repeats a workload, in each of several rounds.
const BUDGET: Duration = Duration::from_millis(300);
const ROUNDS: usize = 3;
/// How long one time may take.
const LIMIT: Duration = Duration::from_secs(10);
/// What the picture shows.
const SIZES: (usize, usize) = (2, 32);

/// What one side says.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Measured {
    /// In nanoseconds; none where it took too long.
    times: Option<Vec<u64>>,
    /// By pod; none where it fits nowhere.
    results: Option<Vec<Option<Vec<AllocationResult>>>>,
    error: String,
}

/// The allocator of upstream.
struct Peer {
    child: Child,
    workloads: ChildStdin,
    measured: BufReader<ChildStdout>,
}

impl Peer {
    fn start() -> Self {
        let program = env::var("CLAIMFS_BENCH_HELPER")
            .expect("hack/bench builds the peer and sets CLAIMFS_BENCH_HELPER");
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (workloads, measured) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, workloads, measured: BufReader::new(measured) }
    }

    fn measure(&mut self, workload: &Value) -> Measured {
        writeln!(self.workloads, "{workload}").unwrap();
        let mut line = String::new();
        self.measured.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A workload as both sides have it before it is measured.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    nodes: Vec<Node>,
    classes: Vec<DeviceClass>,
    slices: Vec<ResourceSlice>,
    pods: Vec<Vec<ResourceClaim>>,
}

impl Given {
    fn slices(&self) -> Slices<'_> {
        self.slices.iter().map(|slice| Slice::try_from(slice).unwrap()).collect()
    }

    /// All pods, each on the first node that has what its claims want.
    fn once<'a>(
        &self,
        slices: &'a Slices<'a>,
        ids: &HashMap<String, DeviceId<'a>>,
        cel: &Expressions,
    ) -> Result<Vec<Option<Vec<AllocationResult>>>, String> {
        let deadline = Instant::now() + LIMIT;
        let features = Features::default_of(Release::V1_37);
        let mut allocated = Allocated::default();
        let mut results = Vec::with_capacity(self.pods.len());
        for claims in &self.pods {
            let cluster = Cluster {
                release: Release::V1_37,
                channel: features.channel(),
                features,
                allocated: &allocated,
                classes: &self.classes,
                slices,
                cel,
                interruption: &|| (Instant::now() > deadline).then_some(Interruption::Deadline),
                new_share_id: &String::new,
            };
            let claims: Vec<_> = claims.iter().map(|claim| Claim::try_from(claim).unwrap()).collect();
            let mut answer = None;
            for node in &self.nodes {
                answer = allocate(&cluster, node, &claims).map_err(|error| error.to_string())?;
                if answer.is_some() {
                    break;
                }
            }
            for claim in answer.iter().flatten() {
                let devices = claim.devices.iter().flat_map(|devices| devices.results.iter().flatten());
                for DeviceRequestAllocationResult { driver, pool, device, .. } in devices {
                    allocated.devices.extend(ids.get(&DeviceId { driver, pool, device }.to_string()));
                }
            }
            results.push(answer);
        }
        Ok(results)
    }

    fn measure(&self, budget: Duration) -> Measured {
        let slices = self.slices();
        let (ids, cel) = (ids(&slices), expressions());
        let mut measured = Measured { times: Some(Vec::new()), results: None, error: String::new() };
        let begun = Instant::now();
        let mut count = 0;
        // The first time is not counted: it compiles the expressions.
        while count == 0 || begun.elapsed() < budget {
            let started = Instant::now();
            let results = self.once(&slices, &ids, &cel);
            let took = started.elapsed();
            match results {
                Ok(results) => measured.results = Some(results),
                Err(error) => return Measured { times: None, results: None, error },
            }
            if count > 0 || took > budget {
                measured.times.as_mut().unwrap().push(u64::try_from(took.as_nanos()).unwrap());
            }
            count += 1;
        }
        measured
    }
}

/// What both sides took for one workload, in seconds.
struct Row {
    what: String,
    ours: f64,
    peers: f64,
}

fn median(mut times: Vec<u64>) -> Option<f64> {
    times.sort_unstable();
    times.get(times.len() / 2).map(|time| *time as f64 / 1e9)
}

/// In turn, so that what disturbs one disturbs the other; both must give the same answer.
fn compare(peer: &mut Peer, workload: &Workload, rounds: usize) -> [Option<f64>; 2] {
    let mut json = workload.json();
    let given = Given::deserialize(&json).unwrap();
    json["Budget"] = json!(u64::try_from(BUDGET.as_millis()).unwrap());
    json["Limit"] = json!(u64::try_from(LIMIT.as_millis()).unwrap());
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let both = [given.measure(BUDGET), peer.measure(&json)];
        if let [Measured { results: Some(ours), .. }, Measured { results: Some(peers), .. }] = &both {
            assert_eq!(ours, peers);
        }
        for (times, Measured { times: more, error, .. }) in times.iter_mut().zip(both) {
            assert!(error.is_empty() || error.contains("deadline"), "{error}");
            times.extend(more.unwrap_or_default());
        }
    }
    times.map(median)
}

/// One side goes on when the other one takes too long.
fn curves(
    peer: &mut Peer,
    name: &str,
    colours: [&'static str; 2],
    workload: fn(usize) -> Workload,
) -> [Curve; 2] {
    let [mut ours, mut peers] = ["claimfs", "upstream"].map(|side| Curve {
        name: format!("{side}: {name}"),
        colour: colours[0],
        dashes: "",
        points: Vec::new(),
    });
    (peers.colour, peers.dashes) = (colours[1], "6 3");
    for size in SIZES.0..=SIZES.1 {
        let is_too_slow = peers.points.last().is_some_and(|(_, time)| *time > LIMIT.as_secs_f64() / 2.0)
            || peers.points.len() < size - SIZES.0;
        let both = if is_too_slow {
            let given = Given::deserialize(workload(size).json()).unwrap();
            [median(given.measure(BUDGET).times.unwrap()), None]
        } else {
            eprintln!("{name}, n = {size}");
            compare(peer, &workload(size), 1)
        };
        for (curve, time) in [&mut ours, &mut peers].into_iter().zip(both) {
            curve.points.extend(time.map(|time| (size, time)));
        }
    }
    [ours, peers]
}

fn ids<'a>(slices: &'a Slices<'a>) -> HashMap<String, DeviceId<'a>> {
    let of_slice = |slice: &'a Slice<'a>| {
        let id =
            |device: &'a Device<'a>| DeviceId { driver: slice.driver, pool: slice.pool, device: device.name };
        slice.devices.iter().map(id)
    };
    slices.iter().flat_map(of_slice).map(|id| (id.to_string(), id)).collect()
}

fn expressions() -> Expressions {
    Expressions::new(Release::V1_37, &Features::default_of(Release::V1_37))
}

/// What is kept from one time to the next, and so is in no other figure.
fn print_first(what: &str, workload: &Workload) {
    let given = Given::deserialize(workload.json()).unwrap();
    let started = Instant::now();
    let slices = given.slices();
    let made = started.elapsed();
    let (ids, cel) = (ids(&slices), expressions());
    let started = Instant::now();
    given.once(&slices, &ids, &cel).unwrap();
    let first = started.elapsed();
    eprintln!("{what}: {made:.1?} for the model of the slices, and {first:.1?} the first time on it");
}

fn main() {
    let json = env::args().any(|argument| argument == "--json");
    let picture = env::var_os("CLAIMFS_BENCH_PICTURE");
    let mut peer = Peer::start();
    let mut rows = Vec::new();
    for (what, workload) in workloads::ALL {
        eprintln!("{what}");
        let [ours, peers] = compare(&mut peer, &workload(), ROUNDS).map(Option::unwrap_or_default);
        rows.push(Row { what: what.to_owned(), ours, peers });
    }
    print(&rows, json);
    for (what, workload) in workloads::ALL.into_iter().filter(|(what, _)| what.contains("all asked")) {
        print_first(what, &workload());
    }
    if let Some(path) = picture {
        let mut all = Vec::from(curves(
            &mut peer,
            "n devices wanted of n - 1",
            ["#c60", "#e9a"],
            workloads::one_too_few,
        ));
        all.extend(curves(
            &mut peer,
            "n requests for n - 1 devices",
            ["#06c", "#7bd"],
            workloads::one_too_few_for_requests,
        ));
        let largest = |curve: &Curve| curve.points.last().map_or(0.0, |(_, time)| time * 1e3);
        eprintln!("n = {}: {:.3} ms and {:.3} ms", SIZES.1, largest(&all[0]), largest(&all[2]));
        let title = "Finding out that there is one device too few";
        fs::write(path, plot::svg(title, SIZES, LIMIT.as_secs_f64(), &all)).unwrap();
    }
}

fn print(rows: &[Row], json: bool) {
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|Row { what, ours, peers }| json!({"what": what, "claimfs": ours, "upstream": peers, "ratio": peers / ours}))
            .collect();
        println!("{}", serde_json::to_string_pretty(&rows).unwrap());
        return;
    }
    println!("{:<48} {:>12} {:>12} {:>8}", "p50 (us)", "claimfs", "upstream", "ratio");
    for Row { what, ours, peers } in rows {
        println!("{what:<48} {:>12.2} {:>12.2} {:>8.1}", ours * 1e6, peers * 1e6, peers / ours);
    }
    let mut ratios: Vec<_> = rows.iter().map(|row| row.peers / row.ours).collect();
    ratios.sort_by(f64::total_cmp);
    println!("median of the ratios: {:.1}, the least: {:.1}", ratios[ratios.len() / 2], ratios[0]);
}
