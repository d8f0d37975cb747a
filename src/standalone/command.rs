//! What a runtime is told: its command line with the devices in it.

use std::{ffi::OsString, ops::Range};

use crate::runtime::Runtime;

/// Stands where the devices are to go.
const PLACE: &str = "{}";
/// What makes a container in all of them, and starts it, too, or only later.
const RUN: &str = "run";
const CREATE: &str = "create";
/// What can stand before it. Behind any other command it means something else: `podman pod create`, `docker compose run`.
const CONTAINERS: [&str; 2] = ["container", "containers"];
/// Options of theirs before the command that have no value.
const FLAGS: [&str; 14] = [
    "-D",
    "--debug",
    "--debug-full",
    "-r",
    "--remote",
    "--syslog",
    "--trace",
    "--noout",
    "--transient-store",
    "--tls",
    "--tlsverify",
    "--experimental",
    "--kube-hide-dupe",
    "--insecure-registry",
];
/// Options of the command that have none in any of them.
const FLAGS_OF_RUN: [&str; 36] = [
    "--",
    "--rm",
    "--rmi",
    "--replace",
    "--detach",
    "--interactive",
    "--tty",
    "--init",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rootfs",
    "--no-healthcheck",
    "--no-hosts",
    "--oom-kill-disable",
    "--net-host",
    "--null-io",
    "--cni",
    "--no-pivot",
    "--seccomp",
    "--allow-new-privs",
    "--passwd",
    "--sig-proxy",
    "--use-api-socket",
    "--disable-content-trust",
    "--env-host",
    "--http-proxy",
    "--read-only-tmpfs",
    "--unsetenv-all",
    "--no-hostname",
    "--tls-verify",
    "--sync-fs",
    "--remap-labels",
    "--privileged-without-host-devices",
    "--runc-systemd-cgroup",
];
/// The option that says when a container is started again, and the value with which it never is.
const RESTART: &str = "--restart";
const NEVER: &str = "no";
/// Those that are one letter: `-it` is two of them.
const LETTERS_OF_RUN: &str = "ditPq";

/// Why a command line has no place for devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no command.
    #[error(
        "there is no command to run\nfix: put one behind --, e.g. claimfs run --device-class claimfs.dev -- podman run --rm IMAGE"
    )]
    Nothing,
    /// The program is not known.
    #[error(
        "{program} is none of {}: it is not known where it takes devices\nfix: put {{}} where the --device options are to go, or run it as it is with --plain",
        Runtime::ALL.map(Runtime::name).join(", ")
    )]
    Unknown {
        /// The program.
        program: String,
    },
    /// A runtime makes no container.
    #[error(
        "{program}: it is told neither to run nor to create a container, after which devices could go\nfix: put {{}} where the --device options are to go"
    )]
    NoVerb {
        /// The program.
        program: String,
    },
}

/// Where devices go in a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<OsString>,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Wherever the user has said.
    Marked,
    /// In the place of these words, or before them where there are none.
    At(Range<usize>),
    /// Nowhere: the program looks at its environment.
    Environment,
}

/// How a command gets its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On its command line.
    Words,
    /// In its environment alone.
    Environment,
}

impl CommandLine {
    /// Finds the place before anything is asked for.
    pub fn new(words: Vec<OsString>, way: Way) -> Result<Self, Error> {
        let program = words.first().ok_or(Error::Nothing)?.display().to_string();
        let is_marked = |word: &OsString| word.to_string_lossy().contains(PLACE);
        let place = match (way, Runtime::of(&words[0]), verb(&words)) {
            (Way::Environment, _, _) => Place::Environment,
            // The mark may also be among the words of what runs in the container, which are not ours.
            (Way::Words, Some(_), Some(verb)) => Place::At(behind(&words, verb)),
            (Way::Words, _, _) if words.iter().skip(1).any(is_marked) => Place::Marked,
            (Way::Words, Some(_), None) => return Err(Error::NoVerb { program }),
            (Way::Words, None, _) => return Err(Error::Unknown { program }),
        };
        Ok(Self { words, place })
    }

