//! The real daemon in a real cluster.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{
        Mutex,
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

use super::{
    DEADLINE,
    cluster::{Cluster, command},
};

/// A `claimfs node` that runs in the namespaces of a cluster's node, as it does in real life.
pub struct Driver<'a> {
    cluster: &'a Cluster,
    child: Child,
    run_dir: PathBuf,
    logs: Mutex<Receiver<String>>,
}

impl<'a> Driver<'a> {
    /// Starts it with a configuration and waits until it is registered and published.
    pub fn start(cluster: &'a Cluster, config: &str) -> Self {
        let run_dir = cluster.dir().join("driver");
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
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, logs) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let driver = Self { cluster, child, run_dir, logs: Mutex::new(logs) };
        driver.wait_for("\"message\":\"ready\"");
        driver
    }

    /// Waits for a line in its log.
    pub fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        let logs = self.logs.lock().unwrap();
        let mut seen = Vec::new();
        loop {
            match logs.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no {text:?} in the driver's log ({error}):\n{}", seen.join("\n")),
            }
        }
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

    /// What the journal says about claims.
    pub fn journal(&self) -> Vec<String> {
        names(&self.run_dir.join("claims"))
    }
}

/// The files in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
