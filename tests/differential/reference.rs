//! Upstream's code, which answers line by line.

use std::{
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;

/// Built once for all tests of the process.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reference");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
        let built =
            Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status();
        assert!(built.unwrap().success());
        program
    })
}

/// The side that asks.
pub struct Questions(BufWriter<ChildStdin>);

/// The side that answers. The process ends with it.
pub struct Answers {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// Starts the reference. The two sides are apart, so that it can be asked while it answers.
pub fn start() -> (Questions, Answers) {
    let mut command = Command::new(program());
    // It runs for minutes: better some memory than a third of the time for collecting garbage.
    command.env("GOGC", "400").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (questions, lines) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (Questions(BufWriter::new(questions)), Answers { child, lines: BufReader::new(lines) })
}

impl Questions {
    /// Asks a question of a kind. It fails when the answering side is gone.
    pub fn ask(&mut self, kind: &str, question: &Value) -> io::Result<()> {
        writeln!(self.0, "{{\"{kind}\":{question}}}")?;
        self.0.flush()
    }
}

impl Answers {
    /// The next answer.
    pub fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
