//! What claimfs does, shown on this machine in under a minute: a node with simulated devices, a real container that
//! reads about its own, and everything that can happen meanwhile. Nothing is left behind.
//!
//! It is also a test: a step that does not do what it says ends it.

mod actors;
mod ended;
mod interrupt;
mod place;
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
    place::Place,
    runtime::Tried,
};
use crate::{hold::kernel, runtime::Runtime};

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
    /// The one that was asked for does not.
    #[error("{0}\nfix: without --runtime, others are tried as well")]
    NotThisOne(String),
    /// Somebody has seen enough.
    #[error("interrupted; everything is taken away")]
    Interrupted,
    /// A step did not do what it says.
    #[error("{0}")]
    Unexpected(String),
    /// It did not, and something is left.
    #[error("{failure}\nand not everything is taken away: {left}")]
    Left {
        /// Why it ended.
        failure: Box<Error>,
        /// What is left.
        left: Box<Error>,
    },
    /// The folder in which everything is.
    #[error("cannot use {}: {source}\nfix: TMPDIR names another folder", .path.display())]
    Folder {
        /// The folder, or something in it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something is mounted in it that cannot be taken away.
    #[error("cannot unmount {}: {source}\nfix: unmount it, and remove the folder", .path.display())]
    Mounted {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
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

/// Shows everything, with the first of some runtimes that runs a container, and takes it away again. `cdi` is where
/// runtimes look for specs.
pub fn play(stage: &mut Stage, cdi: &Path, among: &[Runtime]) -> Result<(), Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    interrupt::listen().map_err(Error::io("cannot wait for signals"))?;
    let place = Place::make(cdi)?;
    let outcome = play_in(&place, stage, cdi, among);
    both(outcome, place.clear())
}

/// How it ended, and whether everything is taken away.
fn both(outcome: Result<(), Error>, cleared: Result<(), Error>) -> Result<(), Error> {
    match (outcome, cleared) {
        (Err(failure), Err(left)) => Err(Error::Left { failure: Box::new(failure), left: Box::new(left) }),
        (outcome, cleared) => outcome.and(cleared),
    }
}

fn play_in(place: &Place, stage: &mut Stage, cdi: &Path, among: &[Runtime]) -> Result<(), Error> {
    let set = Set::build(place, cdi)?;
    let runtime = Tried::find(place.path(), cdi, &set.program, among)?;
    let outcome = set.play(stage, &runtime);
    let cleared = set.clear(&runtime);
    both(outcome, cleared)
}

/// What it is played with.
struct Set<'p> {
    place: &'p Place,
    program: Program,
    reports: PathBuf,
    cdi: PathBuf,
}

impl<'p> Set<'p> {
    fn build(place: &'p Place, cdi: &Path) -> Result<Self, Error> {
        let folder = place.path();
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
        Ok(Self { place, program: Program::new(folder, &config, cdi)?, reports, cdi: cdi.to_owned() })
    }

    fn play(&self, stage: &mut Stage, runtime: &Tried) -> Result<(), Error> {
        stage.step("a node with four simulated devices, and no cluster: claimfs node --standalone")?;
        let mut daemon = Daemon::start(&self.program)?;
        let status = self.program.output(&["status"])?;
        stage.show(&status);
        expect(status.contains("gpu-3"), "the node does not show its devices")?;

        let run = format!("claimfs run --device-class {DRIVER} -- {}", runtime.shown());
        stage.step(&format!("a container with one of them, which says what it sees of it: {run}"))?;
        let mut container = Container::start(&self.program, runtime)?;
        let seen = container.until("reading")?;
        stage.show(&seen);
        expect(seen.contains("gpu-0"), "the container does not see its device")?;

        stage.step("the device becomes unhealthy, and the running container sees it")?;
        if kernel::is_at_least(6, 5) {
            let report = self.reports.join("gpu-0.yaml");
            let started = Instant::now();
            fs::write(&report, "health: unhealthy\nmessage: the fan stands still\n")
                .map_err(Error::io(format!("cannot write {}", report.display())))?;
            container.until("unhealthy")?;
            stage.show(&format!("seen in the container after {} ms\n", started.elapsed().as_millis()));
        } else {
            stage.show("left out: only Linux 6.5 and newer can replace what a running container reads\n");
        }

        stage.step(&format!("the daemon is killed {KILLS} times (kill -9) while the container reads on"))?;
        for _ in 0..KILLS {
            daemon.kill()?;
            daemon = Daemon::start(&self.program)?;
            container.reads_on()?;
        }
        let (reads, errors) = container.stop()?;
        stage.show(&format!("{reads} reads, {errors} errors\n"));
        expect(errors == 0 && reads > 0, "reads failed while the daemon was away")?;

        stage.step("a device is asked for that this machine does not have")?;
        let selector = format!("device.attributes[\"{DRIVER}\"].model == \"H100\"");
        stage.show(&format!(
            "$ claimfs run --device-class {DRIVER} --select '{selector}' -- {}\n",
            runtime.shown()
        ));
        let refused =
            self.program.refused(&runtime.run(&["--device-class", DRIVER, "--select", &selector], "true"))?;
        stage.show(&refused);
        expect(refused.contains("is \"A100\""), "the refusal does not say why")?;

        stage.step("everything ends, and nothing is left")?;
        self.end(daemon)?;
        stage.show("no claim, no CDI spec, no mount\n");
        Ok(())
    }

    /// Lets a daemon take everything away. A runtime may still be clearing up behind a container.
    fn end(&self, daemon: Daemon) -> Result<(), Error> {
        daemon.end(&self.program)?;
        place::wait_for_all();
        let left = self.left()?;
        expect(left.is_empty(), &format!("still there: {}", left.join(", ")))
    }

    /// What should be gone in the end.
    fn left(&self) -> Result<Vec<String>, Error> {
        let specs = fs::read_dir(&self.cdi).into_iter().flatten().flatten();
        let names = specs.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mounts = self.place.mounts()?;
        let mounts = mounts.iter().map(|path| path.display().to_string());
        Ok(names.filter(|name| name.contains(DRIVER)).chain(mounts).collect())
    }

    /// Ends what a step that failed has left.
    fn clear(&self, runtime: &Tried) -> Result<(), Error> {
        runtime.clear();
        if self.left()?.is_empty() {
            return Ok(());
        }
        self.end(Daemon::start(&self.program)?)
    }
}

fn expect(is_so: bool, otherwise: &str) -> Result<(), Error> {
    if is_so { Ok(()) } else { Err(Error::Unexpected(otherwise.to_owned())) }
}
