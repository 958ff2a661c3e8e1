//! Every oracle under every kind of plan that people make by hand: data parallel, ZeRO, tensor and
//! sequence parallel.
//!
//! A kind is forced by prices ([`Preferring`]) that know what the loops of a step run over, and
//! nothing of the model. Each oracle sees each kind; ranks, optimizers, what is computed again and
//! micro-batches take turns, so that each kind sees each of these.
//!
//! Where a file leaves the number of examples open, a batch is there as often as the ranks need:
//! means and their gradients stay what they are. Where it leaves the length of sequences open,
//! they are padded with tokens that are masked and do not count.

use std::collections::BTreeSet;
use std::path::Path;

use plan::{Plan, Recompute, strategy};
use planner_ir::Optimizer;
use rayon::prelude::*;
use search::MachinePrices;
use shardloom::pipeline::Prepared;

use super::bytes;
use super::cases::{self, ADAMW, Case, MOMENTUM, SGD, parted};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use super::roles;
use super::{expect_none, faults_of};
use crate::corpus::machine;

/// The kinds of plans, and a phrase that says so.
const KINDS: [(Manner, &[&str]); 6] = [
    (Manner::Data(0), &["data parallel over a"]),
    (Manner::Data(1), &["data parallel over a", "ZeRO-1 over a"]),
    (Manner::Data(2), &["data parallel over a", "ZeRO-2 over a"]),
    (Manner::Data(3), &["data parallel over a", "ZeRO-3 (FSDP) over a"]),
    (Manner::Tensor, &["tensor parallel over a"]),
    (Manner::Sequence, &["tensor parallel over a", "sequence parallel over a"]),
];
const RANKS: [u64; 3] = [2, 4, 8];
const OPTIMIZERS: [Optimizer; 3] = [ADAMW, MOMENTUM, SGD];
const DECISIONS: [Recompute; 3] = [Recompute::Nothing, Recompute::Full, Recompute::Selective];
const PARTS: [u64; 2] = [1, 2];

/// Models whose parameters reach products by way of other operations (experts that are put together,
/// tables of relative positions, modulation, a head without a table of its own), so that the simple
/// sums of the textbook are not theirs. They are held to the words and to PyTorch alone.
const APART: [&str; 4] = ["bert/", "dit/", "mixtral", "t5/"];

/// What is not there on any number of ranks: sequences of 17 fall into no equal parts.
const NEVER: [(&str, Manner); 2] =
    [("vit/dynamo.onnx", Manner::Sequence), ("vit/legacy.onnx", Manner::Sequence)];

/// What one plan is made for.
#[derive(Clone, Debug)]
struct Trial {
    manner: Manner,
    phrases: &'static [&'static str],
    ranks: u64,
    optimizer: Optimizer,
    decision: Recompute,
    parts: u64,
}

/// What became of a trial.
enum Outcome {
    Checked,
    /// The model cannot have it, for this reason.
    LeftOut(String),
    Wrong(String),
}

/// The trials of the oracle of this number: for each kind its ranks, by preference.
fn trials(number: usize) -> Vec<Vec<Trial>> {
    let trial = |(kind, &(manner, phrases)): (usize, &(Manner, &'static [&'static str]))| {
        let turn = number + kind;
        let optimizer = match (manner, OPTIMIZERS[(turn / 3 + kind) % OPTIMIZERS.len()]) {
            // Without moments there is nothing for the first stage to split.
            (Manner::Data(1), Optimizer::Sgd { .. }) => MOMENTUM,
            (_, optimizer) => optimizer,
        };
        let each = |shift: usize| Trial {
            manner,
            phrases,
            ranks: RANKS[(turn + shift) % RANKS.len()],
            optimizer,
            decision: DECISIONS[(turn + number / 3) % DECISIONS.len()].clone(),
            parts: PARTS[(turn / 2) % PARTS.len()],
        };
        (0..RANKS.len()).map(each).collect()
    };
    KINDS.iter().enumerate().map(trial).collect()
}

impl Trial {
    fn run(mut self, path: &Path) -> Outcome {
        let case = Case::load(path);
        if !case.is_open(0) {
            self.parts = 1;
        }
        let case = match self.stretched(case) {
            Ok(case) => case,
            Err(reason) => return Outcome::LeftOut(reason),
        };
        let prepared = case.prepared(
            &case.training(self.optimizer, self.decision.clone()),
            &parted(&case.batch(0), self.parts),
        );
        let lengths = roles::lengths(&prepared.graph);
        if self.manner == Manner::Sequence && !lengths.iter().any(|it| it.is_multiple_of(self.ranks)) {
            return Outcome::LeftOut(format!("sequences of {lengths:?}"));
        }
        match self.plan(&case, &prepared).and_then(|plan| self.check(&case, &plan)) {
            Ok(()) => Outcome::Checked,
            // Where there are fewer heads, and units fall into no so many parts, nothing is split.
            Err(error) if self.ranks > 2 && error.starts_with("not tensor parallel") => {
                Outcome::LeftOut(error)
            }
            Err(error) => Outcome::Wrong(error),
        }
    }

