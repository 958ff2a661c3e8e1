//! Plans made to use every partition and every kind of move that is offered.
//!
//! Prices of nothing for what has not been run yet, and of about one for everything else, make the
//! search choose it. What counts as the same: operations of one kind, with as many axes on each of
//! their loops and through the same operands, perhaps as time turns them ([`Alike`]); moves of one
//! kind, along the same dimensions, of layouts with as many digits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use plan::{Assignment, Plan};
use planner_ir::{Digit, Layout, Move, Op, Partition, Source, State, Type};
use search::{Prices, Work};

use super::cases::{self, Case};
use super::{expect_none, faults_of, trial};
use crate::tier::first;

/// How many plans are made for a case at most.
const ROUNDS: usize = 100;

/// What a move costs at most (of what an operation costs).
const MOVE: f64 = 1e-3;

/// Which partitions of an operation count as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alike {
    /// Those that split the same loops.
    BySplits,
    /// Those whose blocks besides are numbered alike, and streamed over as many axes.
    ByBlocks,
}

/// Prices that favour what has not been run.
pub(crate) struct Uncovered<'a> {
    alike: Alike,
    covered: &'a BTreeSet<String>,
    /// Everything that prices were asked for.
    offered: Mutex<BTreeSet<String>>,
    seed: u64,
}

impl<'a> Uncovered<'a> {
    pub(crate) fn new(alike: Alike, covered: &'a BTreeSet<String>, round: usize) -> Self {
        Self { alike, covered, offered: Mutex::default(), seed: u64::try_from(round).unwrap() }
    }

    /// Everything that prices were asked for.
    pub(crate) fn offered(self) -> BTreeSet<String> {
        self.offered.into_inner().unwrap()
    }

    /// 0 for what has not been run, else a number in (1, 2) that the seed decides.
    fn price(&self, what: String) -> f64 {
        let price = if self.covered.contains(&what) { 1.0 + chance(self.seed, &what) } else { 0.0 };
        self.offered.lock().unwrap().insert(what);
        price
    }
}

impl Prices for Uncovered<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        self.price(operation(work.op, work.partition, self.alike))
            + MOVE * chance(self.seed, &work.node.0.to_string())
    }

    fn step(&self, _: &Type, step: &Move, before: &Layout, _: &Layout) -> f64 {
        MOVE * (self.price(moved(step, before)) + MOVE)
    }

    fn rest(&self, state: &State, layout: &Layout) -> f64 {
        MOVE * self.price(kept(state, layout))
    }
}

/// A number in [0, 1) that a seed and a text decide.
pub(crate) fn chance(seed: u64, text: &str) -> f64 {
    let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut state = text.bytes().fold(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcbf2_9ce4_8422_2325, mix);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from(u32::try_from((state ^ (state >> 31)) >> 32).unwrap()) / (f64::from(u32::MAX) + 1.0)
}

/// The name of a variant: what its debug form begins with.
fn variant(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// How an operation is partitioned, in so far as it counts.
fn operation(op: &Op, partition: &Partition, alike: Alike) -> String {
    let loops: Vec<String> = partition.loops.iter().map(|digits| numbered(digits, alike)).collect();
    let passed = match partition.passed.len() {
        0 => String::new(),
        axes => format!(", {axes} axes passed through set {}", partition.through),
    };
    let time = match (partition.steps, partition.streams.len()) {
        _ if alike == Alike::BySplits => String::new(),
        (1, _) => String::new(),
        (steps, 0) => format!("{IN_TIME}{steps} steps"),
        (steps, axes) => format!("{IN_TIME}{steps} steps, streams over {axes} axes"),
    };
    let routed = match partition.routed[..] {
        [] => String::new(),
        ref digits => format!(", rows routed by {}", shown(digits)),
    };
    format!("{} with loops [{}]{passed}{time}{routed}", variant(op), loops.join(" "))
}

/// What stands before the steps of what is done in several.
pub(crate) const IN_TIME: &str = ", in ";

/// Digits: `s` for a split, `f` for a free one.
fn shown(digits: &[Digit]) -> String {
    numbered(digits, Alike::BySplits)
}

/// The same; by blocks, of those that are no coordinate the coefficients of coordinates, then those
/// of time and 1.
fn numbered(digits: &[Digit], alike: Alike) -> String {
    if digits.is_empty() {
        return "-".to_owned();
    }
    let one = |digit: &Digit| match digit {
        _ if digit.is_free() => "f".to_owned(),
        _ if alike == Alike::BySplits || digit.plain().is_some() => "s".to_owned(),
        Digit { terms, step, offset, .. } => {
            let along: Vec<String> = terms.iter().map(|it| it.1.to_string()).collect();
            format!("({},{step}t,{offset})", along.join(","))
        }
    };
    digits.iter().map(one).collect()
}

/// How a value is moved, in so far as it counts.
fn moved(step: &Move, before: &Layout) -> String {
    let held: Vec<String> = before.dims.iter().map(|digits| shown(digits)).collect();
    let how = match step {
        Move::Slice { dim, digits } | Move::ReduceScatter { dim, digits } => {
            format!("{dim} by {}", shown(digits))
        }
        Move::AllGather { dim, digits } => format!("{dim} by {digits}"),
        Move::AllReduce { axes } => format!("{} axes", axes.len()),
        Move::AllToAll { from, to, digits } => format!("{from} to {to} by {}", shown(digits)),
        Move::Permute { dims } => {
            let after: Vec<String> = dims.iter().map(|digits| shown(digits)).collect();
            format!("to [{}]", after.join(" "))
        }
    };
    format!("{} of {how} from [{}] owed {}", variant(step), held.join(" "), before.owed.len())
}

/// How a state is kept, in so far as it counts.
fn kept(state: &State, layout: &Layout) -> String {
    let held: Vec<String> = layout.dims.iter().map(|digits| shown(digits)).collect();
    format!("{} at rest [{}] owed {}", state.kind.name(), held.join(" "), layout.owed.len())
}

/// What a plan uses.
pub(crate) fn used(plan: &Plan, alike: Alike) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (node, assignment) in plan.graph.nodes.iter().zip(&plan.assignments) {
        if let Assignment::Computed { partition, .. } = assignment {
            used.insert(operation(&node.op, partition, alike));
        }
    }
    for transfer in &plan.transfers {
        let mut layout = plan.layout(transfer.value, transfer.from).clone();
        for step in &transfer.moves {
            used.insert(moved(step, &layout));
            layout = step.apply(&plan.mesh, plan.graph.type_of(transfer.value), &layout).unwrap();
        }
    }
    for (value, layout) in plan.graph.values.iter().zip(&plan.layouts) {
        if let Source::State(state) = &value.source {
            used.insert(kept(state, layout));
        }
    }
    used
}

