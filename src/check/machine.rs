//! The kernel, the folders and the configuration.

use std::{fs, io, path::Path};

use nix::{
    sys::{
        statfs::{TMPFS_MAGIC, statfs},
        utsname::uname,
    },
    unistd::{AccessFlags, Uid, access},
};

use super::{Code, Line, Places};
use crate::{
    config::Config,
    discover::{self, Roots},
    hold::kernel,
};

/// Looks at everything but runtimes and clusters.
#[must_use]
pub fn machine(places: &Places) -> Vec<Line> {
    vec![
        privilege(Uid::effective().is_root()),
        kernel_line(&release(), Kernel::now()),
        fuse(Path::new("/dev/fuse")),
        request_timeout(kernel::request_timeout()),
        propagation(&places.run, &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()),
        run_folder(&places.run),
        cdi_folder(&places.cdi),
        configuration(places),
        kubelet(&places.kubelet),
        selinux(fs::read_to_string("/sys/fs/selinux/enforce").ok().as_deref()),
    ]
}

fn privilege(is_root: bool) -> Line {
    if is_root {
        Line::ok(Code::Privilege, "runs as root")
    } else {
        let text = "does not run as root: nothing can be mounted or handed to containers";
        Line::fail(Code::Privilege, text, "run it with sudo")
    }
}

fn release() -> String {
    uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// What a kernel can do for device metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// Hand a file system over from one daemon to the next.
    Resends,
    /// Replace what is mounted in a running container.
    Swaps,
    /// Neither.
    Static,
}

impl Kernel {
    fn now() -> Self {
        match () {
            () if kernel::is_at_least(6, 9) => Self::Resends,
            () if kernel::is_at_least(6, 5) => Self::Swaps,
            () => Self::Static,
        }
    }
}

fn kernel_line(release: &str, kernel: Kernel) -> Line {
    let fix = "boot Linux 6.9 or newer for the live file system";
    match kernel {
        Kernel::Resends => {
            Line::ok(Code::Kernel, format!("Linux {release} keeps reads alive while the daemon is replaced"))
        }
        Kernel::Swaps => {
            let text =
                format!("Linux {release} cannot hand a file system over; metadata come from plain files");
            Line::warn(Code::Kernel, text, fix)
        }
        Kernel::Static => {
            let text =
                format!("Linux {release} cannot replace mounts; metadata stay as they were at the start");
            Line::warn(Code::Kernel, text, fix)
        }
    }
}

fn fuse(device: &Path) -> Line {
    match fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Line::ok(Code::Fuse, format!("{} can be opened", device.display())),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let text = format!("{} cannot be opened: {error}", device.display());
            Line::warn(Code::Fuse, text, "run it as root; in a container: --device /dev/fuse")
        }
        Err(error) => {
            let text =
                format!("{} cannot be opened: {error}; metadata come from plain files", device.display());
            Line::warn(Code::Fuse, text, "modprobe fuse; in a container: --device /dev/fuse")
        }
    }
}

fn request_timeout(seconds: Option<u32>) -> Line {
    match seconds {
        None => Line::ok(Code::RequestTimeout, "readers wait for the daemon as long as it takes"),
        Some(seconds) => Line::warn(
            Code::RequestTimeout,
            format!("the kernel ends the live file system when the daemon is gone for {seconds} s"),
            "sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0, before the daemon is started",
        ),
    }
}

/// Whether the mount that a folder is on is shared: only then does what is mounted there reach runtimes that have their
/// own view of the machine.
fn propagation(folder: &Path, mountinfo: &str) -> Line {
    let mounts = mountinfo.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let is_shared = fields
            .iter()
            .skip(6)
            .take_while(|field| **field != "-")
            .any(|field| field.starts_with("shared:"));
        Some((Path::new(*fields.get(4)?), is_shared))
    });
    // Of two on the same place, the later one is seen.
    let around = mounts
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.components().count());
    match around {
        Some((point, true)) => {
            Line::ok(Code::Propagation, format!("mounts below {} reach other namespaces", point.display()))
        }
        Some((point, false)) => Line::warn(
            Code::Propagation,
            format!(
                "mounts below {} stay in this namespace; a runtime in another one does not see them",
                point.display()
            ),
            format!("mount --make-rshared {}; in a pod: mountPropagation: Bidirectional", point.display()),
        ),
        None => Line::warn(Code::Propagation, "the mount table cannot be read", "mount /proc"),
    }
}

/// The nearest folder that exists.
fn existing(folder: &Path) -> &Path {
    folder.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"))
}