    /// The case with as many examples and tokens as the ranks need, or why it cannot have them.
    fn stretched(&self, case: Case) -> Result<Case, String> {
        let examples = case.examples();
        let wanted =
            if matches!(self.manner, Manner::Data(_)) { self.ranks * self.parts } else { self.parts };
        let times = (1..=wanted).find(|times| (examples * times).is_multiple_of(wanted)).unwrap_or(1);
        if times > 1 && !case.is_open(0) {
            return Err(format!("{examples} examples, as the file says, do not fall into {wanted}"));
        }
        let multiple = if self.manner == Manner::Sequence && case.is_open(1) { self.ranks } else { 1 };
        Ok(case.stretched(times, multiple))
    }

    fn plan(&self, case: &Case, prepared: &Prepared) -> Result<Plan, String> {
        let (mesh, machine) = machine(&self.ranks.to_string());
        let prices = MachinePrices::new(&machine, &mesh).unwrap();
        let prices = Preferring::new(self.manner, prices, &prepared.graph, &prepared.sections);
        case.plan_of(prepared, &mesh, &machine, &prices)
    }

    fn check(&self, case: &Case, plan: &Plan) -> Result<(), String> {
        check_plan(plan)?;
        let said = strategy(plan);
        for phrase in self.phrases {
            if !said.iter().any(|it| it.starts_with(phrase)) {
                return Err(format!("not {phrase}: {said:?}"));
            }
        }
        if let Manner::Data(stage) = self.manner
            && !APART.iter().any(|it| case.title.starts_with(it))
        {
            let (found, expected) = (bytes::of_states(plan), bytes::of_textbook(plan, stage, self.ranks));
            if found != expected {
                return Err(format!("moves {found:?}, in the textbook {expected:?}"));
            }
        }
        match self.optimizer {
            Optimizer::Sgd { .. } => case.check_gradients(plan, self.parts),
            Optimizer::Momentum { .. } => case.check_steps(plan, "sgd", self.parts),
            Optimizer::AdamW { .. } => case.check_steps(plan, "adamw", self.parts),
        }
    }
}

#[derive(Default)]
struct Found {
    wrong: Vec<String>,
    left_out: Vec<String>,
    /// What was checked on no number of ranks.
    never: Vec<(String, Manner)>,
    seen: BTreeSet<String>,
}

/// Each kind with the first ranks that the model can have.
fn check(number: usize, path: &Path) -> Found {
    let mut found = Found::default();
    let title = cases::title(path);
    for ranks in trials(number) {
        let (manner, before) = (ranks[0].manner, found.left_out.len());
        for trial in ranks {
            let mut outcome = Outcome::Checked;
            let what = format!("{title}: {:?} over {}", trial.manner, trial.ranks);
            found.wrong.extend(faults_of(&what, || {
                outcome = trial.clone().run(path);
                vec![]
            }));
            match outcome {
                Outcome::Checked => {
                    let Trial { manner, ranks, decision, parts, .. } = trial;
                    found.seen.insert(format!("{manner:?}, {ranks} ranks"));
                    found.seen.insert(format!("{manner:?}, {}", named(trial.optimizer)));
                    found.seen.insert(format!("{manner:?}, {decision:?}"));
                    found.seen.insert(format!("{manner:?}, {parts} micro-batches"));
                    break;
                }
                Outcome::LeftOut(reason) => found.left_out.push(format!("{what}: {reason}")),
                Outcome::Wrong(error) => {
                    found.wrong.push(format!("{what}, {trial:?}: {error}"));
                    break;
                }
            }
        }
        if found.left_out.len() - before == RANKS.len() {
            found.never.push((title.clone(), manner));
        }
    }
    found
}

#[test]
fn every_oracle_trains_as_pytorch_under_every_kind_of_plan() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let cases: Vec<_> = cases::all().into_iter().enumerate().collect();
    let cases = cases.into_iter().filter(|(_, path)| path.to_string_lossy().contains(&wanted));
    let cases: Vec<_> = cases.collect();
    let found: Vec<Found> = cases.par_iter().map(|(number, path)| check(*number, path)).collect();
    let left_out: Vec<&str> = found.iter().flat_map(|it| &it.left_out).map(String::as_str).collect();
    println!("{} cases; left out: {left_out:#?}", cases.len());
    expect_none(&found.iter().flat_map(|it| it.wrong.clone()).collect::<Vec<_>>());
    let seen: BTreeSet<&String> = found.iter().flat_map(|it| &it.seen).collect();
    if wanted.is_empty() && !cases.is_empty() {
        let never: Vec<_> = found.iter().flat_map(|it| it.never.clone()).collect();
        assert_eq!(never, NEVER.map(|(title, manner)| (title.to_owned(), manner)));
        for (manner, _) in KINDS {
            for what in RANKS.map(|it| format!("{it} ranks")).into_iter().chain(
                DECISIONS
                    .map(|it| format!("{it:?}"))
                    .into_iter()
                    .chain(PARTS.map(|it| format!("{it} micro-batches"))),
            ) {
                assert!(seen.contains(&format!("{manner:?}, {what}")), "no {manner:?} with {what}");
            }
        }
    }
}

/// The oracle that an optimizer is held against.
fn named(optimizer: Optimizer) -> &'static str {
    match optimizer {
        Optimizer::Sgd { .. } => "gradients",
        Optimizer::Momentum { .. } => "sgd",
        Optimizer::AdamW { .. } => "adamw",
    }
}
