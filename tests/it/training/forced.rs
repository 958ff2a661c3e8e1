//! Training steps planned to use partitions, moves and layouts at rest that have not been run yet.

use std::collections::{BTreeMap, BTreeSet};

use driver::pipeline::{self, Prepared, Target};
use plan::{Plan, Recompute};
use planner_ir::{Optimizer, State, StateKind};
use run::Reference;

use super::against::apart;
use super::cases::{self, ADAMW, Arrays, Case, MOMENTUM, floats, parted, step_inputs};
use super::chosen::check_plan;
use super::{expect_none, faults_of};
use crate::corpus::forced::{Alike, IN_TIME, Uncovered, used};
use crate::corpus::{check_bytes, machine};
use crate::tier::is_long;

/// What is planned: the model, the optimizer, what is done again, the micro-batches.
const TRIALS: [(&str, Optimizer, Recompute, u64); 7] = [
    ("gpt2/legacy.onnx", ADAMW, Recompute::Nothing, 2),
    ("llama/legacy.onnx", MOMENTUM, Recompute::Full, 2),
    ("mixtral_batchedmm/", MOMENTUM, Recompute::Nothing, 1),
    ("t5/", MOMENTUM, Recompute::Full, 1),
    ("bert/", ADAMW, Recompute::Nothing, 2),
    ("gpt2/legacy.onnx", MOMENTUM, Recompute::Full, 1),
    ("t5/", ADAMW, Recompute::Nothing, 2),
];

/// How much of what is left is shown.
const SHOWN: usize = 60;

/// How many steps are run.
const STEPS: usize = 2;

/// A model's training step, and what one device makes of it.
struct Subject<'a> {
    case: &'a Case,
    prepared: Prepared,
    /// For each step its micro-batches.
    batches: Vec<Vec<Arrays>>,
    rate: f32,
    /// The loss of each step.
    losses: Vec<f64>,
    /// What lasts, after all steps.
    states: BTreeMap<State, Vec<f64>>,
}

impl<'a> Subject<'a> {
    fn new(case: &'a Case, optimizer: Optimizer, decision: Recompute, parts: u64) -> Self {
        let batches: Vec<Vec<Arrays>> = (0..STEPS).map(|it| parted(&case.batch(it), parts)).collect();
        let prepared = case.prepared(&case.training(optimizer, decision), &batches[0]);
        let rate = if optimizer.moments() == 2 { 1e-3 } else { 0.05 };
        let mut it = Self { case, prepared, batches, rate, losses: Vec::new(), states: BTreeMap::new() };
        let mut device = Reference::new(&it.prepared.graph, &case.file).unwrap();
        for (number, batch) in it.batches.iter().enumerate() {
            let outputs = device.train(batch, &step_inputs(&it.prepared.graph, rate, number + 1)).unwrap();
            it.losses.push(floats(&outputs[train::LOSS])[0]);
        }
        for value in &it.prepared.graph.values {
            if let planner_ir::Source::State(state) = &value.source
                && !state.kind.is_summed()
            {
                it.states.insert(state.clone(), floats(device.state(state).unwrap()));
            }
        }
        it
    }

    /// Says what is wrong with a plan, if anything is.
    fn check(&self, plan: &Plan) -> Result<(), String> {
        check_plan(plan)?;
        let mut session = self.case.session(plan)?;
        for (number, (batch, expected)) in self.batches.iter().zip(&self.losses).enumerate() {
            let outcome = session
                .train(batch, &step_inputs(&plan.graph, self.rate, number + 1))
                .map_err(|error| format!("not run: {error}"))?;
            check_bytes(plan, &outcome.received)?;
            let loss = floats(&outcome.outputs[train::LOSS])[0];
            if (loss - expected).abs() > 1e-4 * expected.abs() {
                return Err(format!("step {}: loss {loss}, on one device {expected}", number + 1));
            }
        }
        for (state, expected) in &self.states {
            let found = floats(&session.gather(state).map_err(|error| error.to_string())?);
            let off = apart(&found, expected, 0.0);
            let noise = self.case.noise(&state.name);
            let kind = state.kind;
            // Where a gradient is rounding noise, AdamW makes steps of it.
            let allowed = if kind == StateKind::Parameter { 5e-4 } else { 2e-4 + 10.0 * noise };
            if off > allowed && noise < 1e-2 {
                return Err(format!("{} {} is off by {off:e}", kind.name(), state.name));
            }
        }
        session.check_replicas().map_err(|error| format!("replicas differ: {error}"))
    }
}

