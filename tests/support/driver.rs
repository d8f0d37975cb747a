//! The real daemon: in the namespaces of a cluster, or beside a stand-in for the kubelet.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use super::{
    DEADLINE,
    cluster::{Cluster, command},
};

/// The lines that a daemon logs.
struct Logs(Mutex<Receiver<String>>);

impl Logs {
    fn of(child: &mut Child) -> Self {
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, logs) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(Mutex::new(logs))
    }

    /// Waits for a line with a text; answers with it.
    fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        let logs = self.0.lock().unwrap();
        let mut seen = Vec::new();
        loop {
            match logs.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no {text:?} in the log ({error}):\n{}", seen.join("\n")),
            }
        }
    }
}

/// A `claimfs node` that runs in the namespaces of a cluster's node, as it does in real life.
pub struct Driver<'a> {
    cluster: &'a Cluster,
    child: Child,
    run_dir: PathBuf,
    logs: Logs,
}

impl<'a> Driver<'a> {
    /// Starts it with a configuration and waits until it is registered and published.
    pub fn start(cluster: &'a Cluster, config: &str) -> Self {
        Self::start_in(cluster, "driver", config)
    }

    /// The same with a run folder of this name, beside others.
    pub fn start_in(cluster: &'a Cluster, folder: &str, config: &str) -> Self {
        let run_dir = cluster.dir().join(folder);
        // The first has the usual place, the others have their own.
        let mount_point = match folder {
            "driver" => PathBuf::from("/var/run/kubernetes.io/dra-device-attributes"),
            _ => run_dir.join("metadata"),
        };
        fs::create_dir_all(&run_dir).unwrap();
        let file = run_dir.join("config.yaml");
        fs::write(&file, config).unwrap();
        let mut child = command(cluster.name())
            .args(["exec", env!("CARGO_BIN_EXE_claimfs"), "node", "--node-name", cluster.node()])
            .arg("--config")
            .arg(file)
            .arg("--kubeconfig")
            .arg(cluster.dir().join("admin.conf"))
            .arg("--kubelet-dir")
            .arg(cluster.kubelet_dir())
            .arg("--run-dir")
            .arg(&run_dir)
            .arg("--mount-point")
            .arg(mount_point)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let logs = Logs::of(&mut child);
        let driver = Self { cluster, child, run_dir, logs };
        driver.wait_for("\"message\":\"ready\"");
        driver
    }

    /// Waits for a line in its log.
    pub fn wait_for(&self, text: &str) -> String {
        self.logs.wait_for(text)
    }

    /// Its number in the namespaces of the cluster.
    fn pid(&self) -> String {
        fs::read_to_string(self.run_dir.join("lock")).unwrap().trim().to_owned()
    }

    /// Ends it as an update does.
    pub fn stop(mut self) {
        self.cluster.exec(&["kill", "-TERM", &self.pid()]);
        assert!(self.child.wait().unwrap().success());
    }

    /// Ends it as nobody wants.
    pub fn kill(mut self) {
        self.cluster.exec(&["kill", "-KILL", &self.pid()]);
        self.child.wait().unwrap();
    }

    /// What it has logged since somebody last looked.
    pub fn log(&self) -> Vec<String> {
        self.logs.0.lock().unwrap().try_iter().collect()
    }

    /// What the journal says about claims.
    pub fn journal(&self) -> Vec<String> {
        names(&self.run_dir.join("claims"))
    }
}

/// A machine with folders of its own, on which daemons come and go.
pub struct Machine {
    folder: TempDir,
    node: String,
    kubeconfig: PathBuf,
    /// What its daemons are started with besides.
    pub flags: Vec<&'static str>,
    /// Where its daemons mount the file system, if not in its folder.
    pub mount_point: Option<PathBuf>,
    /// What is done in a mount namespace of their own before, in the machine's folder.
    pub before: Option<&'static str>,
}

/// Nothing can be written but in the machine's folder.
pub const READ_ONLY_ROOT: &str = "mount --bind . . && mount -o remount,bind,ro /";

