//! Random questions to our allocator and to upstream's, which must give the same answers.
//!
//! `CLAIMFS_CASES=n` asks more of them, `CLAIMFS_SEED=n` others. A difference prints the smallest question that still
//! has it.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use claimfs::allocate::{
    Allocated, Claim, Cluster, DeviceId, Expressions, Features, Release, Slice, Slices, allocate,
};
use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use support::cases::{Dice, question, smallest};
use tempfile::TempDir;

const CASES: u64 = 10_000;
/// How much of an error tells its kind.
const ALIKE: usize = 40;

/// Upstream's code, which answers line by line.
struct Reference {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    _program: TempDir,
}

impl Reference {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("reference");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
        let built =
            Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status();
        assert!(built.unwrap().success());
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (questions, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, questions, answers: BufReader::new(answers), _program: folder }
    }

    fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.questions, "{question}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?} to {question}"))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn part<T: DeserializeOwned>(question: &Value, name: &str) -> Option<Vec<T>> {
    Option::<Vec<T>>::deserialize(&question[name]).ok()?.or_else(|| Some(Vec::new()))
}

fn features(names: &[String]) -> Features {
    let on = |name: &str| names.iter().any(|one| one == name);
    Features {
        admin_access: on("AdminAccess"),
        compatibility_groups: on("CompatibilityGroups"),
        consumable_capacity: on("ConsumableCapacity"),
        derived_attributes: on("DerivedAttributes"),
        binding_conditions: on("DeviceBindingAndStatus"),
        device_taints: on("DeviceTaints"),
        fractional_capacity_range: on("FractionalCapacityRange"),
        list_type_attributes: on("ListTypeAttributes"),
        optional_node_operations: on("OptionalNodeOperations"),
        partitionable_devices: on("PartitionableDevices"),
        prioritized_list: on("PrioritizedList"),
    }
}

fn device_id(text: &str) -> DeviceId<'_> {
    let parts: Vec<&str> = text.split('/').collect();
    DeviceId { driver: parts[0], pool: parts[1], device: parts[2] }
}

/// Our answer, in the form of the reference's; none to a question that is none.
fn ours(question: &Value) -> Option<Value> {
    let names: Vec<String> = part(question, "Features")?;
    let node = Node::deserialize(&question["Node"]).ok()?;
    let classes: Vec<DeviceClass> = part(question, "Classes")?;
    let slices: Vec<ResourceSlice> = part(question, "Slices")?;
    let claims: Vec<ResourceClaim> = part(question, "Claims")?;
    let taken: Vec<String> = part(question, "AllocatedDevices")?;
    let slices: Slices<'_> = slices.iter().map(Slice::try_from).collect::<Result<_, _>>().ok()?;
    let claims: Vec<Claim<'_>> = claims.iter().map(Claim::try_from).collect::<Result<_, _>>().ok()?;
    let allocated =
        Allocated { devices: taken.iter().map(|id| device_id(id)).collect(), ..Allocated::default() };
    let features = features(&names);
    let cluster = Cluster {
        release: Release::V1_37,
        channel: features.channel(),
        features,
        allocated: &allocated,
        classes: &classes,
        slices: &slices,
        cel: &Expressions::new(Release::V1_37, &features),
        interruption: &|| None,
        new_share_id: &|| String::from("share"),
    };
    Some(match allocate(&cluster, &node, &claims) {
        Ok(results) => json!({"Results": results, "Error": ""}),
        Err(error) => json!({"Results": null, "Error": error.to_string()}),
    })
}

/// Names of shares are random.
fn comparable(answer: &Value) -> (Option<Vec<AllocationResult>>, String) {
    let mut results = Option::<Vec<AllocationResult>>::deserialize(&answer["Results"]).unwrap();
    let devices = results.iter_mut().flatten().filter_map(|result| result.devices.as_mut());
    for device in devices.flat_map(|devices| devices.results.iter_mut().flatten()) {
        device.share_id = device.share_id.take().map(|_| String::from("share"));
    }
    (results, answer["Error"].as_str().unwrap_or_default().to_owned())
}

/// What both say, where it is not the same.
struct Difference {
    ours: (Option<Vec<AllocationResult>>, String),
    theirs: (Option<Vec<AllocationResult>>, String),
}

impl Difference {
    fn of(reference: &mut Reference, question: &Value) -> Option<Self> {
        let ours = comparable(&ours(question)?);
        let theirs = reference.ask(&json!({"allocate": question}));
        if theirs.get("invalid").is_some() {
            return None;
        }
        let theirs = comparable(&theirs);
        (ours != theirs).then_some(Self { ours, theirs })
    }

    /// Whether it is a difference of the same kind: a smaller question may have another.
    fn is_like(&self, other: &Self) -> bool {
        let kind = |(results, error): &(Option<Vec<AllocationResult>>, String)| {
            (results.is_some(), error.chars().take(ALIKE).collect::<String>())
        };
        kind(&self.ours) == kind(&other.ours) && kind(&self.theirs) == kind(&other.theirs)
    }
}

#[test]
#[ignore = "needs Go: hack/test runs it"]
fn the_allocator_answers_as_upstreams() {
    let number = |name: &str, otherwise: u64| env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (cases, seed) = (number("CLAIMFS_CASES", CASES), number("CLAIMFS_SEED", 0));
    let mut reference = Reference::start();
    let mut fits = 0;
    for case in seed..seed + cases {
        let question = question(&mut Dice::new(case));
        if let Some(found) = Difference::of(&mut reference, &question) {
            let small = smallest(question, &mut |question| {
                Difference::of(&mut reference, question).is_some_and(|other| other.is_like(&found))
            });
            let Difference { ours, theirs } = Difference::of(&mut reference, &small).unwrap_or(found);
            panic!("case {case}:\n{small}\nours: {ours:?}\ntheirs: {theirs:?}");
        }
        fits += u64::from(ours(&question).is_some_and(|answer| !answer["Results"].is_null()));
    }
    println!("{cases} cases without a difference, {fits} of them fit");
    assert!(fits > cases / 50, "most questions have no answer: they ask nothing");
}
