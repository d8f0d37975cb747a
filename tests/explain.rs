//! `claimfs allocate` and `claimfs explain` on prepared questions: `examples/explain` has each with its answer.
//! `CLAIMFS_BLESS=1` writes the answers anew.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use claimfs::explain::Code;
use support::{cluster::Cluster, driver::names, link_to_node};
use tempfile::TempDir;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn claimfs(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimfs"));
    for variable in ["CLAIMFS_CONFIG", "CLAIMFS_DEV", "CLAIMFS_SYSFS", "KUBECONFIG"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn every_prepared_failure_is_explained_as_a_person_can_act_on() {
    let folder = root("examples/explain");
    let questions: Vec<String> = names(&folder)
        .into_iter()
        .filter(|name| Path::new(name).extension() == Some("yaml".as_ref()))
        .collect();
    assert_eq!(questions.len(), 13);
    for question in questions {
        let path = folder.join(&question);
        let output = claimfs(&["explain", "-f", path.to_str().unwrap()]);
        let answer = path.with_extension("txt");
        if env::var_os("CLAIMFS_BLESS").is_some() {
            fs::write(&answer, &output.stdout).unwrap();
        }
        assert_eq!(text(&output.stdout), fs::read_to_string(&answer).unwrap(), "{question}");
        assert_eq!(text(&output.stderr), "");
        let expected = match &question[..2] {
            "12" => 0,
            "03" | "09" | "11" => 2,
            _ => 1,
        };
        assert_eq!(output.status.code(), Some(expected), "{question}");
        // What cannot be allocated says the same, where nothing is expected on standard output.
        let output = claimfs(&["allocate", "-f", path.to_str().unwrap(), "-o", "yaml"]);
        assert_eq!(output.status.code(), Some(expected), "{question}");
        if expected != 0 {
            assert_eq!(text(&output.stdout), "");
            assert_eq!(text(&output.stderr), fs::read_to_string(&answer).unwrap());
        }
    }
}

#[test]
fn programs_get_codes() {
    let path = root("examples/explain/04-in-use.yaml");
    let output = claimfs(&["explain", "-f", path.to_str().unwrap(), "-o", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["verdict"], "doesNotFit");
    let removed = value["requests"][0]["removed"].as_array().unwrap();
    let codes: Vec<&str> = removed.iter().map(|group| group["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["CFS0110", "CFS0111"]);
}

#[test]
fn every_code_is_in_the_book() {
    let book = fs::read_to_string(root("docs/codes.md")).unwrap();
    let explained = Code::ALL.iter().map(ToString::to_string);
    let checked = claimfs::check::Code::ALL.iter().map(ToString::to_string);
    for code in explained.chain(checked) {
        assert!(book.contains(&format!("| {code} |")), "{code} is not in docs/codes.md");
    }
}

#[test]
fn what_was_allocated_is_respected_when_it_is_given_back() {
    let path = root("examples/explain/12-fits.yaml");
    let path = path.to_str().unwrap();
    let output = claimfs(&["allocate", "-f", path, "-o", "yaml"]);
    assert_eq!(output.status.code(), Some(0));
    let folder = TempDir::new().unwrap();
    let allocated = folder.path().join("allocated.yaml");
    fs::write(&allocated, &output.stdout).unwrap();
    let more = folder.path().join("more.yaml");
    let claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: more}\n\
         spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}}\n";
    fs::write(&more, claim).unwrap();
    let files = ["-f", path, "-f", allocated.to_str().unwrap(), "-f", more.to_str().unwrap()];
    let output = claimfs(&[&["allocate", "--node", "worker-1"], &files[..]].concat());
    assert_eq!(
        text(&output.stdout),
        "CLAIM         REQUEST  DEVICE  POOL      DRIVER           SHARE  NODE\n\
         default/more  r        gpu-3   worker-1  gpu.example.com  -      worker-1\n"
    );
}

#[test]
fn devices_of_this_machine_are_allocated_without_a_cluster() {
    let machine = TempDir::new().unwrap();
    link_to_node(machine.path(), "ttyS0", "null");
    let config = machine.path().join("config.yaml");
    fs::write(&config, "driver: d.example.com\nsources: [{name: serial, dev: {paths: ['/dev/ttyS*']}}]\n")
        .unwrap();
    let question = machine.path().join("claim.yaml");
    let objects = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: serial}
spec: {selectors: [{cel: {expression: 'device.attributes[\"d.example.com\"].source == \"serial\"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: port}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: serial, count: COUNT}}]}}
";
    let ask = |count: &str| {
        fs::write(&question, objects.replace("COUNT", count)).unwrap();
        let dev = machine.path().to_str().unwrap();
        let arguments = [
            "allocate",
            "--config",
            config.to_str().unwrap(),
            "--objects-dir",
            dev,
            "--dev",
            dev,
            "--sysfs",
            dev,
        ];
        claimfs(&[&arguments[..], &["--node", "n1", "-f", question.to_str().unwrap()]].concat())
    };
    let output = ask("1");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("default/port  r        ttys0"), "{}", text(&output.stdout));
    let output = ask("2");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("ask for 1, which is all that this node has"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn bad_input_says_what_is_wrong() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = write("broken.yaml", "kind: [");
    let wrong = write(
        "wrong.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: {requests: 1}}\n",
    );
    let nothing = write("nothing.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n");
    let fits = root("examples/explain/12-fits.yaml");
    let fits = fits.to_str().unwrap();
    for (arguments, expected) in [
        (vec!["-f", "/does/not/exist"], "cannot read /does/not/exist"),
        (vec!["-f", &broken], "broken.yaml"),
        (vec!["-f", &wrong], "ResourceClaim \"a\": spec.devices.requests"),
        (vec!["--devices", "files", "-f", &nothing], "there is no claim that is not allocated yet"),
        (vec!["-f", fits, "--claim", "default/none"], "there is no claim default/none; there are: "),
        (vec!["-f", fits, "--feature-gates", "DRANone=true"], "is no gate that the allocator looks at"),
    ] {
        for command in ["allocate", "explain"] {
            let output = claimfs(&[&[command], &arguments[..]].concat());
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
        }
    }
}

/// A class and claims of it, for a real API server.
fn objects(driver: &str) -> String {
    let claim = |name: &str, selector: &str| {
        format!(
            "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}}}
spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: {driver}, selectors: [{{cel: {{expression: '{selector}'}}}}]}}}}]}}}}
---"
        )
    };
    format!(
        "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: {driver}}}
spec: {{selectors: [{{cel: {{expression: 'device.driver == \"{driver}\"'}}}}]}}
---{}{}
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {driver}}}
spec:
  driver: {driver}
  allNodes: true
  pool: {{name: p, generation: 1, resourceSliceCount: 1}}
  devices: [{{name: one, attributes: {{model: {{string: a}}}}}}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: default}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {driver}}}
