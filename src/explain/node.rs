//! What came of the claims on one node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::{Code, Explanation, Finding, RequestNote, Verdict, counted, general_fix, request, together};
use crate::{
    allocate::{self, InspectedPool, Inspection, PoolCondition, RequestFlaw, inspect},
    cel::similar,
    question::{Answer, Situation},
};

/// The node on which the claims fit, or else that on which least is missing.
pub(super) fn best(situation: &Situation<'_>, nodes: &[Node]) -> Explanation {
    let explainer = Explainer { situation };
    let mut tried = Vec::new();
    for node in nodes {
        let explained = explainer.on(node);
        if explained.verdict == Verdict::Fits {
            return explained;
        }
        tried.push(explained);
    }
    // The first of those on which most is there.
    let best = (0..tried.len()).max_by_key(|&index| (tried[index].score(), usize::MAX - index));
    let mut explanation = tried.swap_remove(best.unwrap_or_default());
    explanation.other_nodes = tried.iter().map(Explanation::note).collect();
    explanation.other_nodes.sort_by(|one, other| one.node.cmp(&other.node));
    explanation
}

struct Explainer<'a, 's> {
    situation: &'s Situation<'a>,
}

impl Explainer<'_, '_> {
    fn on(&self, node: &Node) -> Explanation {
        let mut explanation = Explanation {
            claims: self.situation.claims.iter().map(|claim| claim.id.clone()).collect(),
            verdict: Verdict::DoesNotFit,
            node: node.metadata.name.clone().unwrap_or_default(),
            findings: Vec::new(),
            requests: Vec::new(),
            other_nodes: Vec::new(),
            change: Vec::new(),
        };
        let answer = self.situation.ask(node);
        if let Answer::Fails(error) = &answer {
            explanation.findings.push(self.error(error));
        }
        let inspection = inspect(&self.situation.cluster, node, &self.situation.claims);
        if let Ok(inspection) = &inspection {
            explanation.requests = request::notes(self.situation, inspection);
            explanation.findings.extend(inspection.pools.iter().filter_map(|pool| self.pool(pool)));
            explanation.findings.extend(self.elsewhere(inspection));
        }
        match answer {
            Answer::Fits(results) => {
                explanation.verdict = Verdict::Fits;
                explanation.findings.retain(|finding| finding.code != Code::OtherNode);
                explanation.choose(&results);
            }
            Answer::Fails(_) => {}
            Answer::DoesNotFit => {
                if let Ok(inspection) = &inspection
                    && explanation.requests.iter().all(RequestNote::is_enough)
                {
                    explanation.findings.extend(together::findings(self.situation, node, inspection));
                }
            }
        }
        explanation.advise();
        explanation
    }

    fn error(&self, error: &allocate::Error) -> Finding {
        let fix = match error {
            allocate::Error::Request { flaw: RequestFlaw::UnknownClass(class), .. } => {
                let known = || {
                    self.situation.cluster.classes.iter().filter_map(|class| class.metadata.name.as_deref())
                };
                Some(match (similar(class, known()), known().collect::<Vec<_>>().join(", ")) {
                    (Some(meant), _) => format!("name the class {meant:?} instead of {class:?}"),
                    (None, known) if known.is_empty() => format!("create the class {class:?}: there is none"),
                    (None, known) => format!("create the class {class:?}, or name one of these: {known}"),
                })
            }
            _ => general_fix(error.into()).map(str::to_owned),
        };
        Finding { code: error.into(), text: format!("the scheduler says: {error}"), fix }
    }

    /// What is wrong with a pool, and with how many devices.
    fn pool(&self, pool: &InspectedPool<'_>) -> Option<Finding> {
        let InspectedPool { driver, name, condition } = pool;
        let of_pool = || {
            self.situation
                .cluster
                .slices
                .iter()
                .filter(|slice| slice.driver == *driver && slice.pool == *name)
        };
        let generation = of_pool().map(|slice| slice.generation).max().unwrap_or_default();
        let newest = || of_pool().filter(|slice| slice.generation == generation);
        let devices: usize = newest().map(|slice| slice.devices.len()).sum();
        let (code, text) = match condition {
            PoolCondition::Usable => return None,
            PoolCondition::Incomplete => {
                let (there, of) =
                    (newest().count(), newest().map(|slice| slice.slice_count).max().unwrap_or_default());
                let text = format!(
                    "pool {driver}/{name} is incomplete: {there} of {of} slices of generation {generation} are there, and \
                     their {} are not considered",
                    counted(devices, "device")
                );
                (Code::IncompletePool, text)
            }
            PoolCondition::Invalid => {
                let text = format!(
                    "pool {driver}/{name} contradicts itself, and its {} are not considered",
                    counted(devices, "device")
                );
                (Code::InvalidPool, text)
            }
        };
        Some(Finding { code, text, fix: general_fix(code).map(str::to_owned) })
    }

    /// The devices that this node cannot reach.
    fn elsewhere(&self, inspection: &Inspection<'_>) -> Option<Finding> {
        let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
        let mut total = 0;
        for slice in self.situation.cluster.slices.iter() {
            let is_here =
                inspection.pools.iter().any(|pool| pool.driver == slice.driver && pool.name == slice.pool);
            if !is_here && !slice.devices.is_empty() {
                total += slice.devices.len();
                *nodes.entry(slice.placement.node_name.unwrap_or("others")).or_default() +=
                    slice.devices.len();
            }
        }
        let considered = inspection.wants.first().map_or(0, |want| want.devices.len());
        if total == 0 && considered == 0 && inspection.pools.is_empty() {
            let text = String::from("there are no devices at all");
            return Some(Finding {
                code: Code::NoDevices,
                text,
                fix: general_fix(Code::NoDevices).map(str::to_owned),
            });
        }
        if total == 0 {
            return None;
        }
        let names: Vec<String> =
            nodes.iter().take(8).map(|(node, count)| format!("{node} ({count})")).collect();
        let more = if nodes.len() > names.len() { ", …" } else { "" };
        let text = format!(
            "{} of other nodes cannot be reached: {}{more}",
            counted(total, "device"),
            names.join(", ")
        );
        Some(Finding { code: Code::OtherNode, text, fix: None })
    }
}
