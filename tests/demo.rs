//! The demonstration, to its end, with a real container of every runtime.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{
    alone::{Host, eventually, output, said},
    driver::{binary, names},
    engines::Engine,
};
use tempfile::TempDir;

/// Tests on this machine itself look at the same folder of specs.
static MACHINE: Mutex<()> = Mutex::new(());

/// Every step does what it says, and nothing is left on the machine on which commands are run.
fn assert_shown(command: impl Fn(&str) -> Command, runtime: &str) -> String {
    let temporary = TempDir::new().unwrap();
    let mut demo = command(&binary());
    let output = output(demo.args(["demo", "--runtime", runtime]).env("TMPDIR", temporary.path()));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for expected in [
        &format!("-- {runtime} run --rm …"),
        "CLAIMFS_DEVICE_DEVICE_0=gpu-0",
        "seen in the container after",
        " reads, 0 errors",
        "CFS0111",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    assert_nothing_is_left(&command, temporary.path());
    text
}

fn assert_nothing_is_left(command: &impl Fn(&str) -> Command, temporary: &Path) {
    assert_eq!(names(temporary), [""; 0]);
    let mounts = said(command("cat").arg("/proc/self/mountinfo"));
    assert!(!mounts.contains(temporary.to_str().unwrap()), "{mounts}");
    let specs = said(command("sh").args(["-c", "ls /run/cdi 2>/dev/null; true"]));
    assert!(!specs.contains("demo.claimfs.dev"), "{specs}");
    assert_eq!(processes_of(temporary), [""; 0]);
}

/// What still runs and was told of a folder. Whoever has ended meanwhile has nothing to read.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let is_told = |process: &Path, file: &str| {
        let text = fs::read(process.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(folder)
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let told = processes.filter(|process| is_told(process, "cmdline") || is_told(process, "environ"));
    told.map(|process| fs::read_to_string(process.join("cmdline")).unwrap_or_default()).collect()
}

#[test]
#[ignore = "needs root and podman: hack/test runs it"]
fn with_podman_and_as_the_readme_shows_it() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let shown = assert_shown(|program| Command::new(program), "podman");
    let readme = include_str!("../README.md");
    let start = readme.find("1. a node with four").unwrap();
    let end = start + readme[start..].find("```").unwrap();
    assert_eq!(without_numbers(shown.trim()), without_numbers(readme[start..end].trim()));
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn with_docker() {
    let host = Host::new("sources: []");
    let engine = Engine::docker(&host, &[]);
    assert_shown(|program| engine.command(program), "docker");
    let images = said(engine.command("docker").args(["image", "ls", "--format", "{{.Repository}}"]));
    assert_eq!(images, "box\n");
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn with_nerdctl_and_ctr() {
    let host = Host::new("sources: []");
    let engine = Engine::containerd(&host);
    for runtime in ["nerdctl", "ctr"] {
        assert_shown(|program| engine.command(program), runtime);
    }
    assert_eq!(said(engine.command("ctr").args(["container", "ls", "--quiet"])), "");
}

#[test]
#[ignore = "needs root and podman: hack/test runs it"]
fn whoever_has_seen_enough_leaves_nothing_behind() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let temporary = TempDir::new().unwrap();
    // In the middle of a step, and while it waits for a key.
    for (options, last) in [(&["demo"][..], "3. "), (&["demo", "--step"][..], "1. ")] {
        let mut demo = Command::new(binary());
        demo.args(options).env("TMPDIR", temporary.path());
        let mut demo =
            demo.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with(last)), "{last}");
        // Whoever cannot wait interrupts what takes everything away, too.
        while demo.try_wait().unwrap().is_none() {
            kill(Pid::from_raw(i32::try_from(demo.id()).unwrap()), Signal::SIGINT).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        let ended = demo.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{errors}");
        assert!(errors.contains("interrupted; everything is taken away"), "{errors}");
        assert_nothing_is_left(&|program: &str| Command::new(program), temporary.path());
    }
}