fn is_writable(folder: &Path) -> bool {
    access(existing(folder), AccessFlags::W_OK).is_ok()
}

fn run_folder(folder: &Path) -> Line {
    let name = folder.display();
    if !is_writable(folder) {
        let text = format!("{name} cannot be written");
        return Line::fail(Code::RunFolder, text, "name another with --run-dir");
    }
    if statfs(existing(folder)).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC) {
        Line::ok(Code::RunFolder, format!("{name} is in memory"))
    } else {
        let text = format!("{name} is on a disk: a prepare waits for it");
        Line::warn(Code::RunFolder, text, "mount a tmpfs there, or name another folder with --run-dir")
    }
}

fn cdi_folder(folder: &Path) -> Line {
    let name = folder.display();
    if is_writable(folder) {
        Line::ok(Code::CdiFolder, format!("{name} can be written"))
    } else {
        Line::fail(Code::CdiFolder, format!("{name} cannot be written"), "name another with --cdi-dir")
    }
}

fn configuration(places: &Places) -> Line {
    let path = places.config.display();
    if matches!(places.config.try_exists(), Ok(false)) {
        let fix = "write one (examples/config.yaml in the sources is a start), or name another with --config";
        return Line::warn(Code::Configuration, format!("there is no {path}"), fix);
    }
    let config = match Config::load(&places.config) {
        Ok(config) => config,
        Err(error) => {
            return Line::fail(Code::Configuration, error.to_string(), "correct the line that is named");
        }
    };
    let roots = Roots { dev: places.dev.clone(), sys: places.sys.clone() };
    if let Err(error) = discover::check(&config, &roots) {
        return Line::fail(
            Code::Configuration,
            error.to_string(),
            "--dev names the folder where the host's /dev is seen",
        );
    }
    match discover::scan(&config, &roots).devices.len() {
        0 => {
            let text = format!("{path} finds no device here");
            let fix = "plug in what it looks for, or correct the paths in it; claimfs devices --watch shows what comes";
            Line::warn(Code::Configuration, text, fix)
        }
        1 => Line::ok(Code::Configuration, format!("{path} finds 1 device")),
        count => Line::ok(Code::Configuration, format!("{path} finds {count} devices")),
    }
}

fn kubelet(folder: &Path) -> Line {
    let registry = folder.join("plugins_registry");
    let name = registry.display();
    match fs::metadata(&registry) {
        Ok(_) if is_writable(&registry) => Line::ok(Code::Kubelet, format!("{name} can be written")),
        Ok(_) => Line::fail(Code::Kubelet, format!("{name} cannot be written"), "run it as root"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Line::warn(
            Code::Kubelet,
            format!("there is no {name}: no kubelet runs here"),
            "none is needed without a cluster; else --kubelet-dir names its folder",
        ),
        Err(error) => Line::fail(Code::Kubelet, format!("{name}: {error}"), "--kubelet-dir names its folder"),
    }
}

fn selinux(enforce: Option<&str>) -> Line {
    match enforce.map(str::trim) {
        None | Some("0") => Line::ok(Code::SeLinux, "SELinux keeps containers from nothing"),
        Some(_) => Line::warn(
            Code::SeLinux,
            "SELinux is enforcing, with which claimfs was not tested: containers may not be allowed to read metadata",
            "where they are not, run them with --security-opt label=disable",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict;

    #[test]
    fn the_mount_that_is_nearest_decides() {
        let table = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda rw\n\
                     30 22 0:20 / /run rw - tmpfs tmpfs rw\n31 30 0:21 / /run/user rw shared:5 - tmpfs tmpfs rw\n";
        for (folder, expected) in
            [("/run/claimfs", Verdict::Warn), ("/var/x", Verdict::Ok), ("/run/user/1", Verdict::Ok)]
        {
            assert_eq!(propagation(Path::new(folder), table).verdict, expected, "{folder}");
        }
        assert_eq!(propagation(Path::new("/x"), "").verdict, Verdict::Warn);
    }

    #[test]
    fn what_is_missing_says_what_to_do() {
        let lines = [
            privilege(false),
            kernel_line("5.15", Kernel::Static),
            kernel_line("6.6", Kernel::Swaps),
            fuse(Path::new("/does/not/exist")),
            request_timeout(Some(30)),
            selinux(Some("1\n")),
            kubelet(Path::new("/does/not/exist")),
        ];
        assert!(lines.iter().all(|line| line.verdict != Verdict::Ok && line.fix.is_some()), "{lines:?}");
    }
}
