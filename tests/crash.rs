//! Killed at every system call that can change something, the daemon comes to the same state as if nothing
//! had happened. strace kills it from outside; the daemon knows nothing of it.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use claimfs::kubelet::api::dra::v1::Claim;
use nix::sys::signal::{Signal, kill};
use support::{
    DEADLINE,
    cluster::Cluster,
    driver::{Machine, names},
    kubelet::Behaviour,
    setup::{CONFIG, Setup},
};

/// What changes files, sockets or the answer.
const CALLS: [&str; 7] =
    ["openat", "write", "rename", "unlink", "mkdir", "rmdir,unlinkat,symlink", "sendto,writev,sendmsg"];
/// Far more than there are.
const MOST: usize = 200;

#[derive(Debug, Clone, Copy)]
enum Operation {
    Prepare,
    Unprepare,
}

impl Operation {
    async fn call(self, setup: &Setup, claim: &Claim) -> Result<(), String> {
        match self {
            Self::Prepare => {
                let answer = setup.plugin.prepare(std::slice::from_ref(claim)).await;
                answer.map_err(|status| status.to_string())?.remove(&claim.uid).unwrap().map(|_| ())
            }
            Self::Unprepare => {
                let answer = setup.plugin.unprepare(std::slice::from_ref(claim)).await;
                answer.map_err(|status| status.to_string())?.remove(&claim.uid).unwrap()
            }
        }
    }
}

/// Everything that the daemon has written, by name.
fn state(machine: &Machine) -> BTreeMap<String, Vec<u8>> {
    let files = ["cdi", "run/claims"].into_iter().flat_map(|folder| {
        let folder = machine.path(folder);
        names(&folder).into_iter().map(move |name| folder.join(name))
    });
    files.map(|file| (file.display().to_string(), fs::read(&file).unwrap())).collect()
}

