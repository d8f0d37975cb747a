//! Container runtimes: their versions, and whether they inject CDI devices from the folder that we write to.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use super::{Code, Line, Places};
use crate::{program, runtime::Runtime};

/// How long a program may take to say what it is.
const LONGEST: Duration = Duration::from_secs(5);

/// Where all of them look who are told nothing.
const USUAL: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The major and the minor version of a runtime.
type Version = (u32, u32);

/// Looks at every runtime that is installed.
#[must_use]
pub fn runtimes(places: &Places) -> Vec<Line> {
    let cdi = &places.cdi;
    let lines: Vec<Line> = [
        runtime(Runtime::Podman, cdi),
        runtime(Runtime::Docker, cdi),
        runtime(Runtime::Nerdctl, cdi),
        output("containerd", &["--version"]).map(|text| {
            containerd(&text, &output("containerd", &["config", "dump"]).unwrap_or_default(), cdi)
        }),
        output("crio", &["--version"])
            .map(|text| crio(&text, &output("crio", &["config"]).unwrap_or_default(), cdi)),
    ]
    .into_iter()
    .flatten()
    .collect();
    if lines.is_empty() {
        let text = "no podman, docker, nerdctl, containerd or crio is on PATH";
        return vec![Line::warn(Code::Runtime, text, "install one, e.g. apt-get install podman")];
    }
    lines
}

/// Looks at one that people call; none where it is not installed.
#[must_use]
pub fn runtime(which: Runtime, cdi: &Path) -> Option<Line> {
    let text = output(which.name(), &["--version"])?;
    let help = || output(which.name(), &["--help"]).unwrap_or_default();
    Some(match which {
        Runtime::Podman => podman(&text, &help(), cdi),
        // What is called so can be podman.
        Runtime::Docker if text.contains("podman") => podman(&text, &help(), cdi),
        Runtime::Docker => {
            docker(&text, output("docker", &["info", "--format", "{{json .}}"]).as_deref(), cdi)
        }
        Runtime::Nerdctl => {
            nerdctl(&text, &fs::read_to_string("/etc/nerdctl/nerdctl.toml").unwrap_or_default(), cdi)
        }
        Runtime::Ctr => ctr(&text, cdi),
    })
}

/// What a program prints, if it is there and answers.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let end = Instant::now() + LONGEST;
    let output =
        program::output_unless(Command::new(program).args(arguments), || Instant::now() >= end).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first number with a dot in it.