    /// The runtime that the program itself is; what only calls one is none.
    #[must_use]
    pub fn program(&self) -> Option<Runtime> {
        self.words.first().and_then(Runtime::of)
    }

    /// Whether the container is only made.
    #[must_use]
    pub fn is_for_later(&self) -> bool {
        self.program().is_some() && verb(&self.words).is_some_and(|verb| self.words[verb] == CREATE)
    }

    /// Whether its runtime is to start the container again when it has ended.
    #[must_use]
    pub fn is_started_again(&self) -> bool {
        let Some(verb) = self.program().and_then(|_| verb(&self.words)) else { return false };
        let options = reach(&self.words, verb + 1, is_flag_of_run);
        let mut policies = options.filter_map(|index| {
            let word = self.words[index].to_str()?;
            match word.strip_prefix(RESTART)? {
                "" => self.words.get(index + 1)?.to_str(),
                value => value.strip_prefix('='),
            }
        });
        policies.any(|policy| policy != NEVER)
    }

    /// The runtime that makes the container; behind other programs, the first that is named.
    #[must_use]
    pub fn runtime(&self) -> Option<Runtime> {
        self.words.iter().find_map(Runtime::of)
    }

    /// The program and its arguments, with these CDI devices in them.
    #[must_use]
    pub fn with(self, devices: &[String]) -> Vec<OsString> {
        let Self { mut words, place } = self;
        let options = || devices.iter().flat_map(|device| ["--device".into(), OsString::from(device)]);
        match place {
            Place::Environment => words,
            Place::At(these) => {
                words.splice(these, options());
                words
            }
            Place::Marked => {
                let joined = devices.join(",");
                words
                    .into_iter()
                    .flat_map(|word| match word.to_str() {
                        Some(PLACE) => options().collect(),
                        Some(text) if text.contains(PLACE) => vec![text.replace(PLACE, &joined).into()],
                        _ => vec![word],
                    })
                    .collect()
            }
        }
    }
}

/// Where a runtime is told to make a container.
fn verb(words: &[OsString]) -> Option<usize> {
    let mut start = 1;
    loop {
        let is_said = |index: &usize| {
            let word = words[*index].to_string_lossy();
            word == RUN || word == CREATE || CONTAINERS.contains(&&*word)
        };
        let is_flag = |option: &str| FLAGS.contains(&option);
        let found = reach(words, start, is_flag).find(is_said)?;
        if words[found] == RUN || words[found] == CREATE {
            return Some(found);
        }
        start = found + 1;
    }
}

/// The place for options of a command: where they are marked, or else directly behind it.
fn behind(words: &[OsString], verb: usize) -> Range<usize> {
    let start = verb + 1;
    let mark = reach(words, start, is_flag_of_run).find(|index| words[*index] == PLACE);
    mark.map_or(start..start, |mark| mark..mark + 1)
}

fn is_flag_of_run(option: &str) -> bool {
    FLAGS_OF_RUN.contains(&option) || option[1..].chars().all(|letter| LETTERS_OF_RUN.contains(letter))
}

