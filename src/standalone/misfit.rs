//! Why a claim does not fit: the one place where that is said.

use super::{
    decide::{Machine, Withheld},
    manifest::RELEASE,
};
use crate::{
    allocate::Features,
    claims::Stored,
    device::DeviceName,
    explain::explain,
    objects::Objects,
    question::{Choice, Question, Reserved},
};

/// What is said to whoever asked for a claim that does not fit now.
#[must_use]
pub fn describe(machine: &Machine<'_>, claim: &Stored, withheld: &Withheld) -> String {
    let asked = Objects { claims: vec![claim.object.clone()], ..Objects::default() };
    let known = Objects {
        claims: machine.claims.iter().map(|stored| stored.object.clone()).collect(),
        classes: machine.classes.to_vec(),
        slices: machine.slices(),
        ..Objects::default()
    };
    let reserve = |device: &DeviceName| Reserved {
        driver: machine.driver.to_string(),
        pool: machine.node.to_string(),
        device: device.to_string(),
        by: String::from("others who wait"),
    };
    let choice = Choice {
        claims: Vec::new(),
        node: Some(machine.node.to_string()),
        release: RELEASE,
        features: Features::default_of(RELEASE),
        reserved: withheld.iter().map(reserve).collect(),
    };
    let explained = Question::new(asked, known, choice).and_then(|question| explain(&question));
    match explained {
        Ok(explanation) => explanation.to_string().trim_end().to_owned(),
        Err(error) => format!("claim {} does not fit, and cannot be explained: {error}", claim.claim),
    }
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
        let text = describe(&bench.machine(), &two, &Withheld::new());
        assert!(text.starts_with("claim default/run-00000001 does not fit on node n1\n"), "{text}");
        assert!(text.contains("CFS0110  1 of 2: in use by default/run-00000000 (gpu-0)"), "{text}");
        assert!(
            text.ends_with("wait for default/run-00000000, or delete what is not needed, or ask for 1"),
            "{text}"
        );
    }
}
