//! The live file system on a real mount: whole versions under a storm of updates, and the same answers as a
//! model of it.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{
            fs::{FileExt, MetadataExt},
            net::UnixDatagram,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use claimfs::{
    fs::{Connection, Live, Server, Step, Store},
    hold::{Client, Places, Starter},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg},
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tempfile::TempDir;

/// A file system that is mounted for as long as this lives, served by this very process.
struct Mounted {
    live: Arc<Live>,
    holder: Child,
    places: Places,
    _client: Client,
    folder: TempDir,
}

/// Starts a holder with a command that is complete but for its arguments.
fn hold(command: &mut Command, places: &Places) -> Child {
    let run_dir = places.socket.parent().unwrap();
    command.args(["hold", "--log", "warn", "--run-dir"]).arg(run_dir);
    command.arg("--mount-point").arg(&places.mount_point).spawn().unwrap()
}

impl Mounted {
    fn new() -> Self {
        Self::held(&mut Command::new(env!("CARGO_BIN_EXE_claimfs")))
    }

    fn held(command: &mut Command) -> Self {
        let folder = TempDir::new().unwrap();
        let run_dir = folder.path().join("run");
        fs::create_dir(&run_dir).unwrap();
        let mount_point = folder.path().join("mount");
        let places = Places::new(&run_dir, &mount_point, Duration::from_secs(60), Starter::Somebody).unwrap();
        let holder = hold(command, &places);
        let deadline = Instant::now() + Duration::from_secs(20);
        let client = loop {
            match Client::connect(&places.socket) {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        let live = Arc::new(Live::new(Store::open(places.versions.clone()).unwrap()));
        let device = client.mount().unwrap();
        let server = Server::start(&live, Connection { device, greeting: None }).unwrap();
        client.keep(server.greeting, None).unwrap();
        Self { live, holder, places, _client: client, folder }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.places.mount_point.join(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
        nix::mount::umount2(&self.places.mount_point, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}

fn steps(path: &str) -> Vec<Step> {
    path.split('/').map(Step::new).collect()
}

/// A document whose every part has its own number, so that a torn one is seen.
fn document(generation: u64, size: usize) -> Vec<u8> {
    let values = vec![generation.to_string(); size];
    format!("{{\"generation\": {generation}, \"values\": [{}]}}\n", values.join(", ")).into_bytes()
}

fn generation_of(text: &str) -> u64 {
    let document: serde_json::Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:.200}"));
    let generation = document["generation"].as_u64().unwrap();
    assert!(document["values"].as_array().unwrap().iter().all(|value| value.as_u64() == Some(generation)));
    generation
}

/// A reader in Go that decodes from the stream, as upstream's does.
fn decoder(folder: &Path) -> PathBuf {
    let program = folder.join("decoder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decoder");
    let built = Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status();
    assert!(built.unwrap().success());
    program
}

/// Lets the kernel copy the file to a pipe, and reads by itself when it does not, as busybox and others do.
const COPIER: &str = r"
import json, os, sys, time
newest, copied, refused = 0, 0, 0
receiver, sender = os.pipe()
def parts(file):
    global copied, refused
    try:
        while size := os.sendfile(sender, file, None, 4096):
            copied += 1
            yield os.read(receiver, size)
    except OSError:
        refused += 1
        while part := os.read(file, 4096):
            yield part
end = time.time() + 9
while time.time() < end:
    file = os.open(sys.argv[1], os.O_RDONLY)
    document = json.loads(b''.join(parts(file)))
    os.close(file)
    assert set(document['values']) == {document['generation']}
    assert document['generation'] >= newest
    newest = document['generation']
print(f'{copied} parts copied, {refused} files read')
";

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_storm_of_updates_tears_nothing() {
    const STORM: Duration = Duration::from_secs(10);
    let mounted = Mounted::new();
    mounted.live.publish(&steps("a/f"), |generation| document(generation, 300)).unwrap();
    let path = mounted.path("a/f");
    let over = AtomicBool::new(false);
    let (updates, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    let read_in = |chunk: usize| {
        let mut newest = 0;
        while !over.load(Ordering::Relaxed) {
            let mut file = File::open(&path).unwrap();
            let (mut text, mut buffer) = (Vec::new(), vec![0; chunk]);
            loop {
                match file.read(&mut buffer).unwrap() {
                    0 => break,
                    size => text.extend_from_slice(&buffer[..size]),
                }
            }
            let generation = generation_of(std::str::from_utf8(&text).unwrap());
            assert!(generation >= newest, "{generation} after {newest}");
            newest = generation;
            reads.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for writer in 0..5 {
            let (live, over, updates) = (&mounted.live, &over, &updates);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // Documents of different lengths, and now and then one that is so already.
                    let size = 200 + writer * 100;
                    live.publish(&steps("a/f"), |generation| document(generation, size)).unwrap();
                    updates.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for chunk in [1, 512, 4096] {
            scope.spawn(move || read_in(chunk));
        }
        let python = "import json, sys, time\nend = time.time() + 9\nnewest = 0\nwhile time.time() < end:\n    \
                      generation = json.load(open(sys.argv[1]))['generation']\n    assert generation >= newest\n    newest = generation\n";
        let python = Command::new("python3").args(["-c", python]).arg(&path).spawn();
        let cat = Command::new("sh")
            .args(["-ec", "end=$(($(date +%s) + 9)); while [ $(date +%s) -lt $end ]; do cat \"$0\" | tail -c 3 | grep -q ']}'; done"])
            .arg(&path)
            .spawn();
        let go = Command::new(decoder(mounted.folder.path())).arg(&path).arg("9s").spawn();
        let copiers =
            [(); 2].map(|()| Command::new("python3").args(["-c", COPIER]).arg(&path).spawn().unwrap());
        thread::sleep(STORM);
        over.store(true, Ordering::Relaxed);
        for mut child in [python.unwrap(), cat.unwrap(), go.unwrap()].into_iter().chain(copiers) {
            assert!(child.wait().unwrap().success());
        }
    });
    let kept = names(&mounted.live.versions_of(&steps("a/f"))).len();
    assert!(kept <= 2, "{kept} versions are kept, and nobody has any of them open");
    println!("{} updates, {} whole reads", updates.into_inner(), reads.into_inner());
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_reader_that_polls_is_woken() {
    let mounted = Mounted::new();
    let publish = |size| mounted.live.publish(&steps("f"), |generation| document(generation, size)).unwrap();
    publish(10);
    let file = File::open(mounted.path("f")).unwrap();
    let wait = |timeout: u16| {
        let mut polled = [PollFd::new(std::os::fd::AsFd::as_fd(&file), PollFlags::POLLPRI)];
        poll(&mut polled, PollTimeout::from(timeout)).unwrap();
        polled[0].revents().unwrap().contains(PollFlags::POLLPRI)
    };
    assert!(!wait(50), "nothing is new");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(20_000));
        // It need not wait already: what comes before is not missed either.
        publish(20);
        assert!(waiting.join().unwrap());
    });
    assert!(wait(0), "it stays so until the file is opened again");
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(generation_of(&text), 1);
}

/// Each way of letting the kernel do it, with how it must end.
const UNREAD: &str = r"
import mmap, os, signal, sys
file = os.open(sys.argv[1], os.O_RDONLY)
receiver, sender = os.pipe()
def refused(copy):
    try:
        sys.exit(f'{copy()} bytes of a version that may be any')
    except OSError as error:
        print(error.strerror)
refused(lambda: os.sendfile(sender, file, None, 4096))
refused(lambda: os.splice(file, sender, 4096))
refused(lambda: mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ).size())
private = mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
if child := os.fork():
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(f'a mapping was read: {ended}' if ended != -signal.SIGBUS else 0)
private[0]
";

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn what_the_kernel_would_copy_or_map_must_be_read() {
    let mounted = Mounted::new();
    mounted.live.publish(&steps("f"), |generation| document(generation, 2000)).unwrap();
    let path = mounted.path("f");
    let refused = Command::new("python3").args(["-c", UNREAD]).arg(&path).output().unwrap();
    assert!(refused.status.success(), "{}", String::from_utf8_lossy(&refused.stderr));
    println!("{}", String::from_utf8_lossy(&refused.stdout));
    // Programs that try a copy first, and read when they may not.
    let copy = mounted.folder.path().join("copy");
    for program in [
        "busybox cat \"$0\" >\"$1\"",
        "busybox cat \"$0\" | cat >\"$1\"",
        "busybox cp \"$0\" \"$1\"",
        "cat \"$0\" >\"$1\"",
        "cp \"$0\" \"$1\"",
        "python3 -c 'import shutil, sys; shutil.copyfile(sys.argv[1], sys.argv[2])' \"$0\" \"$1\"",
    ] {
        let done = Command::new("sh").args(["-ec", program]).args([&path, &copy]).status().unwrap();
        assert!(done.success(), "{program}");
        assert_eq!(fs::read(&copy).unwrap(), document(1, 2000), "{program}");
        fs::remove_file(&copy).unwrap();
    }
    std::io::copy(&mut File::open(&path).unwrap(), &mut File::create(&copy).unwrap()).unwrap();
    assert_eq!(fs::read(&copy).unwrap(), document(1, 2000));
}

/// What is done to the file system, on one of a few paths.
#[derive(Debug, Clone)]
enum Operation {
    Publish(usize, u16),
    Remove(usize),
    Open(usize),
    Read(usize, u64, usize),
    Close(usize),
    Stat(usize),
    List(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0..PATHS.len(), 0..2000_u16).prop_map(|(path, size)| Operation::Publish(path, size)),
        1 => (0..PATHS.len()).prop_map(Operation::Remove),
        3 => (0..PATHS.len()).prop_map(Operation::Open),
        4 => (0..8_usize, 0..9000_u64, 0..9000_usize).prop_map(|(file, offset, size)| Operation::Read(file, offset, size)),
        2 => (0..8_usize).prop_map(Operation::Close),
        3 => (0..PATHS.len()).prop_map(Operation::Stat),
        2 => (0..FOLDERS.len()).prop_map(Operation::List),
    ]
}

const PATHS: [&str; 5] = ["a/x/f", "a/x/g", "a/y/f", "b/f", "top"];
const FOLDERS: [&str; 4] = ["", "a", "a/x", "a/y"];

/// What the file system should be.
#[derive(Default)]
struct Model {
    /// The newest version and its bytes; those that were removed begin anew.
    files: BTreeMap<&'static str, (u64, Vec<u8>)>,
    inodes: BTreeMap<&'static str, u64>,
    open: Vec<(File, Vec<u8>)>,
}

impl Model {
    fn names(&self, folder: &str) -> Option<Vec<String>> {
        let below = |path: &str| match folder {
            "" => Some(path.to_owned()),
            folder => path.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned),
        };
        let mut names: Vec<String> = self
            .files
            .keys()
            .filter_map(|path| below(path))
            .map(|rest| rest.split('/').next().unwrap().to_owned())
            .collect();
        names.dedup();
        (folder.is_empty() || !names.is_empty()).then_some(names)
    }

    fn apply(&mut self, mounted: &Mounted, operation: &Operation) {
        match *operation {
            Operation::Publish(path, size) => {
                let path = PATHS[path];
                let bytes = |generation| document(generation, usize::from(size));
                mounted.live.publish(&steps(path), bytes).unwrap();
                let before = self.files.get(path).map(|(generation, _)| *generation);
                let same = before.filter(|before| self.files[path].1 == bytes(*before));
                let generation = same.unwrap_or_else(|| before.unwrap_or(0) + 1);
                self.files.insert(path, (generation, bytes(generation)));
            }
            Operation::Remove(path) => {
                mounted.live.remove(&steps(PATHS[path]), 0).unwrap();
                self.files.remove(PATHS[path]);
            }
            Operation::Open(path) => {
                match (File::open(mounted.path(PATHS[path])), self.files.get(PATHS[path])) {
                    (Ok(file), Some((_, bytes))) if self.open.len() < 8 => {
                        self.open.push((file, bytes.clone()));
                    }
                    (Ok(_), Some(_)) => {}
                    (Err(error), None) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
                    (opened, expected) => panic!("{opened:?}, expected {:?}", expected.is_some()),
                }
            }
            Operation::Read(file, offset, size) => {
                let Some((file, bytes)) = self.open.get(file) else { return };
                let mut buffer = vec![0; size];
                let read = file.read_at(&mut buffer, offset).unwrap();
                let from = usize::try_from(offset).unwrap().min(bytes.len());
                assert_eq!(&buffer[..read], &bytes[from..(from + size).min(bytes.len())]);
            }
            Operation::Close(file) => {
                if file < self.open.len() {
                    self.open.remove(file);
                }
            }
            Operation::Stat(path) => {
                let expected = self.files.get(PATHS[path]).map(|(_, bytes)| bytes.len() as u64);
                let look = || fs::metadata(mounted.path(PATHS[path])).ok().map(|it| it.len());
                become_so(look, &expected);
                if expected.is_some() {
                    let found = fs::metadata(mounted.path(PATHS[path])).unwrap();
                    assert_eq!(found.mode() & 0o7777, 0o444);
                    assert_eq!(*self.inodes.entry(PATHS[path]).or_insert(found.ino()), found.ino());
                }
            }
            Operation::List(folder) => {
                let path = mounted.path(FOLDERS[folder]);
                become_so(|| list(&path).ok(), &self.names(FOLDERS[folder]));
            }
        }
    }
}

/// What the kernel remembers of names and sizes follows within milliseconds; what is opened is never old.
fn become_so<T: PartialEq + std::fmt::Debug>(look: impl Fn() -> T, expected: &T) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while look() != *expected {
        assert!(Instant::now() < deadline, "{:?}, expected {expected:?}", look());
    }
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn the_mount_does_what_the_model_does() {
    let mounted = Mounted::new();
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let operations = proptest::collection::vec(operation(), 1..120);
    runner
        .run(&operations, |operations| {
            // What an earlier case has left.
            for path in PATHS {
                mounted.live.remove(&steps(path), 0).unwrap();
            }
            let mut model = Model::default();
            for operation in &operations {
                model.apply(&mounted, operation);
            }
            Ok(())
        })
        .unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    list(folder).unwrap()
}

fn list(folder: &Path) -> std::io::Result<Vec<String>> {
    let name = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().unwrap());
    let mut names = fs::read_dir(folder)?.map(name).collect::<std::io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// The store of a service manager that speaks systemd's protocol: what it was given, by name.
fn store(socket: &UnixDatagram) -> BTreeMap<String, OwnedFd> {
    let mut store = BTreeMap::new();
    while store.len() < 2 {
        let mut text = [0; 4096];
        let mut control = nix::cmsg_space!([i32; 1]);
        let mut pieces = [std::io::IoSliceMut::new(&mut text)];
        let message =
            recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)
                .unwrap();
        let descriptor = message.cmsgs().unwrap().find_map(|part| match part {
            ControlMessageOwned::ScmRights(numbers) => numbers.first().copied(),
            _ => None,
        });
        let size = message.bytes;
        let said = String::from_utf8_lossy(&text[..size]).into_owned();
        if let (Some(name), Some(descriptor)) = (said.strip_prefix("FDSTORE=1\nFDNAME="), descriptor) {
            // SAFETY: the kernel has just made it for us.
            #[allow(unsafe_code)]
            store.insert(name.to_owned(), unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    store
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_descriptor_store_keeps_the_connection_when_the_holder_dies() {
    let folder = TempDir::new().unwrap();
    let notify = folder.path().join("notify");
    let socket = UnixDatagram::bind(&notify).unwrap();
    let mounted = Mounted::held(Command::new(env!("CARGO_BIN_EXE_claimfs")).env("NOTIFY_SOCKET", &notify));
    mounted.live.publish(&steps("f"), |generation| document(generation, 10)).unwrap();
    let store = store(&socket);
    let Mounted { holder, places, .. } = &mounted;
    let pid = nix::unistd::Pid::from_raw(holder.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    // The shell has the number that the holder will have, and passes the descriptors on as the first ones.
    let script = "exec 3<&\"$0\" 4<&\"$1\"; shift; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=claimfs-connection:claimfs-greeting exec \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", script]);
    for name in ["claimfs-connection", "claimfs-greeting"] {
        // Inherited, and under a number that is none of those that it gets: one would take the other's place.
        let number = nix::fcntl::fcntl(&store[name], nix::fcntl::FcntlArg::F_DUPFD(100)).unwrap();
        command.arg(number.to_string());
    }
    command.arg(env!("CARGO_BIN_EXE_claimfs"));
    let mut second = hold(&mut command, places);
    let deadline = Instant::now() + Duration::from_secs(20);
    // The new holder has it without having been told by the server.
    let taken = loop {
        match Client::connect(&places.socket).and_then(|client| client.take()) {
            Ok(taken) => break taken,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    let (_, greeting) = taken.expect("a connection");
    assert!(!greeting.is_empty());
    assert_eq!(generation_of(&fs::read_to_string(mounted.path("f")).unwrap()), 1);
    second.kill().unwrap();
    second.wait().unwrap();
}
