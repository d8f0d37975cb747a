//! Asks both the same, on all processors, and stops at the first difference.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use serde_json::Value;

use crate::{dice::Dice, reference, shrink::smallest};

/// How many questions the reference may have before it, so that neither side waits for the other.
const AHEAD: usize = 64;
/// How much of an answer tells its kind.
const ALIKE: usize = 120;

/// What both are asked about.
pub trait Subject: Default {
    /// What the reference calls it.
    const KIND: &'static str;

    /// What can be compared of an answer.
    type Answer: PartialEq + Debug;

    /// A random question.
    fn question(dice: &mut Dice) -> Value;

    /// Our answer; none to what is no question, as a part of one may be.
    fn ours(&mut self, question: &Value) -> Option<Self::Answer>;

    /// The reference's; none where it has none.
    fn theirs(said: &Value) -> Option<Self::Answer>;

    /// What it came to, in a word or two.
    fn outcome(answer: &Self::Answer) -> String;

    /// What a question has in it that is worth counting.
    fn traits(question: &Value) -> Vec<&'static str>;

    /// Why these may differ, if that is on purpose.
    fn excuse(_question: &Value, _ours: &Self::Answer, _theirs: &Self::Answer) -> Option<&'static str> {
        None
    }
}

/// What of an error has to be the same: syntax errors are in our own words, and which function has no overload the
/// reference says in some cases only.
pub fn comparable(error: &str) -> &str {
    const ENDS: [&str; 2] = ["no such overload", "ERROR: "];
    let is_syntax = error.contains("Syntax error");
    let end = if is_syntax { error.find(ENDS[1]) } else { error.find(ENDS[0]).map(|at| at + ENDS[0].len()) };
    &error[..end.unwrap_or(error.len())]
}

/// How often each trait of a question came to each outcome.
#[derive(Default)]
pub struct Tally {
    outcomes: BTreeMap<&'static str, BTreeMap<String, u64>>,
    compared: u64,
}

/// What all questions have.
pub const ALL: &str = "all";

impl Tally {
    fn count(&mut self, traits: &[&'static str], outcome: &str) {
        for label in traits.iter().chain([&ALL]) {
            *self.outcomes.entry(label).or_default().entry(outcome.to_owned()).or_default() += 1;
        }
    }

    fn add(&mut self, other: Self) {
        self.compared += other.compared;
        for (label, outcomes) in other.outcomes {
            for (outcome, count) in outcomes {
                *self.outcomes.entry(label).or_default().entry(outcome).or_default() += count;
            }
        }
    }

    /// How many questions had the same answer.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// How many questions had an outcome.
    pub fn of(&self, outcome: &str) -> u64 {
        self.outcomes.get(ALL).and_then(|outcomes| outcomes.get(outcome)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, outcomes) in &self.outcomes {
            let outcomes: Vec<String> =
                outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
            writeln!(formatter, "  {label:<24} {}", outcomes.join(", "))?;
        }
        Ok(())
    }
}

/// What both say to one question.
enum Verdict<A> {
    Same(A),
    /// Nothing to compare, or a difference on purpose.
    Passed(&'static str),
    Different {
        ours: A,
        theirs: A,
    },
}

impl<A: PartialEq + Debug> Verdict<A> {
    fn of<S: Subject<Answer = A>>(subject: &mut S, question: &Value, said: &Value) -> Self {
        let Some(ours) = subject.ours(question) else { return Self::Passed("no question") };
        let Some(theirs) = S::theirs(said) else { return Self::Passed("no answer") };
        if ours == theirs {
            return Self::Same(ours);
        }
        S::excuse(question, &ours, &theirs).map_or_else(|| Self::Different { ours, theirs }, Self::Passed)
    }

    /// What kind of difference it is: a smaller question may have another.
    fn kind<S: Subject<Answer = A>>(&self) -> Option<[String; 2]> {
        let Self::Different { ours, theirs } = self else { return None };
        let kind =
            |answer: &A| S::outcome(answer) + &format!("{answer:?}").chars().take(ALIKE).collect::<String>();
        Some([kind(ours), kind(theirs)])
    }
}

/// Asks so many questions, from this one on.
pub fn compare<S: Subject>(first: u64, cases: u64) -> Tally {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let stop = AtomicBool::new(false);
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let seeds = |worker| (first..first + cases).skip(worker).step_by(workers);
        let stop = &stop;
        let working: Vec<_> =
            (0..workers).map(|worker| scope.spawn(move || work::<S>(seeds(worker), stop))).collect();
        for worker in working {
            match worker.join().unwrap() {
                Ok(counted) => tally.add(counted),
                Err(found) => show::<S>(found),
            }
        }
    });
    tally
}

/// A case with a difference.
struct Found {
    case: u64,
    text: String,
}

/// One worker with a reference of its own.
fn work<S: Subject>(seeds: impl Iterator<Item = u64> + Send, stop: &AtomicBool) -> Result<Tally, Found> {
    let (mut questions, answers) = reference::start();
    let (sender, asked) = mpsc::sync_channel(AHEAD);
    thread::scope(|scope| {
        scope.spawn(move || {
            for case in seeds {
                let question = S::question(&mut Dice::new(case));
                if questions.ask(S::KIND, &question).is_err() || sender.send((case, question)).is_err() {
                    return;
                }
            }
        });
        // It ends before the thread above is waited for, which may be stuck in a question.
        let mut answers = answers;
        let mut subject = S::default();
        let mut tally = Tally::default();
        for (case, question) in asked {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let said = answers.next();
            let verdict = catch_unwind(AssertUnwindSafe(|| Verdict::of(&mut subject, &question, &said)));
            let said = match verdict {
                Ok(Verdict::Same(answer)) => {
                    tally.compared += 1;
                    tally.count(&S::traits(&question), &S::outcome(&answer));
                    continue;
                }
                Ok(Verdict::Passed(reason)) => {
                    tally.count(&[], reason);
                    continue;
                }
                Ok(Verdict::Different { ours, theirs }) => format!("ours:   {ours:?}\ntheirs: {theirs:?}"),
                Err(_) => String::from("ours panics"),
            };
            stop.store(true, Ordering::Relaxed);
            return Err(Found { case, text: format!("{question}\n{said}") });
        }
        Ok(tally)
    })
}

/// Panics with the smallest question that has the same difference.
fn show<S: Subject>(Found { case, text }: Found) -> ! {
    let (mut questions, mut answers) = reference::start();
    let mut subject = S::default();
    let mut verdict = |question: &Value| {
        questions.ask(S::KIND, question).unwrap();
        let said = answers.next();
        catch_unwind(AssertUnwindSafe(|| Verdict::of(&mut subject, question, &said))).ok()
    };
    let kind = |verdict: Option<Verdict<S::Answer>>| verdict.map(|verdict| verdict.kind::<S>());
    let question = S::question(&mut Dice::new(case));
    let found = kind(verdict(&question));
    assert!(found != Some(None), "case {case}, but not when asked again:\n{text}");
    let small = smallest(question, &mut |question| kind(verdict(question)) == found);
    match verdict(&small) {
        Some(Verdict::Different { ours, theirs }) => {
            panic!("case {case}:\n{small}\nours:   {ours:?}\ntheirs: {theirs:?}")
        }
        _ => panic!("case {case}:\n{small}\nours panics"),
    }
}
