//! The units in `deploy/systemd`, under a real systemd: on a machine within this one, whose files are those of the host
//! and of an installation.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{fs, path::PathBuf, process::Command};

use support::{
    alone::{KEPT, eventually, output, said},
    installed::install,
    keeper::Keeper,
    podman::busybox,
};
use tempfile::TempDir;

/// What systemd takes for a reason to set up hardware or the kernel is read-only.
const BOOT: &str = r#"
    set -e
    place=$1 busybox=$2
    mount --make-rslave /
    mount -t tmpfs tmpfs "$place/changes"
    mkdir "$place"/changes/{upper,work,root}
    cp -a "$place/installed/." "$place/changes/upper"
    root=$place/changes/root
    mount -t overlay overlay -o "lowerdir=/,upperdir=$place/changes/upper,workdir=$place/changes/work" "$root"
    . hack/cluster.d/groups
    show_groups "$place/changes/groups"
    mount -t proc proc "$root/proc"
    mount --bind -o ro "$root/proc/sys" "$root/proc/sys"
    mount --rbind /sys "$root/sys"
    mount -o remount,bind,ro "$root/sys"
    for folder in dev run tmp; do mount -t tmpfs -o mode=755 tmpfs "$root/$folder"; done
    mkdir "$root/dev/pts" "$root/dev/shm"
    cp -a /dev/{full,fuse,null,random,tty,urandom,zero} "$root/dev"
    touch "$root/dev/console"
    mkdir -p "$root"/shared "$root"/box/{bin,dev,proc,sys,etc,run,var,shared}
    ln -s ../run "$root/box/var/run"
    cp "$busybox" "$root/box/bin/busybox"
    for applet in $("$busybox" --list); do [ "$applet" = busybox ] || ln -s busybox "$root/box/bin/$applet"; done
    mkdir "$root/checkout"
    mount --bind . "$root/checkout"
    cd "$root"
    mkdir -p before
    pivot_root . before
    umount --lazy /before
    mount --make-rshared /
    exec env -i PATH="$PATH" container=claimfs-test /lib/systemd/systemd --unit=basic.target --log-target=console
"#;

