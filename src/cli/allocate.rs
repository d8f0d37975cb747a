//! `claimfs allocate`: which devices claims would get.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimStatus};
use serde_json::json;

use super::{
    Error,
    inputs::{Inputs, Subject},
    output,
};
use crate::{
    explain::explain,
    question::{Answer, Question, name},
};

/// Show which devices claims would get
///
/// Decides as the scheduler does, and changes nothing. All claims are allocated together, on the first node on
/// which they fit. What other claims have already is respected.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 they fit, 1 they do not (standard error says why), 2 bad input.

Examples:
  claimfs allocate -f claim.yaml                                   on this machine
  kubectl get resourceslices,deviceclasses -o yaml | claimfs allocate -f claim.yaml -f -
  claimfs allocate -f claim.yaml --kubeconfig ~/.kube/config       in a cluster")]
pub(super) struct Allocate {
    #[command(flatten)]
    inputs: Inputs,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// The claims with what the scheduler would add, for programs
    Json,
    /// The claims with what the scheduler would add; can be given to -f again
    Yaml,
}

impl Allocate {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let question = self.inputs.question(Subject::Files)?;
        let fits = question.with(|situation| {
            question.nodes().iter().find_map(|node| match situation.ask(node) {
                Answer::Fits(results) => {
                    Some((node.metadata.name.clone().unwrap_or_default(), allocated(&question, results)))
                }
                Answer::DoesNotFit | Answer::Fails(_) => None,
            })
        })?;
        let Some((node, claims)) = fits else {
            let explanation = explain(&question)?;
            output::complain(format_args!("{}", explanation.to_string().trim_end()));
            return Ok(explanation.exit_code());
        };
        output::print(&match self.output {
            Format::Table => table(&node, &claims),
            Format::Json => {
                output::json(&json!({ "apiVersion": "v1", "kind": "List", "items": claims })) + "\n"
            }
            Format::Yaml => claims.iter().map(|claim| format!("---\n{}", output::yaml(claim))).collect(),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The claims as the scheduler would leave them.
fn allocated(question: &Question, results: Vec<AllocationResult>) -> Vec<ResourceClaim> {
    let claim = |(claim, result): (&ResourceClaim, AllocationResult)| {
        let mut claim = claim.clone();
        let status = ResourceClaimStatus { allocation: Some(result), ..ResourceClaimStatus::default() };
        claim.status = Some(status);
        claim
    };
    question.wanted().iter().zip(results).map(claim).collect()
}

fn table(node: &str, claims: &[ResourceClaim]) -> String {
    let mut rows = Vec::new();
    for claim in claims {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
        for result in results.into_iter().flatten() {
            let consumed = result.consumed_capacity.iter().flatten();
            let share: Vec<String> = consumed.map(|(name, amount)| format!("{name}={}", amount.0)).collect();
            rows.push(vec![
                name(claim),
                result.request.clone(),
                result.device.clone(),
                result.pool.clone(),
                result.driver.clone(),
                if share.is_empty() { String::from("-") } else { share.join(" ") },
                if node.is_empty() { String::from("-") } else { node.to_owned() },
            ]);
        }
    }
    output::table(&["CLAIM", "REQUEST", "DEVICE", "POOL", "DRIVER", "SHARE", "NODE"], rows)
}
