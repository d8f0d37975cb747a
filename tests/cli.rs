//! The command line as its users meet it.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

use support::link_to_node;
use tempfile::TempDir;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/config.yaml");

fn claimfs(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimfs"));
    command.args(arguments);
    for variable in ["CLAIMFS_CONFIG", "CLAIMFS_DEV", "CLAIMFS_SYSFS", "CLAIMFS_NODE_NAME"] {
        command.env_remove(variable);
    }
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The devices of the shipped example on a machine that has two nodes.
fn devices(format: &str) -> Output {
    let machine = TempDir::new().unwrap();
    link_to_node(machine.path(), "kvm", "null");
    link_to_node(machine.path(), "serial/by-id/usb-FTDI_SN42-if00-port0", "zero");
    let dev = machine.path().to_str().unwrap();
    let arguments =
        ["devices", "--config", EXAMPLE, "--dev", dev, "--sysfs", dev, "--node-name", "n1", "-o", format];
    claimfs(&arguments).output().unwrap()
}

#[test]
fn the_example_is_a_table() {
    let output = devices("table");
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), include_str!("golden/devices.txt"));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn programs_get_every_detail() {
    let value: serde_json::Value = serde_json::from_slice(&devices("json").stdout).unwrap();
    let kvm = value["devices"].as_array().unwrap().iter().find(|device| device["name"] == "kvm").unwrap();
    assert_eq!(
        *kvm,
        serde_json::json!({
            "name": "kvm", "source": "kvm", "kind": "dev", "claims": 110, "health": "healthy",
            "node": {"path": "/dev/null", "link": "/dev/kvm", "class": "char", "major": 1, "minor": 3},
            "attributes": {"path": {"string": "/dev/null"}, "source": {"string": "kvm"}},
            "capacity": {"shares": "110"},
        })
    );
    let yaml: serde_json::Value = serde_saphyr::from_str(text(&devices("yaml").stdout)).unwrap();
    assert_eq!(yaml, value);
    assert!(text(&devices("wide").stdout).contains("/dev/null char 1:3"));
    assert!(text(&devices("slices").stdout).contains("nodeName: n1"));
}

#[test]
fn wrong_input_is_answered_with_its_fix_and_exit_2() {
    let folder = TempDir::new().unwrap();
    let bad = folder.path().join("bad.yaml");
    fs::write(&bad, "sources:\n- name: gpu\n  simulated: {cuont: 8}\n").unwrap();
    let bad = bad.to_str().unwrap();
    let bad_message = format!(
        "error: {bad}:3:15: sources[0].simulated: unknown field \"cuont\"; allowed: count\n\
         3 |   simulated: {{cuont: 8}}\n  |               ^\n"
    );
    let cases: [(&[&str], &str); 5] = [
        (&["devices", "--config", bad], &bad_message),
        (
            &["devices", "--config", "/nonexistent"],
            "error: cannot read the configuration /nonexistent: No such file or directory (os error 2)\n\
             fix: write one (examples/config.yaml in the sources is a start), or name another with --config\n",
        ),
        (
            &["devices", "--config", EXAMPLE, "--dev", "/nonexistent"],
            "error: /nonexistent is not a folder, and the configuration looks for devices in it\nfix: --dev names",
        ),
        (&["devices", "-o", "xml"], "error: invalid value 'xml' for '--output <FORMAT>'\n"),
        (&["devcies"], "error: unrecognized subcommand 'devcies'\n"),
    ];
    for (arguments, message) in cases {
        let output = claimfs(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).starts_with(message), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let machine = TempDir::new().unwrap();
    let dev = machine.path().to_str().unwrap();
    for watch in [&[][..], &["--watch"]] {
        // Its reading end is closed before anything is written.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = claimfs(&["devices", "--config", EXAMPLE, "--dev", dev, "-o", "json"]);
        let child = command.args(watch).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn an_error_that_cannot_be_told_is_still_an_exit_code() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = claimfs(&["devices", "--config", "/nonexistent"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn watch_prints_again_when_a_device_appears_and_ends_on_a_signal() {
    let machine = TempDir::new().unwrap();
    let config = machine.path().join("config.yaml");
    fs::write(&config, "sources: [{name: x, dev: {paths: ['/dev/x*']}}]").unwrap();
    let (config, dev) = (config.to_str().unwrap(), machine.path().to_str().unwrap());
    let mut child = claimfs(&["devices", "--watch", "--config", config, "--dev", dev])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "no devices: nothing that the configuration looks for is here");
    link_to_node(machine.path(), "x1", "null");
    assert!(lines.any(|line| line.starts_with("x1 ")));
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn every_flag_has_help() {
    let output = claimfs(&["devices", "--help"]).output().unwrap();
    let help = text(&output.stdout);
    for flag in ["--config", "--output", "--watch", "--node-name", "--dev", "--sysfs"] {
        let said = help.split(flag).nth(1).and_then(|rest| rest.lines().nth(1)).map(str::trim);
        assert!(said.is_some_and(|said| !said.is_empty()), "{flag}\n{help}");
    }
}

#[test]
fn every_line_of_a_check_has_a_code_and_what_is_wrong_a_fix() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().to_str().unwrap();
    let arguments = [
        "check",
        "--config",
        EXAMPLE,
        "--run-dir",
        dir,
        "--cdi-dir",
        dir,
        "--kubelet-dir",
        dir,
        "-o",
        "json",
    ];
    let output = claimfs(&arguments).output().unwrap();
    let lines: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let is_failed = lines.iter().any(|line| line["verdict"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(is_failed)));
    for line in &lines {
        assert!(line["code"].as_str().unwrap().starts_with("CFS02"), "{line}");
        assert_eq!(line["fix"].is_string(), line["verdict"] != "ok", "{line}");
    }
    let code = |code: &str| lines.iter().find(|line| line["code"] == code).unwrap();
    assert_eq!(code("CFS0207")["verdict"], "ok");
    assert_eq!(code("CFS0208")["verdict"], "warn");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let output = claimfs(&["completions", "bash"]).output().unwrap();
    let folder = TempDir::new().unwrap();
    assert!(claimfs(&["manual", folder.path().to_str().unwrap()]).status().unwrap().success());
    for command in
        ["allocate", "check", "claim", "demo", "devices", "explain", "metadata", "node", "run", "status"]
    {
        assert!(text(&output.stdout).contains(&format!("claimfs__subcmd__{command}")), "{command}");
        assert!(folder.path().join(format!("claimfs-{command}.1")).exists(), "{command}");
    }
}
