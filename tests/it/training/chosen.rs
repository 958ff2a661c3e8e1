//! The plans that the search chooses, by shipped prices and where links are fast. With `DIFFERENTIAL=1`
//! every model is planned for every mesh by both; `MODEL=` names the models.

use std::collections::BTreeSet;
use std::path::Path;

use cost_models::machine::Machine;
use driver::pipeline::{self, Prepared, Target, Training};
use plan::{Plan, Recompute};
use planner_ir::{Mesh, Optimizer};
use rayon::prelude::*;
use rewrite::Steps;
use search::{MachinePrices, Prices};

use super::cases::{self, ADAMW, Arrays, Case, MOMENTUM, SGD, parted};
use super::{expect_none, faults_of};
use crate::corpus::{EVERY_MESH, Priced, is_whole, machine_by};

/// Into what a batch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    /// One micro-batch.
    Whole,
    /// A micro-batch for each example, where the model does not say how many there are.
    Examples,
}

/// What is planned: the mesh, the optimizer, what is done again, the micro-batches.
const TRIALS: [(&str, Optimizer, Recompute, Batch); 10] = [
    ("1", MOMENTUM, Recompute::Nothing, Batch::Whole),
    ("1", ADAMW, Recompute::Full, Batch::Examples),
    ("2", ADAMW, Recompute::Nothing, Batch::Whole),
    ("2", MOMENTUM, Recompute::Full, Batch::Examples),
    ("4", ADAMW, Recompute::Selective, Batch::Examples),
    ("4", MOMENTUM, Recompute::Nothing, Batch::Whole),
    ("2x2", ADAMW, Recompute::Full, Batch::Whole),
    ("2x2", SGD, Recompute::Nothing, Batch::Examples),
    ("8", MOMENTUM, Recompute::Full, Batch::Whole),
    ("2x4", ADAMW, Recompute::Nothing, Batch::Examples),
];

/// Where links are fast, each model is planned for two of these, in turn.
const FAST: [&str; 8] = ["3", "2x2", "4", "2x3", "6", "2", "8", "2x2x2"];

/// What takes turns where there are many trials.
const OPTIMIZERS: [Optimizer; 3] = [ADAMW, MOMENTUM, SGD];
const DECISIONS: [Recompute; 3] = [Recompute::Nothing, Recompute::Full, Recompute::Selective];
const BATCHES: [Batch; 2] = [Batch::Whole, Batch::Examples];

/// What is planned, and by which prices.
type Trial = (Priced, &'static str, Optimizer, Recompute, Batch);

/// The trials of the model of that number.
fn trials(number: usize) -> Vec<Trial> {
    let turned = |turn: usize, prices: Priced, mesh: &'static str| {
        let decision = DECISIONS[turn % DECISIONS.len()].clone();
        (prices, mesh, OPTIMIZERS[turn / 2 % OPTIMIZERS.len()], decision, BATCHES[turn / 3 % BATCHES.len()])
    };
    if is_whole() {
        let prices = [Priced::Shipped, Priced::FastNet].into_iter();
        let all = prices.flat_map(|prices| EVERY_MESH.map(|mesh| (prices, mesh))).enumerate();
        return all.map(|(turn, (prices, mesh))| turned(number + turn, prices, mesh)).collect();
    }
    let shipped =
        TRIALS.into_iter().map(|(mesh, it, decision, batch)| (Priced::Shipped, mesh, it, decision, batch));
    let fast =
        (2 * number..2 * number + 2).map(|turn| turned(turn, Priced::FastNet, FAST[turn % FAST.len()]));
    shipped.chain(fast).collect()
}

/// A model without repeated blocks, too large as one for meshes of several axes.
const TOO_LARGE: &str = "dit/";

impl Case {
    /// The plan of least time.
    fn plan(&self, (prices, mesh, optimizer, decision, _): &Trial, parts: u64) -> Result<Plan, String> {
        let (mesh, machine) = machine_by(*prices, mesh);
        let training = self.training(*optimizer, decision.clone());
        let prices = MachinePrices::new(&machine, &mesh).unwrap();
        self.plan_by(&training, &parted(&self.batch(0), parts), &mesh, &machine, &prices)
    }

