//! The container runtime of this machine, and a root file system for its containers: the programs of the host, so that
//! no image has to be pulled.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Error, actors::Program};

/// Folders of the host that its programs are in.
const PROGRAMS: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];
/// What Docker calls the root file system.
const IMAGE: &str = "claimfs-demo:1";

/// A runtime that was seen to run a container.
pub(super) struct Runtime {
    kind: Kind,
    /// Where its containers' root is, and what it keeps.
    folder: PathBuf,
    program: PathBuf,
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Podman,
    Docker,
    Nerdctl,
    Ctr,
}

/// What a machine lets containers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limits {
    /// What the runtime asks for.
    Usual,
    /// Less: within another container, for example.
    Few,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Nerdctl => "nerdctl",
            Self::Ctr => "ctr",
        }
    }
}

impl Runtime {
    /// The first that runs a container.
    pub(super) fn find(folder: &Path, program: &Program) -> Result<Self, Error> {
        let root = folder.join("root");
        make_root(&root).map_err(Error::io(format!("cannot make {}", root.display())))?;
        let mut tried = Vec::new();
        for kind in [Kind::Podman, Kind::Docker, Kind::Nerdctl, Kind::Ctr] {
            for limits in [Limits::Usual, Limits::Few] {
                let runtime =
                    Self { kind, folder: folder.to_owned(), program: program.path().to_owned(), limits };
                match runtime.try_out() {
                    Ok(()) => return Ok(runtime),
                    Err(reason) => tried.push(format!("{}: {reason}", kind.name())),
                }
            }
        }
        tried.dedup();
        Err(Error::NoRuntime(tried.join("; ")))
    }

    fn try_out(&self) -> Result<(), String> {
        if self.kind == Kind::Docker {
            self.import()?;
        }
        let words = self.words("true");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        let output = command
            .env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1")
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(said.lines().next_back().unwrap_or("it fails").trim().to_owned())
    }

    /// Docker takes images only.
    fn import(&self) -> Result<(), String> {
        let script = format!("tar -C {} -c . | docker import - {IMAGE}", self.folder.join("root").display());
        let output = Command::new("sh").args(["-c", &script]).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    /// As people would write it.
    pub(super) fn shown(&self) -> String {
        match self.kind {
            Kind::Ctr => String::from("ctr run --rm …"),
            kind => format!("{} run --rm …", kind.name()),
        }
    }

    /// The words of a `claimfs run` of a script in a container.
    pub(super) fn run(&self, claim: &[&str], script: &str) -> Vec<OsString> {
        let claim = claim.iter().map(OsString::from);
        let words = [OsString::from("run")].into_iter().chain(claim).chain([OsString::from("--")]);
        words.chain(self.words(script)).collect()
    }

    /// The command line of a container that runs a script.
    fn words(&self, script: &str) -> Vec<OsString> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let mut words = vec![self.kind.name().to_owned()];
        if self.kind == Kind::Podman {
            words.extend(["--root".to_owned(), path("storage"), "--runroot".to_owned(), path("storage-run")]);
            if self.limits == Limits::Few {
                words.extend(["--runtime=runc", "--cgroup-manager=cgroupfs"].map(str::to_owned));
            }
        }
        words.extend(["run", "--rm"].map(str::to_owned));
        if self.kind != Kind::Ctr {
            words.push(String::from("--network=none"));
            if self.limits == Limits::Few {
                words.extend(["--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000"].map(str::to_owned));
            }
        }
        let program = self.program.display().to_string();
        let binds = bound().into_iter().map(|folder| (folder.to_owned(), folder.to_owned(), "ro"));
        let ours =
            [(program, String::from("/claimfs"), "ro"), (path("shared"), String::from("/shared"), "rw")];
        for (from, to, how) in binds.chain(ours) {
            words.push(match self.kind {
                Kind::Ctr => format!("--mount=type=bind,src={from},dst={to},options=rbind:{how}"),
                _ => format!("--volume={from}:{to}:{how}"),
            });
        }
        match self.kind {
            Kind::Docker => words.push(IMAGE.to_owned()),
            Kind::Ctr => words.extend(["--rootfs".to_owned(), path("root"), "claimfs-demo".to_owned()]),
            Kind::Podman | Kind::Nerdctl => words.extend(["--rootfs".to_owned(), path("root")]),
        }
        words.extend(["/bin/sh", "-c", script].map(str::to_owned));
        words.into_iter().map(OsString::from).collect()
    }

    /// Takes away what it keeps outside our folder.
    pub(super) fn clear(&self) {
        if self.kind == Kind::Docker {
            let remove = Command::new("docker").args(["image", "rm", "--force", IMAGE]).output();
            // It is small, and a later run replaces it.
            drop(remove);
        }
    }
}

/// The folders that are no links.
fn bound() -> Vec<&'static str> {
    let is_folder = |path: &&str| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    PROGRAMS.into_iter().filter(is_folder).collect()
}

/// A root file system with places for everything, and the links that the host has.
fn make_root(root: &Path) -> std::io::Result<()> {
    for folder in ["dev", "proc", "sys", "etc", "tmp", "run", "var", "shared"] {
        fs::create_dir_all(root.join(folder))?;
    }
    symlink("../run", root.join("var/run"))?;
    fs::write(root.join("claimfs"), "")?;
    for path in PROGRAMS {
        let inside = root.join(path.trim_start_matches('/'));
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => symlink(fs::read_link(path)?, inside)?,
            Ok(_) => fs::create_dir_all(inside)?,
            Err(_) => {}
        }
    }
    Ok(())
}
