//! A daemon and its file system against a simple model of both: whatever is prepared, updated, opened, read, polled and
//! taken over, in whatever order.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use claimfs::kubelet::api::dra::v1::Claim;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use support::{
    DEADLINE,
    driver::names,
    metadata::{Reports, setup},
    setup::Setup,
};
use tokio::{runtime::Handle, task::block_in_place};

const CLAIMS: usize = 3;
const MOST_OPEN: usize = 6;

/// What is done, mostly to one of a few claims or to one of the open files.
#[derive(Debug, Clone)]
enum Operation {
    Prepare(usize),
    Unprepare(usize),
    Update(usize),
    Open(usize),
    Read(usize, u64, usize),
    Poll(usize),
    Close(usize),
    Stat(usize),
    List,
    TakeOver,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0..CLAIMS).prop_map(Operation::Prepare),
        1 => (0..CLAIMS).prop_map(Operation::Unprepare),
        3 => (0..CLAIMS).prop_map(Operation::Update),
        5 => (0..CLAIMS).prop_map(Operation::Open),
        5 => (0..MOST_OPEN, 0..1500_u64, 0..1500_usize).prop_map(|(file, offset, size)| Operation::Read(file, offset, size)),
        3 => (0..MOST_OPEN).prop_map(Operation::Poll),
        1 => (0..MOST_OPEN).prop_map(Operation::Close),
        2 => (0..CLAIMS).prop_map(Operation::Stat),
        1 => Just(Operation::List),
        2 => Just(Operation::TakeOver),
    ]
}

/// A file that is open, and what it was when it was opened.
struct Opened {
    claim: usize,
    file: File,
    bytes: Vec<u8>,
    value: u64,
}

/// What should be so.
struct Model<'a> {
    setup: &'a mut Setup,
    reports: &'a Reports,
    claims: &'a [Claim],
    /// What was reported last about each device; it only rises.
    values: &'a mut [u64; CLAIMS],
    prepared: [bool; CLAIMS],
    /// The newest version of each that anybody has seen.
    generations: BTreeMap<usize, u64>,
    inodes: BTreeMap<usize, u64>,
    open: Vec<Opened>,
}

