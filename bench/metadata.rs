//! Reading device metadata beside a file in memory, in one run; how soon an update is seen; how long a take-over
//! takes. `hack/bench metadata` runs this.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::{
    env, fs,
    fs::File,
    io::Read,
    path::Path,
    process::{Child, Command},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use claimfs::{
    fs::{Connection, Live, Server, Step, Store},
    hold::{Client, Places, Starter},
};
use tempfile::TempDir;

const READS: usize = 20_000;
const UPDATES: usize = 500;
const TAKE_OVERS: usize = 50;

/// At p50 and p99, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort();
    [50, 99].map(|percent| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e6)
}

fn read(path: &Path, buffer: &mut [u8]) -> usize {
    let mut file = File::open(path).unwrap();
    let mut size = 0;
    loop {
        match file.read(&mut buffer[size..]).unwrap() {
            0 => return size,
            more => size += more,
        }
    }
}

/// Open, read to the end, close; on so many threads at the same time.
fn reads(path: &Path, threads: usize) -> [f64; 2] {
    let work = || {
        let mut buffer = vec![0; 64 * 1024];
        let mut times = Vec::with_capacity(READS);
        for _ in 0..READS {
            let started = Instant::now();
            read(path, &mut buffer);
            times.push(started.elapsed());
        }
        times
    };
    let times = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    percentiles(times)
}

fn document(generation: u64) -> Vec<u8> {
    let mut text = format!("{{\"generation\":{generation}}}").into_bytes();
    text.resize(2048, b' ');
    text
}

/// From the moment that a version is published to the moment that a reader in a loop has it.
fn updates(live: &Live, path: &Path) -> [f64; 2] {
    let steps = [Step::new("f")];
    let mut buffer = vec![0; 4096];
    let times = (0..UPDATES).map(|update| {
        let wanted = format!("{{\"generation\":{}}}", update + 2);
        thread::scope(|scope| {
            let seen = scope.spawn(|| {
                loop {
                    let size = read(path, &mut buffer);
                    if buffer[..size].starts_with(wanted.as_bytes()) {
                        return Instant::now();
                    }
                }
            });
            let changed = Instant::now();
            live.publish(&steps, |generation| document(generation.max(u64::try_from(update).unwrap() + 2)))
                .unwrap();
            seen.join().unwrap().saturating_duration_since(changed)
        })
    });
    percentiles(times.collect())
}

fn holder(places: &Places) -> Child {
    let binary =
        env::var("CLAIMFS_TEST_BINARY").expect("hack/bench builds claimfs and sets CLAIMFS_TEST_BINARY");
    let run_dir = places.socket.parent().unwrap();
    Command::new(binary)
        .args(["hold", "--log", "error", "--run-dir"])
        .arg(run_dir)
        .arg("--mount-point")
        .arg(&places.mount_point)
        .spawn()
        .unwrap()
}

fn main() {
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let run_dir = folder.path().join("run");
    fs::create_dir(&run_dir).unwrap();
    let places =
        Places::new(&run_dir, &folder.path().join("mount"), Duration::from_secs(60), Starter::Somebody)
            .unwrap();
    let mut holding = holder(&places);
    let client = loop {
        if let Ok(client) = Client::connect(&places.socket) {
            break client;
        }
    };
    let live = Arc::new(Live::new(Store::open(places.versions.clone()).unwrap()));
    live.publish(&[Step::new("f")], document).unwrap();
    let server =
        Server::start(&live, Connection { device: client.mount().unwrap(), greeting: None }).unwrap();
    client.keep(server.greeting, None).unwrap();

    let (served, plain) = (places.mount_point.join("f"), folder.path().join("plain"));
    fs::write(&plain, document(1)).unwrap();
    println!("{:<48} {:>9} {:>9} {:>7}", "open, read, close of 2 KiB (us)", "claimfs", "tmpfs", "ratio");
    for threads in [1, 2] {
        let (ours, memory) = (reads(&served, threads), reads(&plain, threads));
        for (index, percent) in [50, 99].into_iter().enumerate() {
            let row = format!("p{percent}, {threads} at a time");
            println!(
                "{row:<48} {:>9.1} {:>9.1} {:>7.1}",
                ours[index],
                memory[index],
                ours[index] / memory[index]
            );
        }
    }
    let [half, most] = updates(&live, &served);
    println!("from a new version to a reader that has it (us): p50 {half:.0}, p99 {most:.0}");

    // Each successor takes the connection from the holder and answers; the ones before go on answering, too.
    let mut times = Vec::new();
    let mut buffer = vec![0; 4096];
    for _ in 0..TAKE_OVERS {
        let started = Instant::now();
        let successor = Client::connect(&places.socket).unwrap();
        let (device, greeting) = successor.take().unwrap().unwrap();
        Server::start(&live, Connection { device, greeting: Some(greeting) }).unwrap();
        read(&served, &mut buffer);
        times.push(started.elapsed());
        drop(successor);
    }
    let [half, most] = percentiles(times);
    println!("a take-over, to the first read after it (us): p50 {half:.0}, p99 {most:.0}");
    // It makes itself small when it has had nothing to do for a second.
    thread::sleep(Duration::from_secs(2));
    let memory = fs::read_to_string(format!("/proc/{}/status", holding.id())).unwrap();
    let memory = |name: &str| {
        memory.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
    };
    println!("the holder at rest: {} resident, of it {} anonymous", memory("VmRSS:"), memory("RssAnon:"));
    holding.kill().unwrap();
    holding.wait().unwrap();
    nix::mount::umount2(&places.mount_point, nix::mount::MntFlags::MNT_DETACH).unwrap();
}