    /// The plan of least time by some prices.
    pub(super) fn plan_by(
        &self,
        training: &Training,
        micro_batches: &[Arrays],
        mesh: &Mesh,
        machine: &Machine,
        prices: &dyn Prices,
    ) -> Result<Plan, String> {
        self.plan_of(&self.prepared(training, micro_batches), mesh, machine, prices)
    }

    /// The plan of least time by some prices, of a step.
    pub(super) fn plan_of(
        &self,
        prepared: &Prepared,
        mesh: &Mesh,
        machine: &Machine,
        prices: &dyn Prices,
    ) -> Result<Plan, String> {
        self.plan_in(prepared, mesh, machine, prices, Steps::Auto)
    }

    /// The same, where this says whether time steps are offered.
    pub(super) fn plan_in(
        &self,
        prepared: &Prepared,
        mesh: &Mesh,
        machine: &Machine,
        prices: &dyn Prices,
        steps: Steps,
    ) -> Result<Plan, String> {
        let target = Target { steps, ..Target::of(machine, mesh) };
        let header =
            plan::ModelFile { path: self.title.clone(), sha256: self.file.sha256.clone(), dims: vec![] };
        let plan = pipeline::planned(prepared, &header, &target, prices);
        plan.map_err(|error| format!("not planned: {error}"))
    }
}

/// A plan by the rules, and as a file.
pub(super) fn check_plan(plan: &Plan) -> Result<(), String> {
    plan::check(plan).map_err(|error| format!("the plan is rejected: {error}"))?;
    summed_once(plan)?;
    let read = plan::json::read(plan::json::write(plan).as_bytes());
    let read = read.map_err(|error| format!("the plan's file is not read: {error}"))?;
    if read == *plan { Ok(()) } else { Err("the plan's file is another plan".to_owned()) }
}

/// Of what micro-batches have summed devices make each sum that they owe once, however many read it.
pub(super) fn summed_once(plan: &Plan) -> Result<(), String> {
    let sums = plan.graph.sums();
    let mut made = BTreeSet::new();
    for transfer in plan.transfers.iter().filter(|it| sums[it.value.0].is_some()) {
        let before = &plan.layout(transfer.value, transfer.from).owed;
        for axis in before.iter().filter(|axis| !transfer.layout.owed.contains(axis)) {
            if !made.insert((transfer.value, *axis)) {
                return Err(format!("%{} is summed over axis {} twice", transfer.value.0, axis.0));
            }
        }
    }
    Ok(())
}

fn check(number: usize, path: &Path) -> Vec<String> {
    let case = Case::load(path);
    let mut failures = Vec::new();
    for trial in trials(number) {
        let (_, mesh, optimizer, _, batch) = trial;
        if case.title.starts_with(TOO_LARGE) && mesh.contains('x') {
            continue;
        }
        let parts = if batch == Batch::Whole || case.is_static() { 1 } else { case.examples() };
        let checked = case.plan(&trial, parts).and_then(|plan| {
            check_plan(&plan)?;
            case.check_training(&plan, optimizer, parts)
        });
        if let Err(error) = checked {
            failures.push(format!("{} as {trial:?}, {parts} micro-batches: {error}", case.title));
        }
    }
    failures
}

#[test]
fn chosen_plans_train_as_pytorch() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let cases: Vec<_> =
        cases::all().into_iter().filter(|path| path.to_string_lossy().contains(&wanted)).collect();
    let found: Vec<Vec<String>> = cases
        .par_iter()
        .enumerate()
        .map(|(number, path)| faults_of(&path.to_string_lossy(), || check(number, path)))
        .collect();
    println!("{} cases", cases.len());
    expect_none(&found.into_iter().flatten().collect::<Vec<_>>());
}
