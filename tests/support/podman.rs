//! Real containers, without a cluster: podman with a root of its own.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use nix::poll::{PollFd, PollFlags, poll};
use tempfile::TempDir;

use super::driver::Machine;

/// podman reads specs from fixed folders, so it gets a `/run` of its own; as a slave of the host's mounts, so that what
/// is mounted there later arrives. Without limits podman asks for more than a machine may give.
const SCRIPT: &str = r#"
    set -e
    mount -t tmpfs tmpfs /run
    mkdir -p /var/lib/containers /run/cdi /run/root/bin /run/root/dev /run/root/proc /run/root/sys /run/root/etc /run/root/run /run/root/var
    ln -s ../run /run/root/var/run
    cp "$1"/*.json /run/cdi/ && cp "$2" /run/root/bin/busybox
    for applet in $(/run/root/bin/busybox --list); do [ "$applet" = busybox ] || ln -s busybox /run/root/bin/$applet; done
    folder=$3; shift 3
    export PODMAN_IGNORE_CGROUPSV1_WARNING=1
    exec podman --root /run/storage --runroot /run/storage-run --runtime runc --cgroup-manager=cgroupfs run --rm \
      --network=host --ulimit nofile=1000:1000 --ulimit nproc=1000:1000 --env PATH=/bin --volume "$folder:/shared" "$@"
"#;

const SILENCE: u16 = 60_000;

/// A container that runs.
pub struct Container {
    child: Child,
    output: BufReader<ChildStdout>,
    shared: TempDir,
}

impl Container {
    /// Runs a script in a container with these CDI devices and options of podman.
    pub fn start(machine: &Machine, devices: &[String], options: &[&str], script: &str) -> Self {
        let shared = TempDir::new().unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "bash", "-c", SCRIPT, "bash"]);
        command.arg(machine.path("cdi")).arg(busybox()).arg(shared.path()).args(options);
        for device in devices {
            command.args(["--device", device]);
        }
        command.args(["--rootfs", "/run/root", "sh", "-c", script]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output, shared }
    }

    /// The next line that it prints; one that prints nothing for long is stuck.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        if self.output.buffer().is_empty() {
            let mut ready = [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut ready, SILENCE), Ok(1), "the container has printed nothing for a minute");
        }
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// A path that it sees as `/shared/…`.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.shared.path().join(name)
    }

    /// Lets it see a file `/shared/stop`, and answers with the last line that it prints.
    pub fn stop(mut self) -> String {
        fs::write(self.shared("stop"), "").unwrap();
        let mut last = String::new();
        loop {
            match self.line() {
                line if line.is_empty() => break,
                line => last = line,
            }
        }
        assert!(self.child.wait().unwrap().success(), "{last}");
        last
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // One that has been stopped has ended already.
        let _ = fs::write(self.shared.path().join("stop"), "");
        let _ = self.child.wait();
    }
}

/// A busybox without shared libraries.
pub fn busybox() -> PathBuf {
    let output = Command::new("bash")
        .args(["-c", ". hack/cluster.d/common && busybox_static"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    Path::new(String::from_utf8(output.stdout).unwrap().trim()).to_owned()
}