impl Model<'_> {
    fn path(&self, claim: usize) -> PathBuf {
        let uid = &self.claims[claim].uid;
        self.setup.machine.path(&format!("metadata/by-uid/{uid}/r/claimfs.dev-metadata.json"))
    }

    /// What a document says of its version and of its device. Both parts of it must say the same.
    fn parse(bytes: &[u8]) -> (u64, u64) {
        let documents = serde_json::Deserializer::from_slice(bytes).into_iter::<serde_json::Value>();
        let said: Vec<(u64, u64)> = documents
            .map(|document| {
                let document = document.unwrap();
                let value = &document["requests"][0]["devices"][0]["attributes"]["value"]["int"];
                (document["metadata"]["generation"].as_u64().unwrap(), value.as_u64().unwrap_or(0))
            })
            .collect();
        assert!(said.len() == 2 && said[0] == said[1], "{said:?}");
        said[0]
    }

    fn becomes<T: PartialEq + std::fmt::Debug>(look: impl Fn() -> T, wanted: &T) {
        let deadline = Instant::now() + DEADLINE;
        while look() != *wanted {
            assert!(Instant::now() < deadline, "{:?}, wanted {wanted:?}", look());
        }
    }

    async fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Prepare(claim) => {
                self.setup.prepare(&self.claims[claim]).await.unwrap();
                self.prepared[claim] = true;
                assert!(self.path(claim).exists(), "it is there before the answer");
            }
            Operation::Unprepare(claim) => {
                self.setup.unprepare(&self.claims[claim]).await.unwrap();
                self.prepared[claim] = false;
                Self::becomes(|| self.path(claim).exists(), &false);
                self.generations.remove(&claim);
                // What is not there any more may be read to its end, but not after a take-over.
                self.open.retain(|opened| opened.claim != claim);
            }
            Operation::Update(claim) => {
                self.values[claim] += 1;
                let value = self.values[claim];
                self.reports
                    .write(&format!("gpu-{claim}"), &format!("attributes: {{value: {{int: {value}}}}}\n"));
                if self.prepared[claim] {
                    let path = self.path(claim);
                    Self::becomes(|| Self::parse(&fs::read(&path).unwrap()).1, &value);
                }
            }
            Operation::Open(claim) => {
                let opened = File::open(self.path(claim));
                assert_eq!(opened.is_ok(), self.prepared[claim], "{opened:?}");
                let Ok(file) = opened else { return };
                let mut bytes = vec![0; 1 << 16];
                let size = file.read_at(&mut bytes, 0).unwrap();
                bytes.truncate(size);
                let (generation, value) = Self::parse(&bytes);
                let newest = self.generations.entry(claim).or_insert(generation);
                assert!(generation >= *newest);
                *newest = generation;
                if self.open.len() < MOST_OPEN {
                    self.open.push(Opened { claim, file, bytes, value });
                }
            }
            Operation::Read(index, offset, size) => {
                let Some(Opened { file, bytes, .. }) = self.open.get(index) else { return };
                let mut buffer = vec![0; size];
                let read = file.read_at(&mut buffer, offset).unwrap();
                let from = usize::try_from(offset).unwrap().min(bytes.len());
                assert_eq!(&buffer[..read], &bytes[from..(from + size).min(bytes.len())]);
            }
            Operation::Poll(index) => {
                let Some(Opened { file, value, claim, .. }) = self.open.get(index) else { return };
                // Whether a value was reported that it does not have; then it is woken, whoever serves.
                let is_old = *value < self.values[*claim];
                let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
                poll(&mut polled, if is_old { PollTimeout::from(20_000_u16) } else { PollTimeout::ZERO })
                    .unwrap();
                let is_new = polled[0].revents().unwrap().contains(PollFlags::POLLPRI);
                assert!(is_new || !is_old);
            }
            Operation::Close(index) => {
                if index < self.open.len() {
                    self.open.remove(index);
                }
            }
            Operation::Stat(claim) => {
                let path = self.path(claim);
                assert_eq!(path.exists(), self.prepared[claim]);
                if self.prepared[claim] {
                    let size = || fs::metadata(&path).unwrap().len();
                    Self::becomes(|| fs::read(&path).unwrap().len() as u64 == size(), &true);
                    let found = fs::metadata(&path).unwrap();
                    assert_eq!(found.mode() & 0o7777, 0o444);
                    assert_eq!(*self.inodes.entry(claim).or_insert(found.ino()), found.ino());
                }
            }
            Operation::List => {
                let all = self.claims.iter().zip(self.prepared);
                let mut wanted: Vec<String> =
                    all.filter(|(_, prepared)| *prepared).map(|(claim, _)| claim.uid.clone()).collect();
                wanted.sort();
                let folder = self.setup.machine.path("metadata/by-uid");
                Self::becomes(|| names(&folder), &wanted);
            }
            Operation::TakeOver => self.setup.restart(drop).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn the_daemon_does_what_the_model_does() {
    let (mut setup, reports) = setup("model", &[]).await;
    let claims: Vec<Claim> = (0..CLAIMS)
        .map(|index| setup.claim(&format!("c{index}"), &[("r", &format!("gpu-{index}"))]))
        .collect();
    let mut values = [0; CLAIMS];
    let runner = Config { cases: 24, failure_persistence: None, max_shrink_iters: 20, ..Config::default() };
    let (setup, values) = (std::cell::RefCell::new(&mut setup), std::cell::RefCell::new(&mut values));
    let outcome = block_in_place(|| {
        TestRunner::new(runner).run(&proptest::collection::vec(operation(), 1..60), |operations| {
            let (mut setup, mut values) = (setup.borrow_mut(), values.borrow_mut());
            let mut model = Model {
                setup: &mut setup,
                reports: &reports,
                claims: &claims,
                values: &mut values,
                prepared: [false; CLAIMS],
                generations: BTreeMap::new(),
                inodes: BTreeMap::new(),
                open: Vec::new(),
            };
            Handle::current().block_on(async {
                for operation in &operations {
                    model.apply(operation).await;
                }
                for claim in 0..CLAIMS {
                    model.apply(&Operation::Unprepare(claim)).await;
                }
            });
            Ok(())
        })
    });
    outcome.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and Go: hack/test runs it"]
async fn a_reader_that_waits_is_woken_whoever_serves() {
    let (mut setup, reports) = setup("woken", &[]).await;
    let claim = setup.claim("a", &[("r", "gpu-0")]);
    setup.prepare(&claim).await.unwrap();
    let path = setup.machine.path(&format!("metadata/by-uid/{}/r/claimfs.dev-metadata.json", claim.uid));
    let file = File::open(&path).unwrap();
    let waiting = tokio::task::spawn_blocking(move || {
        let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        // At its end it would look again by itself.
        poll(&mut polled, PollTimeout::from(60_000_u16)).unwrap();
        polled[0].revents().unwrap().contains(PollFlags::POLLPRI)
    });
    let notes = setup.machine.path("run/versions.waiting");
    let deadline = Instant::now() + DEADLINE;
    while fs::metadata(&notes).unwrap().len() == 0 {
        assert!(Instant::now() < deadline, "nobody waits");
    }
    for _ in 0..3 {
        setup.restart(drop).await;
    }
    assert!(!waiting.is_finished(), "nothing is new");
    reports.write("gpu-0", "health: unhealthy\n");
    let woken = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(woken.expect("it is woken").unwrap());
}