/// Partitions and moves that are offered, and those that have been run.
#[derive(Default)]
struct Coverage {
    /// What is offered, and the first case that offers it.
    offered: BTreeMap<String, String>,
    covered: BTreeSet<String>,
    plans: usize,
}

/// Plans and runs a case until the search finds no plan with anything new: what is left then is
/// offered to operations, but no plan of the case can use it.
fn cover(case: &Case, mesh: &str, alike: Alike, coverage: &mut Coverage) -> Vec<String> {
    let subject = match case.open() {
        Ok(subject) => subject,
        Err(error) => return vec![error],
    };
    let (mesh, machine) = trial::machine(mesh);
    for round in 0..ROUNDS {
        let prices = Uncovered::new(alike, &coverage.covered, round);
        let plan = match subject.plan(&mesh, &machine, &prices) {
            Ok(plan) => plan,
            Err(error) => return vec![format!("{} on {mesh}, plan {round}: {error}", case.title)],
        };
        for it in prices.offered() {
            coverage.offered.entry(it).or_insert_with(|| case.title.clone());
        }
        let new: BTreeSet<String> = used(&plan, alike).difference(&coverage.covered).cloned().collect();
        if new.is_empty() {
            return vec![];
        }
        coverage.plans += 1;
        coverage.covered.extend(new.iter().cloned());
        if let Err(error) = subject.check(&plan) {
            return vec![format!("{} on {mesh}, plan {round}: {error}; new in it: {new:#?}", case.title)];
        }
    }
    vec![format!("{} on {mesh}: {ROUNDS} plans, and still something new", case.title)]
}

/// Covers what the cases offer on a mesh.
fn check(mesh: &str, alike: Alike, wanted: impl Fn(&Case) -> bool) {
    let (cases, _) = cases::all();
    let mut coverage = Coverage::default();
    let mut failures = Vec::new();
    for case in cases.iter().filter(|case| wanted(case)) {
        failures.extend(faults_of(&case.title, || cover(case, mesh, alike, &mut coverage)));
    }
    let mut left = coverage.offered.clone();
    left.retain(|it, _| !coverage.covered.contains(it));
    println!(
        "mesh {mesh}: {} of {} partitions and moves in {} plans; left, and where it is offered: {left:#?}",
        coverage.covered.len(),
        coverage.offered.len(),
        coverage.plans
    );
    expect_none(&failures);
}

#[test]
fn every_partition_over_one_axis_computes_the_same() {
    check("2", Alike::ByBlocks, |case| !case.title.ends_with("io1"));
}

/// Models with small spaces that have most operations between them.
const SMALL: [&str; 9] = [
    "vit-fwd-dynamo",
    "gpt2-past-dynamo",
    "bert-fill",
    "opt-fwd-dynamo",
    "llama-past-dynamo2.9",
    "roberta-fwd-dynamo",
    "t5-seq2seq",
    "mixtral-batchedmm",
    "whisper-fwd-dynamo",
];

/// Covers what some of the small models offer on a mesh.
fn check_small(mesh: &str, models: &[&str]) {
    check(mesh, Alike::BySplits, |case| {
        !case.title.ends_with("io1") && models.iter().any(|it| case.title.starts_with(it))
    });
}

#[test]
fn partitions_over_two_axes_compute_the_same() {
    check_small("2x2", first(3, &SMALL));
}

#[test]
fn partitions_over_three_axes_compute_the_same() {
    check_small("2x2x2", first(1, &SMALL[..3]));
}
