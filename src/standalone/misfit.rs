//! Why a claim does not fit: the one place where that is said.

use std::collections::BTreeSet;

use super::decide::{Candidates, Machine, Withheld, results};
use crate::{claims::Stored, device::DeviceName};

/// What is said to whoever asked for a claim that does not fit now.
#[must_use]
pub fn describe(machine: &Machine<'_>, claim: &Stored, withheld: &Withheld) -> String {
    let candidates = machine.candidates(claim).unwrap_or_default();
    let lines: Vec<String> = candidates.iter().map(|one| line(machine, one, withheld)).collect();
    format!("claim {} does not fit: {}", claim.claim, lines.join("; "))
}

fn line(machine: &Machine<'_>, candidates: &Candidates, withheld: &Withheld) -> String {
    let Candidates { request, class, mode, devices } = candidates;
    let holders: BTreeSet<String> = machine
        .claims
        .iter()
        .filter(|other| results(other).iter().any(|result| is_in(devices, &result.device)))
        .map(|other| other.claim.to_string())
        .collect();
    let wanted = mode.map_or_else(|| String::from("all devices"), |count| count_of(count, "device"));
    let matching = format!("{} of {} match", devices.len(), machine.found.devices.len());
    let held = match holders.len() {
        0 => String::new(),
        _ => format!(", in use by {}", some(&holders)),
    };
    let waited = devices.intersection(withheld).count();
    let waited = if waited > 0 { format!(", {waited} waited for by others") } else { String::new() };
    format!("request {request} wants {wanted} of class {class}; {matching}{held}{waited}")
}

fn is_in(devices: &BTreeSet<DeviceName>, device: &str) -> bool {
    devices.iter().any(|name| name.as_str() == device)
}

fn count_of(count: i64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn some(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
    let more = if names.len() > 5 { " …" } else { "" };
    format!("{}{more}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::decide::tests::Bench;

    #[test]
    fn it_is_said_who_has_them() {
        let mut bench = Bench::new("[{name: gpu, simulated: {count: 2}}]");
        let one = bench.claim(&[], 1);
        bench.give(one, &Withheld::new()).unwrap();
        let two = bench.claim(&[], 2);
        assert_eq!(
            describe(&bench.machine(), &two, &Withheld::new()),
            "claim default/run-00000001 does not fit: request device wants 2 devices of class claimfs.dev; 2 of 2 match, in use by default/run-00000000"
        );
    }
}