impl Machine {
    /// A node of this name in a control plane.
    pub fn new(plane: &Cluster, node: &str, config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("config.yaml"), config).unwrap();
        fs::write(folder.path().join("boot_id"), "boot-1\n").unwrap();
        fs::create_dir(folder.path().join("dev")).unwrap();
        plane.apply("apply", &format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n"));
        Self {
            folder,
            node: node.to_owned(),
            kubeconfig: plane.kubeconfig().to_owned(),
            flags: Vec::new(),
            mount_point: None,
            before: None,
        }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The kubelet's folder.
    pub fn kubelet(&self) -> PathBuf {
        self.path("kubelet")
    }

    /// The command line of a daemon.
    pub fn command(&self) -> Command {
        let mut command = match self.before {
            None => Command::new(binary()),
            Some(before) => {
                let mut command = Command::new("unshare");
                let script = format!("cd \"$0\" && {before} && exec \"$@\"");
                command.args(["--mount", "--propagation", "private", "sh", "-ec", &script]);
                command.arg(self.folder.path()).arg(binary());
                command
            }
        };
        command.args(["node", "--node-name", &self.node]).args(&self.flags);
        for (flag, path) in [
            ("--config", "config.yaml"),
            ("--kubelet-dir", "kubelet"),
            ("--cdi-dir", "cdi"),
            ("--run-dir", "run"),
            ("--boot-id", "boot_id"),
            ("--dev", "dev"),
        ] {
            command.arg(flag).arg(self.path(path));
        }
        let mount_point = self.mount_point.clone().unwrap_or_else(|| self.path("metadata"));
        command.arg("--mount-point").arg(mount_point);
        command.arg("--kubeconfig").arg(&self.kubeconfig).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts a daemon; it need not be ready.
    pub fn start(&self) -> Daemon {
        Daemon::spawn(&mut self.command())
    }

    /// A path as a daemon in a mount namespace of its own sees it.
    pub fn seen_by(&self, daemon: &Daemon, path: &str) -> PathBuf {
        let inside = self.path(path);
        Path::new(&format!("/proc/{}/root", daemon.id())).join(inside.strip_prefix("/").unwrap())
    }

    /// As the daemon tells it: without links.
    fn run_dir(&self) -> PathBuf {
        self.path("run").canonicalize().unwrap_or_else(|_| self.path("run"))
    }

    /// The holders of this machine, in whatever namespace they are.
    pub fn holders(&self) -> Vec<Pid> {
        let run_dir = self.run_dir();
        let is_one = |pid: &Pid| {
            let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments: Vec<&str> = arguments.split('\0').collect();
            arguments.get(1) == Some(&"hold") && arguments.contains(&run_dir.to_str().unwrap())
        };
        let processes = names(Path::new("/proc"));
        processes.iter().filter_map(|name| name.parse().ok().map(Pid::from_raw)).filter(is_one).collect()
    }

    /// Ends them as nobody wants.
    pub fn kill_holders(&self) {
        for holder in self.holders() {
            let _ = kill(holder, Signal::SIGKILL);
        }
    }

    pub fn specs(&self) -> Vec<String> {
        names(&self.path("cdi"))
    }

    pub fn journal(&self) -> Vec<String> {
        names(&self.path("run/claims"))
    }
}

/// The holder is to outlive daemons, but not the machine.
impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_holders();
        // A run folder can be a link to somewhere else.
        let folders = [self.folder.path().to_owned(), self.run_dir()];
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let paths = table.lines().filter_map(|line| line.split(' ').nth(4));
        let is_ours = |path: &&str| folders.iter().any(|folder| Path::new(path).starts_with(folder));
        let ours: Vec<&str> = paths.filter(is_ours).collect();
        for path in ours.iter().rev() {
            let _ = nix::mount::umount2(*path, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// A `claimfs node` beside the test.
pub struct Daemon {
    child: Child,
    logs: Logs,
}

impl Daemon {
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let logs = Logs::of(&mut child);
        Self { child, logs }
    }

    pub fn wait_for(&self, text: &str) -> String {
        self.logs.wait_for(text)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as an update does.
    pub fn stop(mut self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    /// Waits for an end that nobody asked for.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

/// Without a word, as a crash: a test that fails leaves no daemon.
impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The daemon that is tested; a benchmark names the one that users get.
pub fn binary() -> String {
    std::env::var("CLAIMFS_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_claimfs").to_owned())
}

/// The files in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
