//! What claimfs does, shown on this machine in under a minute: a node with simulated devices, a real container that
//! reads about its own, and everything that can happen meanwhile. Nothing is left behind.
//!
//! It is also a test: a step that does not do what it says ends it.

mod actors;
mod runtime;
mod stage;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub use self::stage::{Pace, Stage};
use self::{
    actors::{Container, Daemon, Program},
    runtime::Runtime,
};

/// The driver of the demonstration: no other has its name.
const DRIVER: &str = "demo.claimfs.dev";
/// How often the daemon is killed.
const KILLS: u32 = 3;
/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why a demonstration ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It mounts, and starts containers.
    #[error("this is not root\nfix: run it with sudo")]
    NotRoot,
    /// There is nothing to run containers with.
    #[error(
        "no container can be started on this machine: {0}\nfix: install podman (hack/demo does), docker, nerdctl or containerd"
    )]
    NoRuntime(String),
    /// A step did not do what it says.
    #[error("{0}")]
    Unexpected(String),
    /// Something about the machine.
    #[error("{what}: {source}")]
    Io {
        /// What could not be done.
        what: String,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Shows everything. `folder` is an empty folder that is removed afterwards; `cdi` is where runtimes look for specs.
pub fn play(stage: &mut Stage, folder: &Path, cdi: &Path) -> Result<(), Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let set = Set::build(folder, cdi)?;
    let runtime = Runtime::find(folder, &set.program)?;
    let outcome = set.play(stage, &runtime);
    let cleared = set.clear(&runtime);
    outcome.and(cleared)
}

/// What it is played with.
struct Set {
    program: Program,
    reports: PathBuf,
    cdi: PathBuf,
}

impl Set {
    fn build(folder: &Path, cdi: &Path) -> Result<Self, Error> {
        let error = |path: &Path| Error::io(format!("cannot write {}", path.display()));
        let (config, reports, shared) =
            (folder.join("config.yaml"), folder.join("reports"), folder.join("shared"));
        for path in [&reports, &shared] {
            fs::create_dir_all(path).map_err(error(path))?;
        }
        let text = format!(
            "driver: {DRIVER}\nreports: {}\nsources:\n- name: gpu\n  simulated: {{count: 4}}\n  attributes: {{model: {{string: A100}}}}\n  \
             capacity: {{memory: 40Gi}}\n",
            reports.display()
        );
        fs::write(&config, text).map_err(error(&config))?;
        Ok(Self { program: Program::new(folder, &config, cdi)?, reports, cdi: cdi.to_owned() })
    }

    fn play(&self, stage: &mut Stage, runtime: &Runtime) -> Result<(), Error> {
        stage.step("a node with four simulated devices, and no cluster: claimfs node --standalone");
        let mut daemon = Daemon::start(&self.program)?;
        let status = self.program.output(&["status"])?;
        stage.show(&status);
        expect(status.contains("gpu-3"), "the node does not show its devices")?;

        let run = format!("claimfs run --device-class {DRIVER} -- {}", runtime.shown());
        stage.step(&format!("a container with one of them, which says what it sees of it: {run}"));
        let mut container = Container::start(&self.program, runtime)?;
        let seen = container.until("reading")?;
        stage.show(&seen);
        expect(seen.contains("gpu-0"), "the container does not see its device")?;

        stage.step("the device becomes unhealthy, and the running container sees it");
        let report = self.reports.join("gpu-0.yaml");
        let started = Instant::now();
        fs::write(&report, "health: unhealthy\nmessage: the fan stands still\n")
            .map_err(Error::io(format!("cannot write {}", report.display())))?;
        container.until("unhealthy")?;
        stage.show(&format!("seen in the container after {} ms\n", started.elapsed().as_millis()));

        stage.step(&format!("the daemon is killed {KILLS} times (kill -9) while the container reads on"));
        for _ in 0..KILLS {
            daemon.kill()?;
            daemon = Daemon::start(&self.program)?;
            container.reads_on()?;
        }
        let (reads, errors) = container.stop()?;
        stage.show(&format!("{reads} reads, {errors} errors\n"));
        expect(errors == 0 && reads > 0, "reads failed while the daemon was away")?;

        stage.step("a device is asked for that this machine does not have");
        let selector = format!("device.attributes[\"{DRIVER}\"].model == \"H100\"");
        stage.show(&format!(
            "$ claimfs run --device-class {DRIVER} --select '{selector}' -- {}\n",
            runtime.shown()
        ));
        let refused =
            self.program.refused(&runtime.run(&["--device-class", DRIVER, "--select", &selector], "true"))?;
        stage.show(&refused);
        expect(refused.contains("is \"A100\""), "the refusal does not say why")?;

        stage.step("everything ends, and nothing is left");
        daemon.end(&self.program)?;
        let left = self.left();
        expect(left.is_empty(), &format!("still there: {}", left.join(", ")))?;
        stage.show("no claim, no CDI spec, no mount\n");
        Ok(())
    }

    /// What should be gone in the end.
    fn left(&self) -> Vec<String> {
        let specs = fs::read_dir(&self.cdi).into_iter().flatten().flatten();
        let names = specs.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = self.program.folder().display().to_string();
        let mounted =
            mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|path| path.starts_with(&folder));
        names.filter(|name| name.contains(DRIVER)).chain(mounted.map(str::to_owned)).collect()
    }

    /// Ends what a step that failed has left.
    fn clear(&self, runtime: &Runtime) -> Result<(), Error> {
        runtime.clear();
        if self.left().is_empty() {
            return Ok(());
        }
        Daemon::start(&self.program)?.end(&self.program)
    }
}

fn expect(is_so: bool, otherwise: &str) -> Result<(), Error> {
    if is_so { Ok(()) } else { Err(Error::Unexpected(otherwise.to_owned())) }
}
