//! The plans that the search chooses.

use std::path::Path;

use plan::{Plan, Recompute};
use planner_ir::Optimizer;
use rayon::prelude::*;
use search::MachinePrices;
use shardloom::pipeline::{self, Target};

use super::cases::{self, ADAMW, Case, MOMENTUM, SGD, parted};
use super::{expect_none, faults_of};
use crate::corpus::machine;

/// What is planned: the mesh, the optimizer, what is done again, how many micro-batches.
const TRIALS: [(&str, Optimizer, Recompute, u64); 10] = [
    ("1", MOMENTUM, Recompute::Nothing, 1),
    ("1", ADAMW, Recompute::Full, 2),
    ("2", ADAMW, Recompute::Nothing, 1),
    ("2", SGD, Recompute::Full, 2),
    ("4", ADAMW, Recompute::Selective, 2),
    ("4", SGD, Recompute::Nothing, 1),
    ("2x2", ADAMW, Recompute::Full, 1),
    ("2x2", SGD, Recompute::Nothing, 2),
    ("8", MOMENTUM, Recompute::Full, 1),
    ("2x4", ADAMW, Recompute::Nothing, 2),
];

impl Case {
    /// The plan of least time.
    fn plan(
        &self,
        mesh: &str,
        optimizer: Optimizer,
        decision: Recompute,
        parts: u64,
    ) -> Result<Plan, String> {
        let (mesh, machine) = machine(mesh);
        let training = self.training(optimizer, decision);
        let prepared = self.prepared(&training, &parted(&self.batch(0), parts));
        let prices = MachinePrices::new(&machine, &mesh).unwrap();
        let target = Target { machine: &machine, mesh: &mesh, capacity: machine.usable_memory().0 };
        let header =
            plan::ModelFile { path: self.title.clone(), sha256: self.file.sha256.clone(), dims: vec![] };
        let plan = pipeline::planned(&prepared, &header, &target, &prices);
        plan.map_err(|error| format!("not planned: {error}"))
    }
}

/// A plan by the rules, and as a file.
pub(super) fn check_plan(plan: &Plan) -> Result<(), String> {
    plan::check(plan).map_err(|error| format!("the plan is rejected: {error}"))?;
    let read = plan::json::read(plan::json::write(plan).as_bytes());
    let read = read.map_err(|error| format!("the plan's file is not read: {error}"))?;
    if read == *plan { Ok(()) } else { Err("the plan's file is another plan".to_owned()) }
}

fn check(path: &Path) -> Vec<String> {
    let case = Case::load(path);
    let mut failures = Vec::new();
    for (mesh, optimizer, decision, parts) in TRIALS {
        let checked = case.plan(mesh, optimizer, decision, parts).and_then(|plan| {
            check_plan(&plan)?;
            match optimizer {
                Optimizer::Sgd { .. } => case.check_gradients(&plan, parts),
                Optimizer::Momentum { .. } => case.check_steps(&plan, "sgd", parts),
                Optimizer::AdamW { .. } => case.check_steps(&plan, "adamw", parts),
            }
        });
        if let Err(error) = checked {
            let what = format!("{decision:?}, {parts} micro-batches");
            failures.push(format!("{} on {mesh} ({what}): {error}", case.title));
        }
    }
    failures
}

#[test]
fn chosen_plans_train_as_pytorch() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let cases: Vec<_> =
        cases::all().into_iter().filter(|path| path.to_string_lossy().contains(&wanted)).collect();
    let found: Vec<Vec<String>> =
        cases.par_iter().map(|path| faults_of(&path.to_string_lossy(), || check(path))).collect();
    println!("{} cases", cases.len());
    expect_none(&found.into_iter().flatten().collect::<Vec<_>>());
}
