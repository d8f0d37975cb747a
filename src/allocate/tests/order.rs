//! What the search does in which order, and what it can leave out.

use std::cell::RefCell;

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use serde_json::{Value, json};

use crate::allocate::{
    Allocated, Attribute, Cel, CelError, Channel, Claim, Cluster, DeviceView, Features, Release, Slice,
    Slices, pools::Pools, requests::Requests, search::Search,
};

/// Matches by a function of the expression and the device's `number`, and keeps what it was asked.
struct Asked<F> {
    answer: F,
    questions: RefCell<Vec<i64>>,
}

impl<F: Fn(&str, i64) -> Result<bool, CelError>> Cel for Asked<F> {
    fn matches(&self, expression: &str, device: &DeviceView<'_>) -> Result<bool, CelError> {
        let Some(Attribute::Int(number)) = device.attributes.get("number") else { panic!("no number") };
        self.questions.borrow_mut().push(*number);
        (self.answer)(expression, *number)
    }

    fn attribute(&self, _: &str, _: &DeviceView<'_>) -> Result<Attribute<'static>, CelError> {
        unreachable!("nothing is derived")
    }
}

/// What came out: the devices by their number, and the steps it took.
struct Outcome {
    answer: Result<Option<Vec<usize>>, String>,
    steps: u64,
    questions: Vec<i64>,
}

/// Requests of so many devices each, of a node with so many.
fn outcome(
    devices: usize,
    counts: &[usize],
    answer: impl Fn(&str, i64) -> Result<bool, CelError>,
) -> Outcome {
    let read = |value: Value| serde_json::from_value(value);
    let devices: Vec<_> = (0..devices)
        .map(|index| json!({ "name": format!("device-{index}"), "attributes": { "number": { "int": index } } }))
        .collect();
    let slice: ResourceSlice = serde_json::from_value(json!({
        "metadata": { "name": "slice" },
        "spec": {
            "driver": "driver", "allNodes": true, "devices": devices,
            "pool": { "name": "pool", "generation": 1, "resourceSliceCount": 1 },
        },
    }))
    .unwrap();
    let requests: Vec<_> = counts.iter().enumerate().map(|(index, count)| {
        let selectors = json!([{ "cel": { "expression": format!("{index}") } }]);
        let exactly = json!({ "deviceClassName": "class", "allocationMode": "ExactCount", "count": count, "selectors": selectors });
        json!({ "name": format!("request-{index}"), "exactly": exactly })
    }).collect();
    let claim: ResourceClaim = serde_json::from_value(
        json!({ "metadata": { "name": "claim" }, "spec": { "devices": { "requests": requests } } }),
    )
    .unwrap();
    let class: DeviceClass =
        serde_json::from_value(json!({ "metadata": { "name": "class" }, "spec": {} })).unwrap();
    let node: Node = read(json!({ "metadata": { "name": "node" } })).unwrap();

    let cel = Asked { answer, questions: RefCell::default() };
    let slices = Slices::from_iter([Slice::try_from(&slice).unwrap()]);
    let claims = [Claim::try_from(&claim).unwrap()];
    let cluster = Cluster {
        release: Release::V1_37,
        channel: Channel::Incubating,
        features: Features::default_of(Release::V1_37),
        allocated: &Allocated::default(),
        classes: &[class],
        slices: &slices,
        cel: &cel,
        interruption: &|| None,
        new_share_id: &String::new,
    };
    let pools = Pools::gather(&cluster, &node).unwrap();
    let requests = Requests::check(&cluster, &node, &claims, &pools).unwrap();
    let mut search = Search::new(&cluster, &node, &claims, &pools, &requests);
    let answer = search.run().map_err(|error| error.to_string()).map(|solution| {
        solution.map(|solution| solution.taken[0].iter().map(|taken| taken.candidate).collect())
    });
    let steps = search.steps;
    Outcome { answer, steps, questions: cel.questions.into_inner() }
}

#[test]
fn one_device_too_few_is_found_out_without_trying_all_combinations() {
    let Outcome { answer, steps, .. } = outcome(31, &[32], |_, _| Ok(true));
    assert_eq!(answer, Ok(None));
    assert!(steps < 2_000, "{steps}");
}

#[test]
fn one_device_too_few_for_many_requests_is_found_out_without_trying_all_orders() {
    let Outcome { answer, steps, .. } = outcome(15, &[1; 16], |_, _| Ok(true));
    assert_eq!(answer, Ok(None));
    assert!(steps < 2_000, "{steps}");
}

#[test]
fn the_first_solution_is_found_though_most_ways_to_it_are_skipped() {
    // All but the last request can have any of the first devices; the last one wants the first of them.
    let last_wants_the_first = |expression: &str, number: i64| Ok(expression != "11" || number == 0);
    let Outcome { answer, steps, .. } = outcome(12, &[1; 12], last_wants_the_first);
    assert_eq!(answer, Ok(Some((1..12).chain([0]).collect())));
    assert!(steps < 2_000, "{steps}");
}

#[test]
fn an_error_is_raised_when_its_device_is_reached_and_not_before() {
    let fails_on_the_last = |_: &str, number: i64| match number {
        2 => Err(CelError::Runtime("no such key: x".to_owned())),
        _ => Ok(true),
    };
    let Outcome { answer, questions, .. } = outcome(3, &[2], fails_on_the_last);
    assert_eq!((answer, questions), (Ok(Some(vec![0, 1])), vec![0, 1]));
    let error = outcome(3, &[3], fails_on_the_last).answer.unwrap_err();
    assert!(error.starts_with("claim claim: selector #0 on device driver/pool/device-2: "), "{error}");
}

#[test]
fn nothing_is_skipped_if_an_error_could_be_missed() {
    // The last request reaches the first device only after every other one has been moved away from it.
    let fails_late = |expression: &str, number: i64| match (expression, number) {
        ("6", 0) => Err(CelError::Runtime("late".to_owned())),
        ("6", _) => Ok(false),
        _ => Ok(true),
    };
    let Outcome { answer, steps, .. } = outcome(7, &[1; 7], fails_late);
    assert!(answer.unwrap_err().ends_with("CEL runtime error: late"));
    assert!(steps > 1_000, "{steps}");
}

#[test]
fn no_expression_is_evaluated_twice_for_a_device() {
    let Outcome { mut questions, .. } = outcome(15, &[16], |_, _| Ok(true));
    questions.sort_unstable();
    assert_eq!(questions, (0..15).collect::<Vec<_>>());
}