/// What it shows to containers, by name. Nobody waits for what is not needed any more to go.
async fn shown_becomes(machine: &Machine, wanted: &[Vec<String>; 2], what: &str) {
    let deadline = Instant::now() + DEADLINE;
    while shown(machine) != *wanted {
        assert!(Instant::now() < deadline, "{what}: {:?}, wanted {wanted:?}", shown(machine));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn shown(machine: &Machine) -> [Vec<String>; 2] {
    ["run/anchors", "run/versions"].map(|folder| names(&machine.path(folder)))
}

/// Sends the daemon a signal when one of its threads enters one of these calls for the n-th time from now on.
struct Killer(Child);

impl Killer {
    fn attach(pid: u32, calls: &str, n: usize, signal: &str) -> Self {
        let mut strace = Command::new("strace")
            .args(["-f", "-p", &pid.to_string(), "-o", "/dev/null", "-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:signal={signal}:when={n}")])
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is installed");
        // One line for each thread, or one that counts them, when it is attached to all.
        let mut line = String::new();
        BufReader::new(strace.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "{line}");
        Self(strace)
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn killed_at_any_call_it_converges() {
    let mut setup = Setup::new("crash").await;
    let claim = setup.claim("a", &[("r", "gpu-0"), ("s", "gpu-1")]);
    let mut points = 0;
    let hidden = shown(&setup.machine);
    for operation in [Operation::Prepare, Operation::Unprepare] {
        // What it is like without a crash.
        if matches!(operation, Operation::Unprepare) {
            Operation::Prepare.call(&setup, &claim).await.unwrap();
        }
        let before = state(&setup.machine);
        operation.call(&setup, &claim).await.unwrap();
        let after = state(&setup.machine);
        assert_ne!(before, after);
        let shown = match operation {
            Operation::Prepare => shown(&setup.machine),
            Operation::Unprepare => hidden.clone(),
        };
        let back = match operation {
            Operation::Prepare => Operation::Unprepare,
            Operation::Unprepare => Operation::Prepare,
        };
        for calls in CALLS {
            for n in 1..MOST {
                back.call(&setup, &claim).await.unwrap();
                assert_eq!(state(&setup.machine), before, "{operation:?} {calls} {n}");
                let killer = Killer::attach(setup.daemon().id(), calls, n, "SIGKILL");
                let outcome = operation.call(&setup, &claim).await;
                drop(killer);
                // It may also have been killed after its answer.
                let survived = outcome.is_ok() && operation.call(&setup, &claim).await.is_ok();
                if !survived {
                    points += 1;
                    setup.restart(drop).await;
                }
                // The kubelet asks again when it got no answer; asking twice is allowed anyway.
                operation
                    .call(&setup, &claim)
                    .await
                    .unwrap_or_else(|error| panic!("{operation:?} {calls} {n}: {error}"));
                assert_eq!(state(&setup.machine), after, "{operation:?} {calls} {n}: {outcome:?}");
                shown_becomes(&setup.machine, &shown, &format!("{operation:?} {calls} {n}")).await;
                if survived {
                    break;
                }
            }
        }
        back.call(&setup, &claim).await.unwrap();
    }
    println!("{points} points of crash converged");
    assert!(points >= 12, "{points}");
}

/// The folders of the daemon on a disk of their own, which is copied when the power is cut: what was not written to
/// it by then is gone.
const ON_A_DISK: &str = "mkdir -p disk run cdi && mount -o loop disk.img disk && mkdir -p disk/run disk/cdi && \
                         mount --bind disk/run run && mount --bind disk/cdi cdi";

/// Whether a process stands still.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn after_a_power_cut_the_next_prepare_is_right() {
    let mut machine = Machine::new(Cluster::shared_control_plane(), "power", CONFIG);
    let disk = machine.path("disk.img");
    let made = Command::new("mkfs.ext4").args(["-q", disk.to_str().unwrap(), "16M"]).status().unwrap();
    assert!(made.success());
    machine.before = Some(ON_A_DISK);
    let mut setup = Setup::on(machine, Behaviour::default()).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    let mut points = 0;
    for calls in ["openat", "write", "rename"] {
        for n in 1..MOST {
            let pid = setup.daemon().id();
            let killer = Killer::attach(pid, calls, n, "SIGSTOP");
            let survived = tokio::select! {
                answer = Operation::Prepare.call(&setup, &claim) => { answer.unwrap(); true }
                () = async { while !is_stopped(pid) { tokio::time::sleep(Duration::from_millis(5)).await; } } => false,
            };
            // The power goes now: the disk is what it is at this moment.
            let copy = disk.with_extension("copy");
            fs::copy(&disk, &copy).unwrap();
            drop(killer);
            points += 1;
            fs::write(setup.machine.path("boot_id"), format!("boot-{points}\n")).unwrap();
            let holders = setup.machine.holders();
            let end = |daemon| {
                drop(daemon);
                for holder in holders {
                    let _ = kill(holder, Signal::SIGKILL);
                }
            };
            setup.end_and(end, || fs::rename(&copy, &disk).unwrap()).await;
            let specs = |setup: &Setup| names(&setup.machine.seen_by(setup.daemon(), "cdi"));
            let ids = setup.prepare(&claim).await.unwrap();
            assert_eq!(ids, [format!("claimfs.dev/device={}-gpu-0", claim.uid)]);
            let file = setup.machine.seen_by(setup.daemon(), &format!("cdi/claimfs.dev-{}.json", claim.uid));
            let spec: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            assert_eq!(spec["devices"].as_array().unwrap().len(), 1);
            assert_eq!(specs(&setup).len(), 1, "{calls} {n}");
            setup.unprepare(&claim).await.unwrap();
            assert_eq!(specs(&setup), [""; 0]);
            if survived {
                break;
            }
        }
    }
    println!("{points} power cuts converged");
    assert!(points >= 5, "{points}");
}
