//! The processes of a demonstration, each of which ends with it.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::{net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Instant,
};

use super::{
    DEADLINE, DRIVER, Error,
    ended::{self, ENDING, POLL},
    expect, interrupt,
    runtime::Tried,
};
use crate::{
    program,
    standalone::{runner, service},
};

/// What a container does: it says what it sees, and then reads until it is told to stop.
const SCRIPT: &str = r#"
    trap 'exit 3' TERM
    env | grep ^CLAIMFS_DEVICE | sort
    /claimfs metadata
    echo reading
    file=$(echo /var/run/kubernetes.io/dra-device-attributes/*/*/*/*-metadata.json)
    reads=0 errors=0 health=
    while [ ! -e /shared/stop ]; do
        if text=$(cat "$file") && [ -n "$text" ]; then reads=$((reads+1)); else errors=$((errors+1)); fi
        case $text in *'"string":"unhealthy"'*) now=unhealthy ;; *) now=healthy ;; esac
        [ "$now" = "$health" ] || { health=$now; echo "$now"; }
        echo "$reads" >/shared/reads
    done
    echo "read $reads $errors"
"#;
/// How soon a daemon that is not needed any more takes everything away, in seconds.
const UNTIL_IDLE: &str = "CLAIMFS_UNTIL_IDLE";

/// Our own program, told where everything is.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    folder: PathBuf,
    environment: Vec<(&'static str, OsString)>,
}

impl Program {
    pub(super) fn new(folder: &Path, config: &Path, cdi: &Path) -> Result<Self, Error> {
        let path = env::current_exe().map_err(Error::io("cannot find our own program"))?;
        let environment = vec![
            ("CLAIMFS_CONFIG", config.into()),
            ("CLAIMFS_CDI_DIR", cdi.into()),
            ("CLAIMFS_RUN_DIR", folder.join("run").into()),
            ("CLAIMFS_OBJECTS_DIR", folder.join("objects").into()),
            ("CLAIMFS_MOUNT_POINT", folder.join("metadata").into()),
            ("CLAIMFS_NODE_NAME", "demo".into()),
            ("CLAIMFS_LOG", "error".into()),
            // One that a command has to start itself is not needed for long.
            (UNTIL_IDLE, "1".into()),
            ("PODMAN_IGNORE_CGROUPSV1_WARNING", "1".into()),
        ];
        Ok(Self { path, folder: folder.to_owned(), environment })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn command<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        // Apart from our terminal: what interrupts us is for us, and we end the rest.
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    fn run<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> Result<Output, Error> {
        ended::output(&mut self.command(arguments)).or_else(|error| {
            // Nobody who has seen enough wants to know what took too long.
            interrupt::check()?;
            Err(Error::io("cannot run claimfs")(error))
        })
    }

    /// What a command prints that must succeed.
    pub(super) fn output(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = self.run(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        expect(output.status.success(), &format!("claimfs {} fails: {said}", arguments.join(" ")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What a command complains of that must not succeed.
    pub(super) fn refused(&self, arguments: &[OsString]) -> Result<String, Error> {
        let output = self.run(arguments)?;
        expect(output.status.code() == Some(1), "what cannot be had is not refused")?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A process that is killed when nobody has it any more.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon.
pub(super) struct Daemon(Process);

impl Daemon {
    /// Starts it, and waits until it answers.
    pub(super) fn start(program: &Program) -> Result<Self, Error> {
        let mut daemon = Self::spawn(program, "60")?;
        let (socket, end) = (service::socket(&program.folder.join("run")), Instant::now() + DEADLINE);
        // One that is left of a daemon that was killed refuses.
        while UnixStream::connect(&socket).is_err() {
            let ended = daemon.0.0.try_wait().map_err(Error::io("cannot wait for the daemon"))?;
            expect(ended.is_none() && Instant::now() < end, "the daemon does not answer")?;
            interrupt::check()?;
            thread::sleep(POLL);
        }
        Ok(daemon)
    }

    fn spawn(program: &Program, until_idle: &str) -> Result<Self, Error> {
        let mut command = program.command(&["node", "--standalone"]);
        command.env(UNTIL_IDLE, until_idle).stdout(Stdio::null());
        Ok(Self(Process(command.spawn().map_err(Error::io("cannot start claimfs node"))?)))
    }

    /// As `kill -9` does.
    pub(super) fn kill(mut self) -> Result<(), Error> {
        let Self(Process(child)) = &mut self;
        child.kill().and_then(|()| child.wait().map(drop)).map_err(Error::io("cannot kill the daemon"))
    }

    /// Replaces it by one that takes everything away as soon as nobody needs it, and waits for that.
    pub(super) fn end(self, program: &Program) -> Result<(), Error> {
        self.kill()?;
        let Self(Process(child)) = &mut Self::spawn(program, "0")?;
        let status = ended::status(child, Instant::now() + DEADLINE);
        match status.map_err(Error::io("cannot wait for the daemon"))? {
            Some(status) => expect(status.success(), "the daemon cannot take everything away")?,
            None => return Err(Error::Unexpected(String::from("the daemon does not end"))),
        }
        interrupt::check()
    }
}

/// A container that reads about its device.
pub(super) struct Container {
    process: Process,
    lines: Receiver<String>,
    shared: PathBuf,
}

impl Container {
    pub(super) fn start(program: &Program, runtime: &Tried) -> Result<Self, Error> {
        let words = runtime.run(&["--device-class", DRIVER], SCRIPT);
        let mut command = program.command(&words);
        // Also when we are killed.
        runner::end_with_us(&mut command);
        let mut child =
            command.stdout(Stdio::piped()).spawn().map_err(Error::io("cannot start claimfs run"))?;
        let (sender, lines) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            // Ends with the output, which ends with the container.
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { process: Process(child), lines, shared: program.folder().join("shared") })
    }

    /// What it prints before a line.
    pub(super) fn until(&mut self, last: &str) -> Result<String, Error> {
        let end = Instant::now() + DEADLINE;
        let mut text = String::new();
        loop {
            let line = match self.lines.recv_timeout(POLL) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {
                    interrupt::check()?;
                    continue;
                }
                Err(_) => {
                    let said = format!("the container does not say {last:?}; it says: {text}");
                    return Err(Error::Unexpected(said));
                }
            };
            if line == last {
                return Ok(text);
            }
            text += &line;
            text += "\n";
        }
    }

    fn reads(&self) -> u64 {
        fs::read_to_string(self.shared.join("reads"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_default()
    }

    /// Waits until it has read again.
    pub(super) fn reads_on(&self) -> Result<(), Error> {
        let (before, end) = (self.reads(), Instant::now() + DEADLINE);
        while self.reads() <= before {
            expect(Instant::now() < end, "the container does not read on")?;
            interrupt::check()?;
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn tell_to_stop(&self) -> Result<(), Error> {
        let stop = self.shared.join("stop");
        fs::write(&stop, "").map_err(Error::io(format!("cannot write {}", stop.display())))
    }

    /// Lets it end; how often it has read, and how often in vain.
    pub(super) fn stop(mut self) -> Result<(u64, u64), Error> {
        self.tell_to_stop()?;
        let end = Instant::now() + DEADLINE;
        let mut counted = None;
        loop {
            match self.lines.recv_timeout(POLL) {
                Ok(line) => {
                    let numbers = line.strip_prefix("read ").and_then(|rest| rest.split_once(' '));
                    counted = numbers
                        .and_then(|(reads, errors)| Some((reads.parse().ok()?, errors.parse().ok()?)))
                        .or(counted);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => interrupt::check()?,
                Err(_) => break,
            }
        }
        let status = ended::status(&mut self.process.0, end);
        let status = status.map_err(Error::io("cannot wait for the container"))?;
        expect(status.is_some(), "the container does not end")?;
        expect(status.is_some_and(|status| status.success()), "the container did not end well")?;
        counted.ok_or_else(|| Error::Unexpected(String::from("the container did not count its reads")))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Whoever is killed cannot end its container.
        let _ = self.tell_to_stop();
        if !matches!(ended::status(&mut self.process.0, Instant::now() + ENDING), Ok(Some(_))) {
            // A runtime that hangs does not end with whoever waits for it.
            program::kill_group(program::id(&self.process.0));
        }
    }
}
