//! Context parallel training: the sequence is split everywhere, keys and values go around in
//! attention, and with them their gradients in its gradient.

use plan::{Assignment, Plan, Recompute, strategy};
use planner_ir::{Op, Optimizer, Slots};
use rewrite::Steps;
use search::MachinePrices;

use super::cases::{self, ADAMW, Case, MOMENTUM, parted};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use super::{expect_none, faults_of};
use crate::corpus::context::{both_ways, in_stripes, rings};
use crate::corpus::machine;

/// Models, and how they are trained: with as many heads of keys as of queries; with fewer, and
/// attention done again for its gradient; with fewer, from another exporter; halves that go both ways
/// forward; causal ones with their tokens in stripes.
const TRIALS: [(&str, Optimizer, Recompute, Manner); 6] = [
    ("gpt2/legacy.onnx", ADAMW, Recompute::Nothing, Manner::Context),
    ("llama/legacy.onnx", MOMENTUM, Recompute::Full, Manner::Context),
    ("llama_op23/", ADAMW, Recompute::Nothing, Manner::Context),
    ("gpt2/legacy.onnx", ADAMW, Recompute::Nothing, Manner::BothWays),
    ("gpt2/legacy.onnx", ADAMW, Recompute::Nothing, Manner::Striped),
    ("llama/legacy.onnx", MOMENTUM, Recompute::Full, Manner::Striped),
];

/// A training step planned with the sequence split over so many ranks, and held against PyTorch.
fn check(
    case: &Case,
    (optimizer, decision, manner): (Optimizer, &Recompute, Manner),
    ranks: u64,
) -> Result<(), String> {
    let (mesh, machine) = machine(&ranks.to_string());
    let prepared = case.prepared(&case.training(optimizer, decision.clone()), &parted(&case.batch(0), 1));
    let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
    let prices = Preferring::new(manner, prices, &prepared.graph, &prepared.sections);
    let plan = case.plan_in(&prepared, &mesh, &machine, &prices, Steps::Offered)?;
    check_plan(&plan)?;
    let forward = rings(&plan, |op| matches!(op, Op::Attention(_)))?;
    let backward = rings(&plan, |op| matches!(op, Op::AttentionGradient { .. }))?;
    let again = if *decision == Recompute::Full { 2 } else { 1 };
    if backward == 0 || forward != again * backward {
        return Err(format!("{forward} rings of attention, {backward} of its gradient"));
    }
    let attends = |op: &Op| matches!(op, Op::Attention(_) | Op::AttentionGradient { .. });
    let striped = in_stripes(&plan, attends);
    if manner == Manner::Striped && striped != forward + backward {
        return Err(format!("{striped} in stripes of {}", forward + backward));
    }
    let both = both_ways(&plan, attends);
    if manner == Manner::BothWays && both != forward {
        return Err(format!("{both} go both ways of {forward}"));
    }
    println!("{} on {ranks}: {:?}", case.title, strategy(&plan));
    case.check_training(&plan, optimizer, 1)?;
    if manner == Manner::Context {
        let plan = in_place(plan)?;
        check_plan(&plan)?;
        return case.check_training(&plan, optimizer, 1).map_err(|error| format!("in place: {error}"));
    }
    Ok(())
}

/// The plan with one slot for everything that rotates.
fn in_place(mut plan: Plan) -> Result<Plan, String> {
    for assignment in &mut plan.assignments {
        if let Assignment::Computed { partition, .. } = assignment
            && partition.steps > 1
        {
            partition.slots = Slots::One;
        }
    }
    let programs = lower::lower(&plan).map_err(|error| format!("in place: {error}"))?;
    let over = programs[0].storages.iter().filter(|it| it.over.is_some()).count();
    if over == 0 { Err("nothing is in place".to_owned()) } else { Ok(plan) }
}

#[test]
fn keys_and_values_and_their_gradients_go_around_and_train_as_pytorch() {
    let mut failures = Vec::new();
    for (model, optimizer, decision, manner) in TRIALS {
        let mut all = cases::all().into_iter();
        let Some(path) = all.find(|path| path.to_string_lossy().contains(model)) else { continue };
        // Of two ranks both neighbours are one.
        for ranks in [2, 4].into_iter().filter(|&it| it > 2 || manner != Manner::BothWays) {
            let what = format!("{model} on {ranks}, {manner:?}");
            failures.extend(faults_of(&what, || {
                // A rank's tokens fall into as many parts as there are ways.
                let parts = if manner == Manner::BothWays { 2 * ranks } else { ranks };
                let case = Case::load(&path).stretched(1, parts);
                let wrong = check(&case, (optimizer, &decision, manner), ranks).err();
                wrong.map(|error| format!("{what}: {error}")).into_iter().collect()
            }));
        }
    }
    expect_none(&failures);
}
