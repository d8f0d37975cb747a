//! Container runtimes: their versions, and whether they inject CDI devices from the folder that we write to.

use std::{fs, path::Path, process::Command};

use super::{Code, Line, Places};

/// The major and the minor version of a runtime.
type Version = (u32, u32);

/// Looks at every runtime that is installed.
#[must_use]
pub fn runtimes(places: &Places) -> Vec<Line> {
    let known = [
        output("podman", &["--version"]).map(|text| podman(&text, &places.cdi)),
        output("docker", &["--version"]).map(|text| {
            docker(&text, &fs::read_to_string("/etc/docker/daemon.json").unwrap_or_default(), &places.cdi)
        }),
        output("containerd", &["--version"]).map(|text| {
            containerd(&text, &output("containerd", &["config", "dump"]).unwrap_or_default(), &places.cdi)
        }),
        output("crio", &["--version"])
            .map(|text| crio(&text, &output("crio", &["config"]).unwrap_or_default(), &places.cdi)),
    ];
    let lines: Vec<Line> = known.into_iter().flatten().collect();
    if lines.is_empty() {
        let text = "no podman, docker, containerd or crio is on PATH";
        return vec![Line::warn(Code::Runtime, text, "install one, e.g. apt-get install podman")];
    }
    lines
}

/// What a program prints, if it is there.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first number with a dot in it.
fn version(text: &str) -> Option<Version> {
    text.split(|other: char| !(other.is_ascii_digit() || other == '.')).find_map(|word| {
        let mut numbers = word.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

/// Podman looks into these, and 5.x has a flag for others.
fn podman(text: &str, cdi: &Path) -> Line {
    let shown = text.trim();
    if version(text) < Some((4, 1)) {
        let text = format!("{shown} knows no CDI devices");
        return Line::warn(Code::Podman, text, "install podman 4.1 or newer");
    }
    if is_usual(cdi) {
        Line::ok(Code::Podman, format!("{shown} injects devices from {}", cdi.display()))
    } else {
        Line::warn(
            Code::Podman,
            format!("{shown} looks for devices in /etc/cdi and /var/run/cdi, not in {}", cdi.display()),
            format!(
                "write them there (--cdi-dir /var/run/cdi), or give it --cdi-spec-dir {} (podman 5)",
                cdi.display()
            ),
        )
    }
}

fn docker(text: &str, daemon: &str, cdi: &Path) -> Line {
    let shown = text.trim();
    let settings: serde_json::Value = serde_json::from_str(daemon).unwrap_or_default();
    let enabled = settings["features"]["cdi"].as_bool();
    let found = version(text);
    if found < Some((25, 0)) {
        let text = format!("{shown} knows no CDI devices");
        return Line::warn(Code::Docker, text, "install Docker 25 or newer");
    }
    if !enabled.unwrap_or(found >= Some((28, 3))) {
        let text = format!("CDI is off in {shown}");
        let fix = "put {\"features\": {\"cdi\": true}} into /etc/docker/daemon.json, and restart it";
        return Line::warn(Code::Docker, text, fix);
    }
    let folders = settings["cdi-spec-dirs"].as_array();
    let looks = folders.map_or_else(
        || is_usual(cdi),
        |all| all.iter().any(|one| one.as_str().is_some_and(|one| is_same(one, cdi))),
    );
    listed(Code::Docker, shown, cdi, looks, "cdi-spec-dirs in /etc/docker/daemon.json")
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
    let looks = value(config, "cdi_spec_dirs").map_or_else(|| is_usual(cdi), |list| is_in(list, cdi));
    listed(Code::Containerd, &shown, cdi, looks, "cdi_spec_dirs in /etc/containerd/config.toml")
}

fn crio(text: &str, config: &str, cdi: &Path) -> Line {
    let shown = text.lines().next().unwrap_or_default().trim();
    if version(text) < Some((1, 23)) {
        let text = format!("{shown} knows no CDI devices");
        return Line::warn(Code::Crio, text, "install CRI-O 1.23 or newer");
    }
    // A list of several lines follows its name.
    let list = config.find("cdi_spec_dirs").and_then(|start| config[start..].split(']').next());
    let looks = list.map_or_else(|| is_usual(cdi), |list| is_in(list, cdi));
    listed(Code::Crio, shown, cdi, looks, "cdi_spec_dirs in /etc/crio/crio.conf")
}

fn listed(code: Code, shown: &str, cdi: &Path, looks: bool, setting: &str) -> Line {
    let cdi = cdi.display();
    if looks {
        Line::ok(code, format!("{shown} injects devices from {cdi}"))
    } else {
        Line::warn(
            code,
            format!("{shown} does not look into {cdi}"),
            format!("add {cdi} to {setting}, and restart it"),
        )
    }
}

/// The value of a setting in TOML, on its line.
fn value<'c>(config: &'c str, name: &str) -> Option<&'c str> {
    config
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix('=').map(str::trim))
}

/// Whether a folder is in a list in TOML.
fn is_in(list: &str, folder: &Path) -> bool {
    list.split(['"', '\'']).any(|word| is_same(word, folder))
}

fn is_usual(folder: &Path) -> bool {
    ["/etc/cdi", "/var/run/cdi"].iter().any(|usual| is_same(usual, folder))
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
    fn a_runtime_is_judged_by_its_version_and_settings() {
        let (usual, other) = (Path::new("/var/run/cdi"), Path::new("/srv/cdi"));
        let dirs = "    cdi_spec_dirs = ['/etc/cdi', '/run/cdi']\n";
        for (line, expected) in [
            (podman("podman version 4.3.1\n", usual), Ok),
            (podman("podman version 4.0.3\n", usual), Warn),
            (podman("podman version 5.4.2\n", other), Warn),
            (docker("Docker version 24.0.7, build afdd53b\n", "", usual), Warn),
            (docker("Docker version 27.0.1, build x\n", "", usual), Warn),
            (docker("Docker version 27.0.1, build x\n", r#"{"features": {"cdi": true}}"#, usual), Ok),
            (docker("Docker version 28.3.0, build x\n", "", usual), Ok),
            (docker("Docker version 28.3.0, build x\n", r#"{"cdi-spec-dirs": ["/srv/cdi"]}"#, usual), Warn),
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