/// Options, and the first word that is none. Of others than flags it is not known whether they have a value, so what
/// follows one may be that.
fn reach(words: &[OsString], start: usize, is_flag: impl Fn(&str) -> bool) -> impl Iterator<Item = usize> {
    let is_option = |index: usize| words[index].as_encoded_bytes().starts_with(b"-");
    let may_have_value = |index: usize| {
        let text = words[index].to_string_lossy();
        is_option(index) && !text.contains('=') && !is_flag(&text)
    };
    let is_last = |index: usize| !is_option(index) && (index == start || !may_have_value(index - 1));
    let end = (start..words.len()).find(|index| is_last(*index)).map_or(words.len(), |last| last + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn with(line: &str, way: Way) -> Result<String, Error> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let words = CommandLine::new(words, way)?.with(&[String::from("v/c=a"), String::from("v/c=b")]);
        Ok(words.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn what_is_started_again_is_known_by_its_options() {
        for (line, expected) in [
            ("podman run --restart=always i", true),
            ("docker run --rm --restart on-failure:3 i", true),
            ("podman run --restart=no i", false),
            ("podman run --restart no i", false),
            ("podman run --rm i run --restart=always", false),
            ("sudo podman run {} --restart=always i", false),
        ] {
            let words = line.split(' ').map(OsString::from).collect();
            assert_eq!(CommandLine::new(words, Way::Words).unwrap().is_started_again(), expected, "{line}");
        }
    }

    #[test]
    fn devices_go_behind_the_word_that_makes_a_container() {
        let devices = "--device v/c=a --device v/c=b";
        for (line, expected) in [
            ("podman run --rm image run", format!("podman run {devices} --rm image run")),
            (
                "/usr/bin/docker --context x container run i",
                format!("/usr/bin/docker --context x container run {devices} i"),
            ),
            ("nerdctl create i", format!("nerdctl create {devices} i")),
            (
                "podman --log-level=info --remote run i",
                format!("podman --log-level=info --remote run {devices} i"),
            ),
            ("ctr containers create i c", format!("ctr containers create {devices} i c")),
            ("ctr -n k8s.io run --rm i c sh", format!("ctr -n k8s.io run {devices} --rm i c sh")),
            ("sudo podman run {} i", format!("sudo podman run {devices} i")),
            ("kata --annotation=cdi={} i", String::from("kata --annotation=cdi=v/c=a,v/c=b i")),
            ("podman run {} i", format!("podman run {devices} i")),
            ("podman run --rm {} i ls {}", format!("podman run --rm {devices} i ls {{}}")),
            ("podman run -e A={} i find {}", format!("podman run {devices} -e A={{}} i find {{}}")),
            ("podman run --rm -it curl -d {} url", format!("podman run {devices} --rm -it curl -d {{}} url")),
            ("podman run --env-host i {}", format!("podman run {devices} --env-host i {{}}")),
            ("ctr run --rm -t --env A=b {} i c", format!("ctr run --rm -t --env A=b {devices} i c")),
            ("docker compose run {} web", format!("docker compose run {devices} web")),
        ] {
            assert_eq!(with(line, Way::Words).unwrap(), expected);
        }
        assert_eq!(with("./train.sh run", Way::Environment).unwrap(), "./train.sh run");
    }

    #[test]
    fn the_runtime_is_known_also_behind_other_programs() {
        for (line, expected) in [
            ("/usr/bin/docker run i", Some(Runtime::Docker)),
            ("sudo -E nerdctl run {} i", Some(Runtime::Nerdctl)),
            ("./train.sh {}", None),
        ] {
            let words = line.split_whitespace().map(OsString::from).collect();
            let line = CommandLine::new(words, Way::Words).unwrap();
            assert_eq!((line.runtime(), line.is_for_later()), (expected, false));
        }
        for line in ["podman container create i", "podman create {} i"] {
            let words = line.split(' ').map(OsString::from).collect();
            assert!(CommandLine::new(words, Way::Words).unwrap().is_for_later(), "{line}");
        }
    }

    #[test]
    fn a_command_without_a_place_is_refused_with_the_way_out() {
        assert_eq!(with("", Way::Words), Err(Error::Nothing));
        let error = with("sudo podman run i", Way::Words).unwrap_err().to_string();
        assert!(
            error.starts_with("sudo is none of podman, docker, nerdctl, ctr")
                && error.contains("put {} where"),
            "{error}"
        );
        for line in [
            "podman ps",
            "podman exec web run",
            "podman pod create",
            "docker compose run web",
            "docker --debug",
        ] {
            let error = with(line, Way::Words).unwrap_err().to_string();
            assert!(error.contains("neither to run nor to create a container"), "{line}: {error}");
        }
    }
}