/// What is offered, and what of it has been run.
#[derive(Default)]
struct Coverage {
    offered: BTreeSet<String>,
    covered: BTreeSet<String>,
    plans: usize,
}

/// Plans and runs a step until there is nothing new in a plan, or so many times.
fn cover(subject: &Subject<'_>, mesh: &str, rounds: usize, coverage: &mut Coverage) -> Vec<String> {
    let (mesh, machine) = machine(mesh);
    let target = Target {
        machine: &machine,
        mesh: &mesh,
        capacity: machine.usable_memory().0,
        // Over two axes there are too many ways in time to try those of a step.
        steps: if mesh.axes.len() == 1 { rewrite::Steps::Offered } else { rewrite::Steps::One },
        live: search::Live::ONE,
        rules: None,
    };
    let title = &subject.case.title;
    let header =
        plan::ModelFile { path: title.clone(), sha256: subject.case.file.sha256.clone(), dims: vec![] };
    for round in 0..rounds {
        let prices = Uncovered::new(Alike::ByBlocks, &coverage.covered, round);
        let plan = match pipeline::planned(&subject.prepared, &header, &target, &prices) {
            Ok(plan) => plan,
            Err(error) => return vec![format!("{title} on {mesh}, plan {round}: {error}")],
        };
        coverage.offered.extend(prices.offered());
        let new: BTreeSet<String> =
            used(&plan, Alike::ByBlocks).difference(&coverage.covered).cloned().collect();
        if new.is_empty() {
            break;
        }
        coverage.plans += 1;
        coverage.covered.extend(new.iter().cloned());
        if let Err(error) = subject.check(&plan) {
            return vec![format!("{title} on {mesh}, plan {round}: {error}; new in it: {new:#?}")];
        }
    }
    vec![]
}

/// Covers some of what the models offer on a mesh, and so many partitions in time if all are there; of
/// batches that are there so often and whose sequences are padded to a multiple.
fn check(mesh: &str, rounds: usize, [times, multiple]: [u64; 2], least: usize) {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let mut coverage = Coverage::default();
    let mut failures = Vec::new();
    let mut there = 0;
    for (model, optimizer, decision, parts) in TRIALS {
        let Some(path) = cases::all().into_iter().find(|path| path.to_string_lossy().contains(model)) else {
            continue;
        };
        if !model.contains(&wanted) {
            continue;
        }
        there += 1;
        let case = Case::load(&path).stretched(times, multiple);
        let parts = if case.is_static() { 1 } else { parts };
        failures.extend(faults_of(&case.title, || {
            cover(&Subject::new(&case, optimizer, decision, parts), mesh, rounds, &mut coverage)
        }));
    }
    let left: Vec<_> = coverage.offered.difference(&coverage.covered).take(SHOWN).collect();
    println!(
        "training on mesh {mesh}: {} of {} partitions, moves and layouts at rest in {} plans; left, some: \
         {left:#?}",
        coverage.covered.len(),
        coverage.offered.len(),
        coverage.plans
    );
    expect_none(&failures);
    let in_time = coverage.covered.iter().filter(|it| it.contains(IN_TIME)).count();
    println!("training on mesh {mesh}: {in_time} partitions in time");
    assert!(there < TRIALS.len() || in_time >= least, "{in_time} partitions in time, expected {least}");
}

#[test]
fn forced_steps_over_one_axis_train_as_one_device() {
    let [rounds, least] = if is_long() { [40, 250] } else { [8, 60] };
    check("2", rounds, [1, 1], least);
}

#[test]
fn forced_steps_over_two_axes_train_as_one_device() {
    check("2x2", if is_long() { 12 } else { 4 }, [1, 1], 0);
}

/// Of more than two ranks both neighbours are not one.
#[test]
fn forced_steps_over_four_ranks_train_as_one_device() {
    let [rounds, least] = if is_long() { [6, 160] } else { [2, 40] };
    check("4", rounds, [2, 4], least);
}