/// What the container does: reads, and counts what fails.
const READ: &str = r#"
    file=$(echo /var/run/kubernetes.io/dra-device-attributes/*/*/*/*-metadata.json)
    reads=0 errors=0
    while [ ! -e /shared/stop ]; do
        if text=$(cat "$file") && [ -n "$text" ]; then reads=$((reads+1)); else errors=$((errors+1)); fi
        echo "$reads" >/shared/reads.new && mv /shared/reads.new /shared/reads
    done
    echo "$reads $errors"
"#;

struct Booted {
    keeper: Keeper,
    _place: TempDir,
}

impl Booted {
    fn boot() -> Self {
        let place = TempDir::new().unwrap();
        for folder in ["changes", "installed"] {
            fs::create_dir(place.path().join(folder)).unwrap();
        }
        install(&place.path().join("installed"), &[]);
        let (path, busybox) = (place.path().display().to_string(), busybox().display().to_string());
        let keeper = Keeper::start(&["bash", "-c", BOOT, "bash", &path, &busybox]);
        let booted = Self { keeper, _place: place };
        // Before that the files of this machine would be seen, and its systemd asked.
        eventually("its files are its own", || booted.path("/box/bin/sh").symlink_metadata().is_ok());
        eventually("systemd is there", || {
            let state = output(booted.command("systemctl").arg("is-active").arg("basic.target"));
            state.stdout == b"active\n"
        });
        booted
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.keeper.command(program);
        command.env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1");
        command
    }

    fn systemctl(&self, words: &[&str]) -> String {
        said(self.command("systemctl").args(words))
    }

    /// A property of a unit.
    fn property(&self, unit: &str, name: &str) -> String {
        self.systemctl(&["show", "--value", "--property", name, unit]).trim().to_owned()
    }

    /// A path of it as it is seen from here.
    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.keeper.init()))
    }

    fn reads(&self) -> u64 {
        fs::read_to_string(self.path("/shared/reads"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Waits until the container has read again.
    fn reads_on(&self, after: &str) {
        let before = self.reads();
        eventually(&format!("the container reads after {after}"), || self.reads() > before + 1);
    }
}

#[test]
#[ignore = "needs root and systemd, and builds the release: hack/test runs it"]
fn the_units_serve_and_no_read_fails_whichever_of_them_ends() {
    let machine = Booted::boot();
    // A daemon and a holder that a command has started have a claim that stays; the units come in their place.
    let create = format!("echo '{KEPT}' | claimfs claim create -f -");
    said(machine.command("sh").args(["-c", &create]));
    machine.systemctl(&["enable", "claimfs-hold", "claimfs"]);
    machine.systemctl(&["start", "--no-block", "claimfs-hold", "claimfs"]);
    for unit in ["claimfs-hold", "claimfs"] {
        eventually(&format!("{unit} runs"), || machine.property(unit, "ActiveState") == "active");
    }
    eventually("systemd keeps the connection", || {
        machine.property("claimfs-hold", "NFileDescriptorStore") == "2"
    });
    // The daemon needs no privilege; the holder has it.
    let daemon = machine.property("claimfs", "MainPID");
    let capabilities = said(machine.command("grep").args(["CapEff", &format!("/proc/{daemon}/status")]));
    assert_eq!(capabilities, "CapEff:\t0000000000000000\n");
    let status = said(machine.command("claimfs").arg("status"));
    let holder = machine.property("claimfs-hold", "MainPID");
    for expected in [&format!("process {daemon}; metadata: fuse, holder {holder}, "), "default/kept"] {
        assert!(status.contains(expected), "{expected} is not in: {status}");
    }

    let mut run = machine.command("claimfs");
    run.args([
        "run",
        "--device-class",
        "claimfs.dev",
        "--select",
        "device.attributes['claimfs.dev'].source == 'gpu'",
    ]);
    run.args(["--", "podman", "--runtime=runc", "--cgroup-manager=cgroupfs", "--root=/run/storage"]);
    run.args(["--runroot=/run/storage-run", "run", "--rm", "--network=host", "--ulimit=nofile=1000:1000"]);
    run.args(["--ulimit=nproc=1000:1000", "--env=PATH=/bin", "--volume=/shared:/shared", "--rootfs", "/box"]);
    let container = run.args(["sh", "-c", READ]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    machine.reads_on("its start");
    for (unit, signal) in [("claimfs-hold", "KILL"), ("claimfs", "KILL"), ("claimfs-hold", "TERM")] {
        let before = machine.property(unit, "MainPID");
        machine.systemctl(&["kill", "--signal", signal, unit]);
        eventually(&format!("systemd starts {unit} again"), || {
            let now = machine.property(unit, "MainPID");
            now != "0" && now != before
        });
        machine.reads_on(&format!("{signal} to {unit}"));
    }
    for unit in ["claimfs-hold", "claimfs"] {
        machine.systemctl(&["restart", unit]);
        machine.reads_on(&format!("a restart of {unit}"));
    }
    // What is stopped for longer than a moment has its readers wait, and fails none of them.
    machine.systemctl(&["stop", "claimfs"]);
    machine.systemctl(&["start", "claimfs"]);
    machine.reads_on("a stop of claimfs");
    fs::write(machine.path("/shared/stop"), "").unwrap();
    let read = container.wait_with_output().unwrap();
    let counted = String::from_utf8(read.stdout).unwrap();
    let (reads, errors) = counted.trim().split_once(' ').unwrap_or_else(|| panic!("{counted:?}"));
    println!("{reads} reads, {errors} errors");
    assert_eq!(errors, "0");
    assert_eq!(machine.property("claimfs-hold", "NFileDescriptorStore"), "2");
    said(machine.command("claimfs").args(["claim", "delete", "kept"]));
    // It can be removed also while a daemon is there that a command has started.
    said(machine.command("systemctl").args(["stop", "claimfs", "claimfs-hold"]));
    said(machine.command("claimfs").arg("status").env("CLAIMFS_UNTIL_IDLE", "2"));
    let removed = output(machine.command("/checkout/hack/install").arg("--remove"));
    assert!(removed.status.success(), "{removed:?}");
    let left = "ls -d /run/claimfs /usr/local/bin/claimfs /etc/systemd/system/claimfs* 2>/dev/null; pidof claimfs; \
        grep -e fuse.claimfs -e /run/claimfs /proc/self/mountinfo; ls /run/cdi; true";
    assert_eq!(said(machine.command("sh").args(["-c", left])), "", "{removed:?}");
}
