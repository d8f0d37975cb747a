//! Why claims get their devices, or why they get none: for people, in words that say what to change, and for machines,
//! with codes.
//!
//! [`explain`] asks the allocator first; only what it answers is explained. Then every device is looked at by itself,
//! and where no device explains it, the claims are asked for again with less in them.

mod code;
mod excerpt;
mod names;
mod node;
mod obstacles;
mod request;
mod text;
mod together;

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use serde::Serialize;

pub use self::code::Code;
use crate::question::{Error, Question, is_allocated, name};

/// Why claims get their devices, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The claims, as namespace and name.
    pub claims: Vec<String>,
    /// Whether they all fit.
    pub verdict: Verdict,
    /// The node that the rest is about: the one on which they fit, or that on which least is missing.
    pub node: String,
    /// What is true of the claims as a whole.
    pub findings: Vec<Finding>,
    /// Every request, in the order of the claims.
    pub requests: Vec<RequestNote>,
    /// What came of the other nodes.
    pub other_nodes: Vec<NodeNote>,
    /// What to change, the most promising first.
    pub change: Vec<String>,
}

/// Whether claims fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// They do.
    Fits,
    /// They do not.
    DoesNotFit,
    /// They have their devices already.
    Allocated,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is about.
    pub code: Code,
    /// What was found.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// What came of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeNote {
    /// The node.
    pub node: String,
    /// The first reason.
    pub code: Code,
    /// The same in words.
    pub text: String,
}

/// A request or subrequest, and what came of the devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestNote {
    /// The claim, as namespace and name.
    pub claim: String,
    /// The request, with its subrequest if it is one.
    pub request: String,
    /// Its class.
    pub class: String,
    /// How many devices it wants, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<usize>,
    /// How many devices the node can reach.
    pub considered: usize,
    /// How many of them it could have, each by itself.
    pub possible: usize,
    /// What removed the others.
    pub removed: Vec<Group>,
    /// What it gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<String>,
    /// What is true of all devices.
    pub findings: Vec<Finding>,
    /// The device that could be had most easily.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// What would help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<String>,
}

/// Devices that were removed for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// What the reason is about.
    pub code: Code,
    /// Why.
    pub text: String,
    /// Which devices, as pool and name.
    pub devices: Vec<String>,
    /// The part of an expression that decided, marked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excerpt: Vec<String>,
}

/// Explains what the allocator answers.
pub fn explain(question: &Question) -> Result<Explanation, Error> {
    if let Some(explanation) = allocated(question) {
        return Ok(explanation);
    }
    question.with(|situation| node::best(situation, question.nodes()))
}

/// Of claims that have their devices, these are all there is to say.
fn allocated(question: &Question) -> Option<Explanation> {
    let wanted = question.wanted();
    if !wanted.iter().all(is_allocated) {
        return None;
    }
    let devices = |claim: &ResourceClaim| {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
        let names = results.into_iter().flatten().map(|result| format!("{}/{}", result.pool, result.device));
        format!("{} has {}", name(claim), names.collect::<Vec<_>>().join(", "))
    };
    let finding = |text| Finding { code: Code::Fits, text, fix: None };
    Some(Explanation {
        claims: wanted.iter().map(name).collect(),
        verdict: Verdict::Allocated,
        node: String::new(),
        findings: wanted.iter().map(devices).map(finding).collect(),
        requests: Vec::new(),
        other_nodes: Vec::new(),
        change: Vec::new(),
    })
}

impl Explanation {
    /// How much of what is wanted could be had.
    fn score(&self) -> usize {
        self.requests.iter().map(|request| request.possible.min(request.wanted.unwrap_or(usize::MAX))).sum()
    }

    /// In one line.
    fn note(&self) -> NodeNote {
        let short = self.requests.iter().find(|request| !request.is_enough());
        let (code, text) = match (self.findings.first(), short.and_then(|request| request.removed.first())) {
            (_, Some(group)) => (group.code, group.text.clone()),
            (Some(finding), None) => (finding.code, finding.text.clone()),
            (None, None) => (Code::NoDevices, String::from("there are no devices")),
        };
        NodeNote { node: self.node.clone(), code, text }
    }

    /// Notes which devices the requests get; alternatives behind the one that was taken were not tried.
    fn choose(&mut self, results: &[AllocationResult]) {
        let claims = self.claims.clone();
        for (claim, result) in claims.iter().zip(results) {
            let devices = result.devices.as_ref().and_then(|devices| devices.results.as_ref());
            for result in devices.into_iter().flatten() {
                let has_request =
                    |note: &&mut RequestNote| note.claim == *claim && note.request == result.request;
                if let Some(note) = self.requests.iter_mut().find(has_request) {
                    note.chosen.push(format!("{}/{}", result.pool, result.device));
                }
            }
        }
        let mut taken: Vec<(String, String)> = Vec::new();
        self.requests.retain(|note| {
            let Some((request, _)) = note.request.split_once('/') else { return true };
            let key = (note.claim.clone(), request.to_owned());
            let is_behind = taken.contains(&key);
            if !note.chosen.is_empty() {
                taken.push(key);
            }
            !is_behind
        });
    }

    /// Gathers what to change. What is wrong with a name or an expression goes before what others have.
    fn advise(&mut self) {
        if self.verdict != Verdict::DoesNotFit {
            return;
        }
        let short = || self.requests.iter().filter(|request| !request.is_enough());
        let fix = |finding: &Finding| finding.fix.clone();
        let mut change: Vec<String> = short().flat_map(|request| &request.findings).filter_map(fix).collect();
        // A name that is wrong makes the selector fail.
        let is_own = |finding: &&Finding| change.is_empty() || finding.code != Code::Evaluation;
        let own: Vec<String> = self.findings.iter().filter(is_own).filter_map(fix).collect();
        change.extend(own);
        if change.is_empty() {
            change.extend(short().flat_map(|request| request.fixes.clone()));
        }
        let mut seen = BTreeSet::new();
        change.retain(|fix| seen.insert(fix.clone()));
        self.change = change;
    }
}

impl RequestNote {
    /// Whether there are as many devices as it wants, each by itself.
    fn is_enough(&self) -> bool {
        match self.wanted {
            Some(wanted) => self.possible >= wanted,
            None => self.possible > 0,
        }
    }
}

/// What helps whatever the details are.
fn general_fix(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::Expression => "correct the expression at the mark",
        Code::Quantity => {
            "compare a capacity with == quantity(\"20Gi\") or with .compareTo(quantity(\"20Gi\")) >= 0"
        }
        Code::OtherType => {
            "compare a version with semver(\"1.2.3\"), a string with a string, a number with a number: the slice says which it is"
        }
        Code::Evaluation => {
            "guard the selector: has(device.attributes[…].name) && …, or device.attributes[…].?name.orValue(…)"
        }
        Code::TooMany => "ask for fewer devices, or for the rest in a second claim: a claim can have 32",
        Code::Disabled => "switch the feature on in the API server and the scheduler, or do not ask for it",
        Code::IncompletePool => {
            "wait until the driver has published all slices of the pool; if it does not, look at its logs"
        }
        Code::InvalidPool => {
            "correct the driver: a device name occurs twice in the pool, or devices consume counters that it does not have"
        }
        Code::NoDevices => "start the driver: `kubectl get resourceslices` shows what is published",
        Code::Interrupted => "ask for less at a time",
        _ => return None,
    })
}

/// "1 device", "2 devices".
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
