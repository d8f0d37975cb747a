//! A machine without a cluster: namespaces of its own, with a `/run` of its own, in which real runtimes run.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{DEADLINE, driver::binary, keeper::Keeper, podman::busybox};

/// In control groups of its own. All that runs in it ends with its first process, which also takes note of the ends of
/// others. The root of containers has a busybox and a folder that the test sees, too.
const SCRIPT: &str = r#"
    set -e
    mount --make-rslave /
    # One that runs outside stays in the list of mounts, also where it cannot be seen any more.
    awk '$3 == "fuse.claimfs" { print $2 }' /proc/self/mounts | xargs --no-run-if-empty umount --lazy
    mount -t tmpfs tmpfs /run
    . hack/cluster.d/groups
    show_groups /run/groups
    mkdir -p /var/lib/containers /run/root/bin /run/root/dev /run/root/proc /run/root/sys /run/root/etc /run/root/run /run/root/var /run/root/shared
    ln -s ../run /run/root/var/run
    cp "$2" /run/root/bin/busybox
    for applet in $(/run/root/bin/busybox --list); do [ "$applet" = busybox ] || ln -s busybox /run/root/bin/$applet; done
    touch "$1/ready"
    sleep infinity & wait
"#;

/// What podman needs where limits and control groups are not its own.
const PODMAN: &[&str] = &[
    "--root",
    "/run/storage",
    "--runroot",
    "/run/storage-run",
    "--cgroup-manager=cgroupfs",
    "run",
    "--network=host",
    "--ulimit",
    "nofile=1000:1000",
    "--ulimit",
    "nproc=1000:1000",
    "--env",
    "PATH=/bin",
];

/// A claim for one device of any kind.
pub const KEPT: &str = r#"{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "kept"},
    "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "claimfs.dev"}}]}}}"#;

/// A machine; another boot of it can follow.
pub struct Host {
    keeper: Keeper,
    pub folder: TempDir,
}

impl Host {
    /// With this configuration.
    pub fn new(config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("config.yaml"), config).unwrap();
        for name in ["shared", "objects"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self::boot(folder)
    }

    fn boot(folder: TempDir) -> Self {
        let _ = fs::remove_file(folder.path().join("ready"));
        let (place, busybox) = (folder.path().display().to_string(), busybox().display().to_string());
        let keeper = Keeper::start(&["bash", "-c", SCRIPT, "bash", &place, &busybox]);
        let host = Self { keeper, folder };
        eventually("the machine is there", || host.folder.path().join("ready").exists());
        host
    }

    /// Everything ends at once, as at a power cut; what is on the disk stays.
    pub fn reboot(self) -> Self {
        let Self { keeper, folder } = self;
        drop(keeper);
        Self::boot(folder)
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// A command on this machine.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.keeper.command(program);
        command.env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1").env("CLAIMFS_NODE_NAME", "n1");
        command
            .env("CLAIMFS_CONFIG", self.path("config.yaml"))
            .env("CLAIMFS_OBJECTS_DIR", self.path("objects"));
        command.stdin(Stdio::null());
        command
    }

    pub fn claimfs(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&binary());
        command.args(arguments);
        command
    }

    /// `claimfs run` of a script in a container of podman, which sees the folder `/shared`.
    pub fn podman(&self, claim: &[&str], options: &[&str], script: &str) -> Command {
        self.podman_by("runc", claim, options, script)
    }

    /// The same, with another runtime below it.
    pub fn podman_by(&self, runtime: &str, claim: &[&str], options: &[&str], script: &str) -> Command {
        let shared = format!("{}:/shared", self.path("shared").display());
        let mut command = self.claimfs(&["run"]);
        command.args(claim).args(["--", "podman", "--runtime", runtime]);
        command.args(PODMAN).args(options).args(["--volume", &shared]);
        command.args(["--rootfs", "/run/root", "sh", "-c", script]);
        command
    }

    /// `claimfs run` of a script on the machine itself, in the shared folder.
    pub fn plain(&self, claim: &[&str], script: &str) -> Command {
        let script = format!("cd {} && {script}", self.path("shared").display());
        let mut command = self.claimfs(&["run"]);
        command.args(claim).args(["--plain", "--", "sh", "-c", &script]);
        command
    }

    pub fn status(&self) -> Value {
        let output = said(self.claimfs(&["status", "-o", "json"]));
        serde_json::from_str(&output).unwrap()
    }

    /// Waits until the status is as wanted.
    pub fn status_becomes(&self, what: &str, wanted: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let status = self.status();
            if wanted(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {status:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The processes of `claimfs WORD` on this machine, as they are numbered outside.
    pub fn processes(&self, word: &str) -> Vec<i32> {
        let is_one = |arguments: &[&str]| is_program(arguments, "claimfs") && arguments.get(1) == Some(&word);
        self.processes_that(is_one)
    }

    /// The processes of another program.
    pub fn named(&self, program: &str) -> Vec<i32> {
        self.processes_that(|arguments| is_program(arguments, program))
    }

    fn processes_that(&self, is_one: impl Fn(&[&str]) -> bool) -> Vec<i32> {
        let namespace = fs::read_link(format!("/proc/{}/ns/pid", self.keeper.init())).unwrap();
        let is_here =
            |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|other| other == namespace);
        let entries = fs::read_dir("/proc").unwrap();
        let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_wanted = |pid: &i32| {
            let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            is_one(&text.split('\0').collect::<Vec<&str>>()) && is_here(*pid)
        };
        processes.filter(is_wanted).collect()
    }

    /// Everything of claims that is there: objects, runs, specs, the journal and what is mounted for containers.
    pub fn leftovers(&self) -> Vec<String> {
        let script = "cd / && ls -d run/claimfs/runs/* run/cdi/* run/claimfs/claims/* run/claimfs/anchors/* 2>/dev/null; \
                      grep ' /run/claimfs/anchors/' /proc/self/mountinfo; ls -A \"$CLAIMFS_OBJECTS_DIR/claims\"; true";
        let mut command = self.command("sh");
        said(command.args(["-c", script])).lines().map(str::to_owned).collect()
    }

    /// Waits until nothing of claims is left.
    pub fn is_clean(&self) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let leftovers = self.leftovers();
            if leftovers.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "still there: {leftovers:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn is_program(arguments: &[&str], program: &str) -> bool {
    arguments.first().is_some_and(|path| path.rsplit('/').next() == Some(program))
}

/// Waits for something that nobody tells.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What a command says that succeeds.
pub fn said(command: impl std::borrow::BorrowMut<Command>) -> String {
    let output = output(command);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn output(mut command: impl std::borrow::BorrowMut<Command>) -> Output {
    command.borrow_mut().output().unwrap()
}

/// Starts it in a group of its own, so that it can be killed with what it has started.
pub fn spawn(mut command: Command) -> Child {
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What `claimfs status --watch -o json` reports, each within a deadline.
pub fn reports(watch: &mut Child) -> impl Iterator<Item = Value> + use<> {
    let (sender, reports) = mpsc::channel();
    let output = watch.stdout.take().unwrap();
    let stream = serde_json::Deserializer::from_reader(output).into_iter::<Value>();
    thread::spawn(move || stream.map_while(Result::ok).try_for_each(|report| sender.send(report)));
    std::iter::from_fn(move || match reports.recv_timeout(DEADLINE) {
        Ok(report) => Some(report),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("nothing was reported for long"),
    })
}

/// A shipped example.
pub fn example(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path);
    path.to_str().unwrap().to_owned()
}