#[test]
#[ignore = "needs root and podman: hack/test runs it"]
fn whenever_it_is_interrupted_from_a_terminal_nothing_is_left_behind() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let temporary = TempDir::new().unwrap();
    let play = |options: &str, before: Duration, typed: &[u8]| {
        let mut terminal = Command::new("script");
        let line = format!("exec {} demo {options}", binary());
        terminal.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
        terminal.env("TMPDIR", temporary.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut terminal = terminal.spawn().unwrap();
        // From here on it hears signals.
        eventually("it has begun", || !names(temporary.path()).is_empty());
        // Not to wait for anything, but to come at a moment that nobody has thought of.
        thread::sleep(before);
        let mut keys = terminal.stdin.take().unwrap();
        keys.write_all(typed).unwrap();
        let ended = terminal.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        assert_eq!(ended.status.code(), Some(1), "{before:?} {typed:?}: {text}");
        assert!(text.contains("interrupted; everything is taken away"), "{before:?} {typed:?}: {text}");
        assert_nothing_is_left(&|program: &str| Command::new(program), temporary.path());
    };
    for before in (0..400).step_by(50).map(Duration::from_millis) {
        play("--step", before, b"\x03");
    }
    // What was typed before an interrupt is thrown away by the terminal, or not.
    for _ in 0..5 {
        play("--step", Duration::from_millis(500), b"\n\n\x03");
    }
}

#[test]
#[ignore = "needs root: hack/test runs it"]
fn a_runtime_that_hangs_keeps_nobody() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (temporary, programs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (hanging, program) = (programs.path().join("hanging"), programs.path().join("ctr"));
    let path = format!("{}:{}", programs.path().display(), env::var("PATH").unwrap());
    // When it is tried out, and when it is to run the container.
    for good_runs in [0, 1] {
        let script = format!(
            "#!/bin/sh\ncd {}\ncase $1 in --version) echo ctr v2.4.2; exit ;; run) echo >>runs ;; *) exit ;; esac\n\
             [ $(wc -l <runs) -gt {good_runs} ] || exit 0\ntouch hanging\nsleep 1000\n",
            programs.path().display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut demo = Command::new(binary());
        demo.args(["demo", "--runtime", "ctr"]).env("TMPDIR", temporary.path()).env("PATH", &path);
        let mut demo = demo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the runtime hangs", || hanging.exists() || demo.try_wait().unwrap().is_some());
        let interrupted = Instant::now();
        kill(Pid::from_raw(i32::try_from(demo.id()).unwrap()), Signal::SIGINT).unwrap();
        let ended = demo.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(errors.contains("interrupted; everything is taken away"), "{errors}");
        assert_eq!(ended.status.code(), Some(1), "{errors}");
        // What nobody interrupts has 30 s.
        assert!(interrupted.elapsed() < Duration::from_secs(25), "{:?}", interrupted.elapsed());
        assert_nothing_is_left(&|program: &str| Command::new(program), temporary.path());
        fs::remove_file(&hanging).unwrap();
        fs::remove_file(programs.path().join("runs")).unwrap();
    }
}

#[test]
#[ignore = "needs root and podman: hack/test runs it"]
fn two_at_once_are_shown_one_after_the_other() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let temporary = TempDir::new().unwrap();
    let start = || {
        let mut demo = Command::new(binary());
        demo.arg("demo").env("TMPDIR", temporary.path());
        demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for demo in [start(), start()] {
        let ended = demo.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_nothing_is_left(&|program: &str| Command::new(program), temporary.path());
}

/// What differs from run to run: numbers of processes, times, names of claims. Columns are as wide as what is in them.
fn without_numbers(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().map(without_number).collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect::<Vec<_>>().join("\n")
}

fn without_number(word: &str) -> String {
    let word = match word.split_once("default/run-") {
        Some((before, _)) => format!("{before}default/run-N"),
        None => word.to_owned(),
    };
    let is_number = word.trim_end_matches([',', ';']).parse::<u64>().is_ok();
    if is_number { String::from("N") } else { word }
}
