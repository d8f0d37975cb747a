//! `claimfs explain`: why claims get their devices, or why they get none.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::{
    Error,
    inputs::{Inputs, Subject},
    output,
};
use crate::{
    explain::{Explanation, Verdict, explain},
    objects::NAMESPACE,
};

/// Say why claims get their devices, or why they get none
///
/// Every device is listed with the first reason that removed it, the part of a selector that decided is marked with
/// what it saw, and the last lines say what to change. Every reason has a code, see docs/codes.md.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 they fit, 1 they do not, 2 bad input.

Examples:
  claimfs explain -f claim.yaml                          on this machine
  claimfs explain claim default/train                    in the cluster of ~/.kube/config
  claimfs explain pod default/train-0 --kubeconfig FILE
  kubectl get resourceslices,deviceclasses -o yaml | claimfs explain -f claim.yaml -f -")]
pub(super) struct Explain {
    /// What of a cluster to explain
    #[arg(value_enum, requires = "name")]
    kind: Option<Kind>,

    /// Its name
    #[arg(value_name = "NAMESPACE/NAME")]
    name: Option<String>,

    #[command(flatten)]
    inputs: Inputs,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    output: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// A claim
    Claim,
    /// All claims of a pod
    Pod,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

impl Explain {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let subject = match (self.kind, self.name) {
            (Some(Kind::Claim), Some(name)) => Subject::Claim(name),
            (Some(Kind::Pod), Some(name)) => {
                let (namespace, name) = name.split_once('/').unwrap_or((NAMESPACE, &name));
                Subject::Pod { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            _ => Subject::Files,
        };
        let explanation = explain(&self.inputs.question(subject)?)?;
        output::print(&match self.output {
            Format::Text => explanation.to_string(),
            Format::Json => output::json(&explanation) + "\n",
            Format::Yaml => format!("---\n{}", output::yaml(&explanation)),
        })?;
        Ok(explanation.exit_code())
    }
}

impl Explanation {
    /// 0: they fit; 1: they do not; 2: they cannot be asked for like this.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.verdict {
            Verdict::Fits | Verdict::Allocated => ExitCode::SUCCESS,
            Verdict::DoesNotFit if self.findings.iter().any(|finding| finding.code.is_bad_input()) => {
                ExitCode::from(2)
            }
            Verdict::DoesNotFit => ExitCode::FAILURE,
        }
    }
}