fn version(text: &str) -> Option<Version> {
    text.split(|other: char| !(other.is_ascii_digit() || other == '.')).find_map(|word| {
        let mut numbers = word.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

/// Its help names the folders that it was told of in any of its settings, where it can be told at all.
fn podman(text: &str, help: &str, cdi: &Path) -> Line {
    let shown = text.trim();
    if version(text) < Some((4, 1)) {
        let text = format!("{shown} knows no CDI devices");
        return Line::warn(Code::Podman, text, "install podman 4.1 or newer");
    }
    let Some(flag) = help.lines().find(|line| line.trim_start().starts_with("--cdi-spec-dir ")) else {
        let fix = "write them there (--cdi-dir /var/run/cdi), or install podman 5.5 or newer";
        return usual(Code::Podman, shown, cdi, fix);
    };
    let list = flag.split_once("(default [").and_then(|(_, list)| list.split(']').next());
    let folders = list.map_or_else(|| USUAL.to_vec(), |list| list.split(',').collect());
    listed(
        Code::Podman,
        shown,
        cdi,
        &folders,
        "cdi_spec_dirs in the section [engine] of /etc/containers/containers.conf",
    )
}

/// The daemon decides, which can be another version than the command line: it lists its folders only where CDI is on.
fn docker(client: &str, info: Option<&str>, cdi: &Path) -> Line {
    let Some(info) = info else {
        let text = format!("{}: its daemon does not answer", client.trim());
        return Line::warn(Code::Docker, text, "start it, e.g. systemctl start docker");
    };
    let info: serde_json::Value = serde_json::from_str(info).unwrap_or_default();
    let server = info["ServerVersion"].as_str().unwrap_or("of a version that it does not tell");
    let shown = format!("Docker {server}");
    let folders = info["CDISpecDirs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !folders.is_empty() {
        let folders: Vec<&str> = folders.iter().filter_map(serde_json::Value::as_str).collect();
        return listed(
            Code::Docker,
            &shown,
            cdi,
            &folders,
            "cdi-spec-dirs in /etc/docker/daemon.json, and restart it",
        );
    }
    if version(server).is_some_and(|found| found < (25, 0)) {
        return Line::warn(
            Code::Docker,
            format!("{shown} knows no CDI devices"),
            "install Docker 25 or newer",
        );
    }
    let fix = "put {\"features\": {\"cdi\": true}} into /etc/docker/daemon.json, and restart it";
    Line::warn(Code::Docker, format!("CDI is off in {shown}"), fix)
}

fn nerdctl(text: &str, config: &str, cdi: &Path) -> Line {
    let shown = text.trim();
    if version(text) < Some((2, 1)) {
        let text = format!("{shown} knows no CDI devices");
        return Line::warn(Code::Nerdctl, text, "install nerdctl 2.1 or newer");
    }
    listed(
        Code::Nerdctl,
        shown,
        cdi,
        &folders(value(config, "cdi_spec_dirs")),
        "cdi_spec_dirs in /etc/nerdctl/nerdctl.toml",
    )
}

/// It resolves devices by itself, whatever containerd is told.
fn ctr(text: &str, cdi: &Path) -> Line {
    let shown = text.trim();
    if version(text) < Some((2, 0)) {
        let text = format!("{shown} knows no CDI devices");
        return Line::warn(Code::Containerd, text, "install containerd 2.0 or newer");
    }
    usual(Code::Containerd, shown, cdi, "write them there: --cdi-dir /var/run/cdi")
}

fn containerd(text: &str, config: &str, cdi: &Path) -> Line {
    let shown = text.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let is_on =
        value(config, "enable_cdi").map_or_else(|| version(text) >= Some((2, 0)), |value| value == "true");
    if !is_on {
        let text = format!("CDI is off in {shown}");
        let fix = "set enable_cdi = true in the CRI plugin's section of /etc/containerd/config.toml, and restart it";
        return Line::warn(Code::Containerd, text, fix);
    }
    listed(
        Code::Containerd,
        &shown,
        cdi,
        &folders(value(config, "cdi_spec_dirs")),
        "cdi_spec_dirs in /etc/containerd/config.toml, and restart it",
    )
}

fn crio(text: &str, config: &str, cdi: &Path) -> Line {
    let shown = text.lines().next().unwrap_or_default().trim();
    if version(text) < Some((1, 23)) {
        let text = format!("{shown} knows no CDI devices");
        return Line::warn(Code::Crio, text, "install CRI-O 1.23 or newer");
    }
    // A list of several lines follows its name.
    let list = config.find("cdi_spec_dirs").and_then(|start| config[start..].split(']').next());
    listed(Code::Crio, shown, cdi, &folders(list), "cdi_spec_dirs in /etc/crio/crio.conf, and restart it")
}

/// For those that look into the usual folders alone.
fn usual(code: Code, shown: &str, cdi: &Path, fix: &str) -> Line {
    let cdi_shown = cdi.display();
    if is_among(&USUAL, cdi) {
        return Line::ok(code, format!("{shown} injects devices from {cdi_shown}"));
    }
    let text = format!("{shown} looks for devices in /etc/cdi and /var/run/cdi, not in {cdi_shown}");
    Line::warn(code, text, fix)
}

/// For those that can be told which folders to look into.
fn listed(code: Code, shown: &str, cdi: &Path, folders: &[&str], setting: &str) -> Line {
    let is_listed = is_among(folders, cdi);
    let cdi = cdi.display();
    if is_listed {
        Line::ok(code, format!("{shown} injects devices from {cdi}"))
    } else {
        Line::warn(code, format!("{shown} does not look into {cdi}"), format!("add {cdi} to {setting}"))
    }
}

/// The value of a setting in TOML, on its line.
fn value<'c>(config: &'c str, name: &str) -> Option<&'c str> {
    config
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix('=').map(str::trim))
}

