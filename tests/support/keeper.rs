//! A machine within this machine: namespaces and control groups of its own, of which nothing is left.

use std::{
    env, fs,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// All that runs in it ends with it.
pub struct Keeper {
    child: Child,
    group: String,
}

impl Keeper {
    /// A command becomes its first process.
    pub fn start(first: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // As clusters of tests are called, so that hack/test finds what is left.
        let checkout = env::var("CLAIMFS_TEST_CHECKOUT").unwrap_or_else(|_| String::from("0"));
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = format!("claimfs-t-{}x{count}-{checkout}", std::process::id());
        // A test that is killed takes it along.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"])
            .args(["hack/cluster.d/within", &group])
            .args(first)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, group }
    }

    /// Its first process, as it is numbered outside.
    pub fn init(&self) -> String {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.trim().to_owned()
    }

    /// A command in it.
    pub fn command(&self, program: &str) -> Command {
        // What a script starts in the background ignores interrupts, and so would all that is tested.
        let enter = ". hack/cluster.d/groups && join_group \"$1\" && shift && exec env --default-signal nsenter \"$@\"";
        let mut command = Command::new("bash");
        command.args(["-c", enter, "bash", &self.group, "--mount", "--pid", "--cgroup", "--target"]);
        command.args([&self.init(), program]).current_dir(env!("CARGO_MANIFEST_DIR"));
        command
    }
}

/// A test that fails leaves no process, mount or container.
impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let script = ". hack/cluster.d/groups && remove_group /sys/fs/cgroup \"$1\"";
        let mut sweep = Command::new("bash");
        sweep.args(["-c", script, "bash", &self.group]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let _ = sweep.status();
    }
}
