//! Real clusters and control planes, by `hack/cluster`.
//!
//! A cluster is tethered to the process of the test: it ends with it, however that ends.

use std::{
    collections::BTreeMap,
    env,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{LazyLock, Once, mpsc},
    thread,
};

use nix::sys::{prctl, signal::Signal};

/// What to start.
#[derive(Clone, Copy)]
pub enum Part {
    /// etcd and the API server.
    ControlPlane,
    /// Those, with only one version of `resource.k8s.io`.
    OlderControlPlane(&'static str),
    /// The first, and a node with the runtime and version that the environment asks for.
    Node,
}

pub struct Cluster {
    name: String,
    /// Its standard input is the tether; none for a cluster that was there before us.
    up: Option<Child>,
    env: BTreeMap<String, String>,
}

impl Cluster {
    /// The one cluster that all tests of a binary share.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Cluster> = LazyLock::new(|| match env::var("CLAIMFS_TEST_KUBECONFIG") {
            Ok(kubeconfig) => Cluster::existing(kubeconfig),
            Err(_) => Cluster::start("node", Part::Node),
        });
        &SHARED
    }

    /// The one control plane that all tests of a binary share.
    pub fn shared_control_plane() -> &'static Self {
        static SHARED: LazyLock<Cluster> = LazyLock::new(|| Cluster::start("plane", Part::ControlPlane));
        &SHARED
    }

    /// A cluster of one node that somebody else made, with the kubelet's folders where they usually are.
    fn existing(kubeconfig: String) -> Self {
        let env = [("KUBECONFIG", kubeconfig), ("CLUSTER_KUBELET_DIR", String::from("/var/lib/kubelet"))];
        let env = env.map(|(name, value)| (name.to_owned(), value)).into();
        let mut cluster = Self { name: String::from("existing"), up: None, env };
        let node = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
        cluster.env.insert(String::from("CLUSTER_NODE"), node);
        cluster
    }

    /// Starts one and waits until it is ready.
    pub fn start(what: &str, part: Part) -> Self {
        die_with_the_runner();
        let name = name(what);
        let mut up = command(&name);
        up.args(["up", "--tether"]);
        match part {
            Part::ControlPlane => drop(up.arg("--control-plane")),
            Part::OlderControlPlane(version) => {
                up.args(["--control-plane", "--resource-api", version]);
            }
            Part::Node => {
                if let Ok(runtime) = env::var("CLAIMFS_TEST_RUNTIME") {
                    up.args(["--runtime", &runtime]);
                }
            }
        }
        if let Ok(version) = env::var("CLAIMFS_TEST_KUBERNETES") {
            up.args(["--kubernetes", &version]);
        }
        let mut up = up.stdin(Stdio::piped()).spawn().unwrap();
        // Waiting would close our end of standard input.
        let tether = up.stdin.take();
        assert!(
            up.wait().unwrap().success(),
            "cluster {name} did not start; its logs: hack/cluster --name {name} logs"
        );
        up.stdin = tether;
        let env = text(command(&name).arg("env"))
            .lines()
            .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { name, up: Some(up), env }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn node(&self) -> &str {
        &self.env["CLUSTER_NODE"]
    }

    pub fn kubeconfig(&self) -> &Path {
        Path::new(&self.env["KUBECONFIG"])
    }

    pub fn dir(&self) -> &Path {
        Path::new(&self.env["CLUSTER_DIR"])
    }

    pub fn kubelet_dir(&self) -> &Path {
        Path::new(&self.env["CLUSTER_KUBELET_DIR"])
    }

    /// What kubectl prints; it must succeed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        text(self.kubectl_command().args(arguments))
    }

    /// Sends a signal to the first process of a pod. With it ends whoever has sent it, perhaps before that is answered.
    pub fn signal(&self, pod: &str, signal: &str) {
        let status =
            self.kubectl_command().args(["exec", pod, "--", "kill", signal, "1"]).output().unwrap().status;
        assert!(matches!(status.code(), Some(0 | 137)), "{pod}: {status}");
    }

    /// Kills a component and keeps it down.
    pub fn stop_component(&self, component: &str) {
        text(command(&self.name).args(["stop", component]));
    }

    /// Starts it again.
    pub fn start_component(&self, component: &str) {
        text(command(&self.name).args(["start", component]));
    }

    /// Runs a command in the namespaces of the node.
    pub fn exec(&self, command_line: &[&str]) -> String {
        text(command(&self.name).arg("exec").args(command_line))
    }

    /// Gives objects to the API server; answers with what kubectl prints.
    pub fn apply(&self, verb: &str, objects: &str) -> String {
        self.apply_in(verb, "default", objects)
    }

    /// The same in another namespace, for objects that do not name one.
    pub fn apply_in(&self, verb: &str, namespace: &str, objects: &str) -> String {
        // A namespace that the objects bring along is theirs.
        let namespace = if objects.contains("namespace: ") { vec![] } else { vec!["--namespace", namespace] };
        // Several tests may apply the same object at the same time.
        let how: &[&str] = if verb == "apply" { &["--server-side", "--force-conflicts"] } else { &[] };
        self.kubectl_with(&[&namespace[..], &[verb, "-f", "-"], how].concat(), objects)
    }

    /// Sets the status of objects, as a scheduler does.
    pub fn apply_status(&self, objects: &str) -> String {
        self.kubectl_with(
            &["apply", "--server-side", "--force-conflicts", "--subresource=status", "-f", "-"],
            objects,
        )
    }

    fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        let mut kubectl = self.kubectl_command();
        kubectl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut kubectl = kubectl.spawn().unwrap();
        std::io::Write::write_all(&mut kubectl.stdin.take().unwrap(), input.as_bytes()).unwrap();
        succeeded("kubectl", kubectl.wait_with_output().unwrap())
    }

    fn kubectl_command(&self) -> Command {
        let mut kubectl = if self.up.is_some() {
            let mut ours = command(&self.name);
            ours.arg("kubectl");
            ours
        } else {
            Command::new("kubectl")
        };
        kubectl.env("KUBECONFIG", &self.env["KUBECONFIG"]);
        kubectl
    }

    /// Ends it, and waits until all of it is gone.
    pub fn down(self) {
        text(command(&self.name).arg("down"));
    }
}

/// Whoever kills the runner kills us, and so the tether. The kernel keeps this wish for a thread, so one
/// that never ends makes it.
fn die_with_the_runner() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (sender, done) = mpsc::channel();
        thread::spawn(move || {
            sender.send(prctl::set_pdeathsig(Signal::SIGKILL)).unwrap();
            loop {
                thread::park();
            }
        });
        done.recv().unwrap().unwrap();
    });
}

/// A name for this checkout, so that another one beside it has its own; `hack/test` says which it is.
pub fn name(what: &str) -> String {
    let checkout = env::var("CLAIMFS_TEST_CHECKOUT").unwrap_or_else(|_| {
        let mut hasher = DefaultHasher::new();
        env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
        format!("{:04x}", hasher.finish() & 0xffff)
    });
    format!("t-{what}-{checkout}")
}

/// `hack/cluster --name NAME`.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/cluster"));
    command.args(["--name", name]);
    command
}

/// Where `hack/cluster` keeps a cluster's files.
pub fn folder(name: &str) -> PathBuf {
    env::var_os("CLAIMFS_CLUSTERS")
        .map_or_else(|| PathBuf::from("/var/tmp/claimfs"), PathBuf::from)
        .join(name)
}

fn text(command: &mut Command) -> String {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    succeeded(&format!("{command:?}"), output)
}

fn succeeded(what: &str, output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