spec:
  automountServiceAccountToken: false
  resourceClaims: [{{name: c, resourceClaimName: typo}}]
  containers: [{{name: main, image: none, resources: {{claims: [{{name: c}}]}}}}]
",
        claim("typo", &format!("device.attributes[\"{driver}\"].modle == \"a\"")),
        claim("right", &format!("device.attributes[\"{driver}\"].model == \"a\"")),
    )
}

#[test]
#[ignore = "needs root and Go: hack/test runs it"]
fn a_claim_and_a_pod_of_a_real_cluster_are_explained() {
    let plane = Cluster::shared_control_plane();
    let driver = "explain.example.com";
    plane.apply("apply", &objects(driver));
    let kubeconfig = plane.kubeconfig().to_str().unwrap();
    let pod = format!("default/{driver}");
    for subject in [["claim", "default/typo"], ["pod", &pod]] {
        let output =
            claimfs(&[&["explain", "--kubeconfig", kubeconfig, "--node", "any"], &subject[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let answer = text(&output.stdout);
        assert!(answer.starts_with("claim default/typo does not fit on node any\n"), "{answer}");
        assert!(answer.ends_with("\nto change: write \"model\" instead of \"modle\"\n"), "{answer}");
    }
    let output =
        claimfs(&["explain", "claim", "right", "--kubeconfig", kubeconfig, "--node", "any", "-o", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["verdict"], &value["requests"][0]["chosen"][0]), (&"fits".into(), &"p/one".into()));
    let output = claimfs(&["explain", "claim", "default/none", "--kubeconfig", kubeconfig]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}