/// What is in a list in TOML; where there is none, the usual ones hold.
fn folders(list: Option<&str>) -> Vec<&str> {
    list.map_or_else(|| USUAL.to_vec(), |list| list.split(['"', '\'']).skip(1).step_by(2).collect())
}

fn is_among(folders: &[&str], folder: &Path) -> bool {
    folders.iter().any(|one| is_same(one, folder))
}

/// `/var/run` is a link to `/run`.
fn is_same(one: &str, other: &Path) -> bool {
    let plain = |path: &Path| {
        path.strip_prefix("/var/run").map_or_else(|_| path.to_owned(), |rest| Path::new("/run").join(rest))
    };
    plain(Path::new(one)) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict::{Ok, Warn};

    #[test]
    fn who_is_not_there_fails_or_does_not_answer_says_nothing() {
        assert_eq!(output("sh", &["-c", "echo yes"]).as_deref(), Some("yes\n"));
        assert_eq!(output("sh", &["-c", "echo no; exit 1"]), None);
        assert_eq!(output("/nowhere", &[]), None);
    }

    #[test]
    fn a_runtime_is_judged_by_its_version_and_settings() {
        let (usual, other) = (Path::new("/var/run/cdi"), Path::new("/srv/cdi"));
        let dirs = "    cdi_spec_dirs = ['/etc/cdi', '/run/cdi']\n";
        let told = "      --cdi-spec-dir stringArray    Set it (may be set multiple times) (default [/etc/cdi,/srv/cdi])\n";
        for (line, expected) in [
            (podman("podman version 4.3.1\n", "", usual), Ok),
            (podman("podman version 4.3.1\n", "", other), Warn),
            (podman("podman version 4.0.3\n", "", usual), Warn),
            (podman("podman version 5.8.6\n", told, usual), Warn),
            (podman("podman version 5.8.6\n", told, other), Ok),
            (docker("Docker version 28.2.2, build x\n", None, usual), Warn),
            (docker("", Some(r#"{"ServerVersion": "24.0.7"}"#), usual), Warn),
            (docker("", Some(r#"{"ServerVersion": "27.0.1", "CDISpecDirs": []}"#), usual), Warn),
            (
                docker(
                    "",
                    Some(r#"{"ServerVersion": "dev", "CDISpecDirs": ["/etc/cdi", "/run/cdi"]}"#),
                    usual,
                ),
                Ok,
            ),
            (docker("", Some(r#"{"ServerVersion": "29.0.0", "CDISpecDirs": ["/srv/cdi"]}"#), usual), Warn),
            (nerdctl("nerdctl version 2.2.1\n", "", usual), Ok),
            (nerdctl("nerdctl version 2.2.1\n", "cdi_spec_dirs = [\"/srv/cdi\"]\n", usual), Warn),
            (nerdctl("nerdctl version 2.0.4\n", "", usual), Warn),
            (ctr("ctr github.com/containerd/containerd/v2 2.4.2\n", usual), Ok),
            (ctr("ctr github.com/containerd/containerd/v2 2.4.2\n", other), Warn),
            (ctr("ctr github.com/containerd/containerd 1.7.24\n", usual), Warn),
            (
                containerd(
                    "containerd github.com/containerd/containerd 1.7.24\n",
                    "    enable_cdi = false\n",
                    usual,
                ),
                Warn,
            ),
            (containerd("containerd github.com/containerd/containerd/v2 2.1.9 x\n", dirs, usual), Ok),
            (containerd("containerd github.com/containerd/containerd/v2 2.1.9 x\n", dirs, other), Warn),
            (
                crio(
                    "crio version 1.34.0\nVersion: 1.34.0\n",
                    "cdi_spec_dirs = [\n  \"/etc/cdi\",\n  \"/var/run/cdi\",\n]\n",
                    usual,
                ),
                Ok,
            ),
            (crio("crio version 1.22.1\n", "", usual), Warn),
        ] {
            assert_eq!(line.verdict, expected, "{line:?}");
            assert_eq!(line.fix.is_some(), expected != Ok);
        }
    }
}
