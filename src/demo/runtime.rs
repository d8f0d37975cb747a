//! The container runtime of this machine, and a root file system for its containers: the programs of the host, so that
//! no image has to be pulled.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Error, actors::Program, ended, interrupt};
use crate::{
    check::{self, Line},
    runtime::Runtime,
};

/// Folders of the host that its programs are in.
const PROGRAMS: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// A runtime that was seen to run a container.
pub(super) struct Tried {
    kind: Runtime,
    /// Where its containers' root is, and what it keeps.
    folder: PathBuf,
    program: PathBuf,
    limits: Limits,
}

/// What a machine lets containers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limits {
    /// What the runtime asks for.
    Usual,
    /// Less: within another container, for example.
    Few,
}

impl Tried {
    /// The first that runs a container.
    pub(super) fn find(
        folder: &Path,
        cdi: &Path,
        program: &Program,
        among: &[Runtime],
    ) -> Result<Self, Error> {
        let root = folder.join("root");
        make_root(&root).map_err(Error::io(format!("cannot make {}", root.display())))?;
        let mut tried = Vec::new();
        for &kind in among {
            interrupt::check()?;
            match check::runtime(kind, cdi) {
                Some(Line { fix: None, .. }) => {}
                Some(Line { text, fix: Some(fix), .. }) => {
                    tried.push(format!("{text} ({fix})"));
                    continue;
                }
                None => {
                    tried.push(format!("there is no {kind}"));
                    continue;
                }
            }
            for limits in [Limits::Usual, Limits::Few] {
                let runtime =
                    Self { kind, folder: folder.to_owned(), program: program.path().to_owned(), limits };
                match runtime.try_out() {
                    Ok(()) => return Ok(runtime),
                    Err(reason) => tried.push(format!("{kind}: {reason}")),
                }
                runtime.clear();
                interrupt::check()?;
            }
        }
        interrupt::check()?;
        tried.dedup();
        let reasons = tried.join("; ");
        Err(if among.len() == 1 { Error::NotThisOne(reasons) } else { Error::NoRuntime(reasons) })
    }

    fn try_out(&self) -> Result<(), String> {
        if self.kind == Runtime::Docker {
            self.import()?;
        }
        let words = self.words("true");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1");
        let output = ended::output(&mut command).map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(said.lines().next_back().unwrap_or("it fails").trim().to_owned())
    }

    /// Docker takes images only.
    fn import(&self) -> Result<(), String> {
        let root = self.folder.join("root");
        let mut script = Command::new("sh");
        script.args(["-c", "tar -C \"$0\" -c . | docker import - \"$1\""]).arg(root).arg(self.name());
        let output = ended::output(&mut script).map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    /// What containers and images are called: nobody else has our folder.
    fn name(&self) -> String {
        self.folder.file_name().map(|name| name.display().to_string()).unwrap_or_default()
    }

    /// As people would write it.
    pub(super) fn shown(&self) -> String {
        format!("{} run --rm …", self.kind)
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
        if self.kind == Runtime::Podman {
            words.extend(["--root".to_owned(), path("storage"), "--runroot".to_owned(), path("storage-run")]);
            if self.limits == Limits::Few {
                words.extend(["--runtime=runc", "--cgroup-manager=cgroupfs"].map(str::to_owned));
            }
        }
        words.extend(["run", "--rm"].map(str::to_owned));
        if matches!(self.kind, Runtime::Docker | Runtime::Nerdctl) {
            words.push(format!("--name={}", self.name()));
        }
        if matches!(self.kind, Runtime::Podman | Runtime::Docker) {
            // Where SELinux guards containers, it lets them neither write into our folder nor run our program.
            words.push(String::from("--security-opt=label=disable"));
        }
        if self.kind != Runtime::Ctr {
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
                Runtime::Ctr => format!("--mount=type=bind,src={from},dst={to},options=rbind:{how}"),
                _ => format!("--volume={from}:{to}:{how}"),
            });
        }
        match self.kind {
            Runtime::Docker => words.push(self.name()),
            Runtime::Ctr => words.extend(["--rootfs".to_owned(), path("root"), self.name()]),
            Runtime::Podman | Runtime::Nerdctl => words.extend(["--rootfs".to_owned(), path("root")]),
        }
        words.extend(["/bin/sh", "-c", script].map(str::to_owned));
        words.into_iter().map(OsString::from).collect()
    }

    /// Takes away what it keeps outside our folder: also containers, where it was killed before it could do so.
    pub(super) fn clear(&self) {
        let lines: &[&[&str]] = match self.kind {
            // All of it is in our folder.
            Runtime::Podman => &[],
            Runtime::Docker => &[&["rm", "--force"], &["image", "rm", "--force"]],
            Runtime::Nerdctl => &[&["rm", "--force"]],
            Runtime::Ctr => &[&["task", "rm", "--force"], &["container", "rm"]],
        };
        for line in lines {
            // There need not be one, and what is left is small.
            let _ = ended::output(Command::new(self.kind.name()).args(*line).arg(self.name()));
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
