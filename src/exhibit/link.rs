//! The daemon's end of the line to its holder.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::Error;
use crate::hold::{self, Client, Opener, Places};

/// A process starts in milliseconds; a machine under load takes longer.
const START_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is needed to go on when the holder dies.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) opener: Opener,
    pub(super) device: OwnedFd,
    pub(super) greeting: Vec<u8>,
}

impl Link {
    /// Asks the holder. Where the line is broken, over another one: an answer that comes late must not be
    /// taken for that to the next question.
    pub(super) fn ask<T>(
        &mut self,
        places: &Places,
        question: impl Fn(&Client) -> Result<T, hold::Error>,
    ) -> Result<T, Error> {
        match question(&self.client) {
            Err(error) if error.is_the_line() => {
                self.client = connect(places)?;
                self.client.keep(self.greeting.clone(), Some(self.device.as_fd()))?;
                Ok(question(&self.client)?)
            }
            answer => Ok(answer?),
        }
    }

    /// Opens a file of the file system, if need be by another process than before.
    pub(super) fn open(&mut self, path: &Path) -> Result<OwnedFd, Error> {
        match self.opener.open(path) {
            Err(error) if error.is_the_line() => {
                self.opener = Opener::start().map_err(Error::Start)?;
                Ok(self.opener.open(path)?)
            }
            file => Ok(file?),
        }
    }
}

/// The holder that runs, or one that is started now.
pub(super) fn connect(places: &Places) -> Result<Client, Error> {
    if let Ok(client) = Client::connect(&places.socket) {
        return Ok(client);
    }
    let mut holder = start(places).map_err(Error::Start)?;
    // It is to outlive us; whoever comes after us finds it by its socket. Until then somebody has to take
    // note of its end.
    thread::spawn(move || holder.wait());
    let deadline = Instant::now() + START_WITHIN;
    loop {
        match Client::connect(&places.socket) {
            Err(_) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            connected => return Ok(connected?),
        }
    }
}

fn start(places: &Places) -> io::Result<std::process::Child> {
    let folder = places.socket.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // Not on our own: whoever reads that waits for its end.
    let log = fs::File::create(folder.join("hold.log"))?;
    Command::new(std::env::current_exe()?)
        .args(["hold", "--grace", &places.grace.as_secs().to_string()])
        .arg("--run-dir")
        .arg(folder)
        .arg("--mount-point")
        .arg(&places.mount_point)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}
