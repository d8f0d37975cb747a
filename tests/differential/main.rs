//! Random questions to our allocator, CEL and quantities, and to upstream's, which must give the same answers.
//!
//! `CLAIMFS_CASES=n` asks more of them, `CLAIMFS_SEED=n` others. A difference prints the smallest question that still
//! has it.
#![allow(missing_docs, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]

mod allocator;
mod cases;
mod compare;
mod dice;
mod expressions;
mod quantities;
mod reference;
mod shrink;

use std::{env, time::Instant};

use compare::{Subject, Tally, compare};

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Asks so many questions, unless told otherwise, and says what came of them.
fn ask<S: Subject>(cases: u64) -> (Tally, u64) {
    let (cases, seed) = (number("CLAIMFS_CASES", cases), number("CLAIMFS_SEED", 0));
    let started = Instant::now();
    let tally = compare::<S>(seed, cases);
    let seconds = started.elapsed().as_secs();
    println!("{}: {cases} cases without a difference in {seconds} s\n{tally}", S::KIND);
    (tally, cases)
}

#[test]
#[ignore = "needs Go: hack/test runs it"]
fn the_allocator_answers_as_upstreams() {
    let (tally, cases) = ask::<allocator::Allocator>(100_000);
    assert!(tally.of(allocator::FITS) > cases / 4, "most questions have no answer: they ask little");
    assert!(tally.of("no answer") < cases / 50, "the reference gives up too often");
    assert_eq!(tally.of("no question"), 0);
}

#[test]
#[ignore = "needs Go: hack/test runs it"]
fn expressions_come_to_what_upstreams_come_to() {
    let (tally, cases) = ask::<expressions::Expressions>(100_000);
    for outcome in ["true", "false", "shown value", "error", "compile error"] {
        assert!(tally.of(outcome) > cases / 50, "too few: {outcome}");
    }
    let excused = cases - tally.compared();
    assert!(excused < cases / 20, "{excused} differ on purpose");
}

#[test]
#[ignore = "needs Go: hack/test runs it"]
fn quantities_are_those_of_upstream() {
    let (tally, cases) = ask::<quantities::Quantities>(200_000);
    assert!(tally.of("two quantities") > cases / 4, "too few can be calculated with");
    assert!(tally.of("no quantity") > cases / 50, "too few are refused");
}
