//! Runtimes that are daemons, and what a container of the examples prints, on a machine without a cluster.

use std::{
    env, fs,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

use super::alone::{Host, eventually, example, output, said};

/// What a container of the example claim says of its devices.
pub const LOOK: &str = "env | grep -e CLAIMFS_DEVICE -e ENTROPY | sort; head -c 4 /dev/random | wc -c; \
    cat /var/run/kubernetes.io/dra-device-attributes/resourceclaims/train/gpu/claimfs.dev-metadata.json; exit 7";

/// The machine that the examples are for, with their class.
pub fn example_host() -> Host {
    let host = Host::new(include_str!("../../examples/config.yaml"));
    fs::create_dir(host.path("objects/classes")).unwrap();
    fs::copy(example("standalone/classes/gpu.yaml"), host.path("objects/classes/gpu.yaml")).unwrap();
    host
}

/// Two simulated devices, a real node, variables, metadata, and the status of what ran.
pub fn assert_example(output: &Output) {
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "CLAIMFS_DEVICE_ENTROPY_0=random\nCLAIMFS_DEVICE_ENTROPY_0_PATH=/dev/random\n\
        CLAIMFS_DEVICE_GPU_0=gpu-0\nCLAIMFS_DEVICE_GPU_1=gpu-1\nENTROPY=hardware\n4\n";
    let metadata = text.strip_prefix(expected).unwrap_or_else(|| panic!("{text}"));
    let metadata = serde_json::Deserializer::from_str(metadata).into_iter::<Value>().next().unwrap().unwrap();
    assert_eq!(metadata["requests"][0]["devices"][1]["name"], "gpu-1", "{metadata}");
}

/// A search path that begins with things that `hack/cluster.d/build` has built.
pub fn path_with(modules: &[&str]) -> String {
    let mut path: Vec<String> = modules.iter().map(|module| built(module)).collect();
    path.push(env::var("PATH").unwrap());
    path.join(":")
}

fn built(module: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    said(Command::new("hack/cluster.d/build").arg(module).current_dir(root)).trim().to_owned()
}

/// A daemon that makes containers.
pub struct Engine<'h> {
    host: &'h Host,
    child: Child,
    path: String,
}

impl<'h> Engine<'h> {
    pub fn containerd(host: &'h Host) -> Self {
        let config = host.path("containerd.toml");
        let text = "version = 3\nroot = '/run/containerd-root'\nstate = '/run/containerd'\ndisabled_plugins = \
             ['io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images', 'io.containerd.grpc.v1.cri']\n";
        fs::write(&config, text).unwrap();
        let path = path_with(&["nerdctl", "containerd", "runc"]);
        Self::start(host, path, &["containerd", "--config", config.to_str().unwrap()], &["ctr", "version"])
    }

    /// Docker takes images only: one of the root that the others use is there, too.
    pub fn docker(host: &'h Host, options: &[&str]) -> Self {
        let config = host.path("daemon.json");
        fs::write(&config, "{}").unwrap();
        let daemon = [
            "dockerd",
            "--config-file",
            config.to_str().unwrap(),
            "--data-root=/run/docker-root",
            "--exec-root=/run/docker-exec",
            "--pidfile=/run/docker.pid",
            "--host=unix:///run/docker.sock",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--userland-proxy=false",
        ];
        let path = path_with(&["docker", "containerd", "runc"]);
        let engine = Self::start(host, path, &[&daemon[..], options].concat(), &["docker", "version"]);
        let script = "tar -C /run/root -c . | docker import - box:1";
        said(engine.command("sh").args(["-c", script]));
        engine
    }

    fn start(host: &'h Host, path: String, daemon: &[&str], question: &[&str]) -> Self {
        let log = fs::File::create(host.path("engine.log")).unwrap();
        let mut command = host.command(daemon[0]);
        command.env("PATH", &path).args(&daemon[1..]);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let engine = Self { host, child, path };
        eventually(
            &format!("{} answers: see engine.log in {}", daemon[0], host.folder.path().display()),
            || output(engine.command(question[0]).args(&question[1..])).status.success(),
        );
        engine
    }

    /// A command that finds its programs.
    pub fn command(&self, program: &str) -> Command {
        self.with_path(self.host.command(program))
    }

    pub fn claimfs(&self, arguments: &[&str]) -> Command {
        self.with_path(self.host.claimfs(arguments))
    }

    /// `claimfs run` of the example claim; the rest makes a container.
    pub fn run(&self, words: &[&str]) -> Output {
        output(self.claimfs(&["run", "-f", &example("standalone/claim.yaml"), "--"]).args(words))
    }

    fn with_path(&self, mut command: Command) -> Command {
        command.env("PATH", &self.path).env("DOCKER_CONFIG", self.host.path("docker"));
        command
    }
}

/// Before its machine, which ends what it has started.
impl Drop for Engine<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
