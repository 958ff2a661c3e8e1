//! Plans of training steps made wrong in one place.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{AxisId, Carried, DType, Node, Op, Optimizer, Phase, Real, Source, StateKind, ValueId};

use super::{Mutant, computed, equal, operands, other_layout, transfer};
use crate::{Assignment, Copy, Loss, Masters, Part, Plan, Precision};

pub(super) const TRAINING: &[Mutant] = &[
    ("a transfer that waits and would not run beside computing", &["transfer-waits"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers[transfer].waits = true;
        Ok(plan.may_run_beside()[transfer].is_none())
    }),
    ("a state of which nothing takes the place", &["count"], |plan, _| Ok(plan.carried.pop().is_some())),
    ("something in the place of no state", &["count"], |plan, _| {
        plan.carried.push(Copy::Made);
        Ok(true)
    }),
    ("a copy that there is not in the place of a state", &["reference"], |plan, u| {
        let Some((place, _)) = carried(plan, u)? else { return Ok(false) };
        plan.carried[place] = Copy::Transferred(plan.transfers.len());
        Ok(true)
    }),
    ("a copy of another value in the place of a state", &["carried-copy"], |plan, u| {
        let Some((place, it)) = carried(plan, u)? else { return Ok(false) };
        if plan.transfers.is_empty() {
            return Ok(false);
        }
        let transfer = u.choose_index(plan.transfers.len())?;
        plan.carried[place] = Copy::Transferred(transfer);
        Ok(plan.transfers[transfer].value != it.next)
    }),
    ("another copy in the place of a state", &["carried-layout"], |plan, u| {
        let Some((place, it)) = carried(plan, u)? else { return Ok(false) };
        let of_next = |copy: &Copy| match copy {
            Copy::Made => true,
            Copy::Transferred(transfer) => plan.transfers[*transfer].value == it.next,
        };
        let copies: Vec<Copy> = std::iter::once(Copy::Made)
            .chain((0..plan.transfers.len()).map(Copy::Transferred))
            .filter(of_next)
            .collect();
        let copy = *u.choose(&copies)?;
        let shape = &plan.graph.type_of(it.next).shape;
        let right = equal(&plan.mesh, shape, plan.layout(it.next, copy), &plan.layouts[it.state.0]);
        plan.carried[place] = copy;
        Ok(!right)
    }),
    ("a state at rest in another layout", &["carried-layout"], |plan, u| {
        let Some((_, it)) = carried(plan, u)? else { return Ok(false) };
        let layout = other_layout(plan, it.state, &plan.layouts[it.state.0], u)?;
        let Some(layout) = layout else { return Ok(false) };
        plan.layouts[it.state.0] = layout;
        Ok(true)
    }),
    ("a state that is not summed and owes a sum", &["rest"], |plan, u| {
        let Some((_, it)) = carried(plan, u)? else { return Ok(false) };
        let axis = AxisId(u.choose_index(plan.mesh.axes.len())?);
        let layout = &mut plan.layouts[it.state.0];
        let plain = layout.owed.is_empty() && !layout.axes().contains(&axis);
        layout.owed = vec![axis];
        Ok(plain && !is_summed(plan, it.state))
    }),
    ("an operation on states that is prepared", &["prepared"], |plan, _| {
        // Few operations read states alone: one is looked for.
        let state = |it: &ValueId| matches!(plan.graph.value(*it).source, Source::State(_));
        let reads = |node: &planner_ir::Node| !node.operands.is_empty() && node.operands.iter().all(state);
        let Some(node) = plan.graph.nodes.iter().position(reads) else { return Ok(false) };
        plan.assignments[node] = Assignment::Prepared;
        Ok(true)
    }),
    ("what a micro-batch makes is returned", &["output"], |plan, u| {
        if plan.graph.training.is_none() {
            return Ok(false);
        }
        let node = u.choose_index(plan.graph.nodes.len())?;
        let node = &plan.graph.nodes[node];
        let value = node.results[0];
        plan.graph.outputs[0].value = value;
        plan.outputs[0] = Copy::Made;
        Ok(node.phase != Phase::Update)
    }),
    ("a copy made for micro-batches is read in the update", &["part"], |plan, u| {
        // Both an update and a micro-batch read a copy of one value that does not change.
        let when = plan.when();
        let mut cases = Vec::new();
        for (node, it) in plan.graph.nodes.iter().enumerate() {
            for (operand, &value) in it.operands.iter().enumerate() {
                for (index, transfer) in plan.transfers.iter().enumerate() {
                    let state = plan.graph.next(value).is_some() && !is_summed(plan, value);
                    let other = transfer.value == value && when[index] == Part::MicroBatch;
                    if it.phase == Phase::Update && state && other {
                        cases.push((node, operand, index));
                    }
                }
            }
        }
        if cases.is_empty() {
            return Ok(false);
        }
        let (node, operand, transfer) = *u.choose(&cases)?;
        operands(plan, node)[operand] = Copy::Transferred(transfer);
        Ok(true)
    }),
    ("a copy of a copy made for micro-batches is read in the update", &["part"], |plan, u| {
        let when = plan.when();
        let mut cases = Vec::new();
        for (index, transfer) in plan.transfers.iter().enumerate() {
            for from in 0..index {
                let one = plan.transfers[from].value == transfer.value && !is_total(plan, transfer.value);
                if one && when[index] == Part::Update && when[from] == Part::MicroBatch {
                    cases.push((index, from));
                }
            }
        }
        if cases.is_empty() {
            return Ok(false);
        }
        let (index, from) = *u.choose(&cases)?;
        plan.transfers[index].from = Copy::Transferred(from);
        Ok(true)
    }),
    ("an operation that is counted once for all micro-batches", &["estimate"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let runs = plan.graph.runs(planner_ir::NodeId(node));
        let Assignment::Computed { seconds, .. } = &plan.assignments[node] else { return Ok(false) };
        let (seconds, more) = (*seconds, f64::from(u32::try_from(runs).unwrap()) - 1.0);
        plan.estimate.push(crate::Term { name: "less".to_owned(), seconds: 0.0 });
        let term = plan.estimate.iter_mut().find(|term| term.seconds >= seconds * more).unwrap();
        term.seconds -= seconds * more;
        Ok(runs > 1 && seconds * more > plan.seconds() * 1e-6)
    }),
    ("a transfer that is counted once for all micro-batches", &["estimate"], |plan, u| {
        if plan.transfers.is_empty() {
            return Ok(false);
        }
        let index = u.choose_index(plan.transfers.len())?;
        let (runs, seconds) = (plan.runs()[index], plan.transfers[index].takes());
        let more = seconds * (f64::from(u32::try_from(runs).unwrap()) - 1.0);
        plan.estimate.push(crate::Term { name: "less".to_owned(), seconds: 0.0 });
        plan.estimate.iter_mut().find(|term| term.seconds >= more).unwrap().seconds -= more;
        Ok(runs > 1 && more > plan.seconds() * 1e-6)
    }),
    ("a step without a recipe", &["recipe"], |plan, _| {
        plan.recipe = None;
        Ok(plan.graph.training.is_some())
    }),
    ("other micro-batches", &["recipe"], |plan, _| {
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        recipe.micro_batches += 1;
        Ok(true)
    }),
    ("a recipe without a program to match", &["recipe"], |plan, u| {
        let (_, recipe) = crate::samples::training_step(u)?;
        let trains = plan.recipe.is_some();
        plan.recipe = Some(recipe);
        Ok(!trains)
    }),
    ("a norm that there is not", &["recipe"], |plan, u| {
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        recipe.clip = Some(*u.choose(&[0.0, -1.0, f64::NAN, f64::INFINITY])?);
        Ok(true)
    }),
    ("another optimizer than the recipe's", &["recipe"], |plan, _| {
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        match &mut recipe.optimizer {
            Optimizer::Sgd { decay } => *decay = Real(decay.0 + 0.5),
            Optimizer::Momentum { momentum, .. } => *momentum = Real(0.5),
            Optimizer::AdamW { beta2, .. } => *beta2 = Real(0.5),
        }
        let decays = |op: &Op| !matches!(op, Op::Update(Optimizer::Sgd { decay }) if decay.0 == 0.0);
        let updates = |op: &&Op| matches!(op, Op::Update(_));
        Ok(plan.graph.nodes.iter().map(|node| &node.op).filter(updates).any(decays))
    }),
    ("labels that are no whole numbers", &["recipe"], |plan, u| {
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        let float = |it: &&planner_ir::Value| match &it.source {
            Source::Input(_) => it.type_.dtype != DType::I64,
            _ => false,
        };
        let inputs: Vec<&Source> = plan.graph.values.iter().filter(float).map(|it| &it.source).collect();
        let Source::Input(labels) = u.choose(&inputs)? else { return Ok(false) };
        recipe.loss = Loss::CrossEntropy { logits: "logits".to_owned(), labels: labels.clone() };
        Ok(true)
    }),
    ("a block spelled out that is not there", &["recipe"], |plan, _| {
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        recipe.spelled.push(recipe.recompute.len());
        Ok(true)
    }),
    ("a block spelled out twice", &["recipe"], |plan, _| {
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        let last = recipe.spelled.last().copied();
        recipe.spelled.extend(last);
        Ok(last.is_some())
    }),
    ("a precision that the program is not of", &["precision"], |plan, _| {
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        recipe.precision = match recipe.precision {
            Precision::Bf16Stochastic => Precision::Bf16,
            Precision::F32
            | Precision::Bf16
            | Precision::Fp8
            | Precision::Fp8Delayed
            | Precision::Mxfp8
            | Precision::Nvfp4
            | Precision::File => Precision::Bf16Stochastic,
        };
        Ok(true)
    }),
    ("a master beside parameters in bf16 alone", &["precision"], |plan, _| {
        let alone = !roundings(plan).is_empty();
        Ok(alone && moment_becomes_master(plan))
    }),
    ("a master beside parameters in f32 alone", &["precision"], |plan, _| {
        let alone = plan.recipe.as_ref().is_some_and(|it| it.masters == Masters::Alone);
        Ok(alone && moment_becomes_master(plan))
    }),
    ("masters that are elsewhere than the recipe says", &["precision"], |plan, _| {
        let halves = |it: &planner_ir::Value| match &it.source {
            Source::State(state) => state.kind == StateKind::Parameter && it.type_.dtype.is_half(),
            _ => false,
        };
        let halves = plan.graph.values.iter().any(halves);
        let Some(recipe) = &mut plan.recipe else { return Ok(false) };
        recipe.masters = Masters::Alone;
        Ok(halves)
    }),
    ("a parameter in bf16 without a master", &["precision"], |plan, _| {
        let master = |it: &mut planner_ir::Value| match &mut it.source {
            Source::State(state) if state.kind == StateKind::Master => {
                state.name.push('x');
                true
            }
            _ => false,
        };
        Ok(plan.graph.values.iter_mut().any(master))
    }),
    ("a parameter that is rounded to the nearest", &["precision"], |plan, _| {
        let Some(&node) = roundings(plan).first() else { return Ok(false) };
        without_number(plan, node);
        plan.graph.nodes[node].op = Op::Cast(DType::BF16);
        Ok(true)
    }),
    ("a parameter that is rounded alike in every step", &["precision"], |plan, _| {
        let Some(&node) = roundings(plan).first() else { return Ok(false) };
        without_number(plan, node);
        Ok(true)
    }),
    ("a parameter that is rounded from a constant", &["precision"], |plan, _| {
        let Some(constant) = constants(plan).first().map(|&node| plan.graph.nodes[node].results[0]) else {
            return Ok(false);
        };
        let node = roundings(plan)[0];
        plan.graph.nodes[node].operands[1] = constant;
        let Assignment::Computed { operands, .. } = &mut plan.assignments[node] else { return Ok(false) };
        operands[1] = Copy::Made;
        Ok(true)
    }),
    ("blocks that are rounded by the same chance", &["precision"], |plan, _| {
        let constants = constants(plan);
        for &node in &constants {
            if let Op::Fill { value, .. } = &mut plan.graph.nodes[node].op {
                *value = Real(0.0);
            }
        }
        Ok(constants.len() > 1)
    }),
    ("two parameters that are rounded by the same chance", &["precision"], |plan, _| {
        let [first, second, ..] = roundings(plan)[..] else { return Ok(false) };
        let before = plan.graph.nodes[second].op.clone();
        plan.graph.nodes[second].op = plan.graph.nodes[first].op.clone();
        Ok(plan.graph.nodes[second].op != before)
    }),
];

/// Makes a moment of the optimizer a master, if there is one.
fn moment_becomes_master(plan: &mut Plan) -> bool {
    let moment = |it: &mut planner_ir::Value| match &mut it.source {
        Source::State(state) if state.kind == StateKind::FirstMoment => {
            state.kind = StateKind::Master;
            true
        }
        _ => false,
    };
    plan.graph.values.iter_mut().any(moment)
}

/// The operations that round by chance.
fn roundings(plan: &Plan) -> Vec<usize> {
    let rounds = |&it: &usize| matches!(plan.graph.nodes[it].op, Op::RoundStochastically { .. });
    (0..plan.graph.nodes.len()).filter(rounds).collect()
}

/// The constants that are added to the number of a step, for each block, if something is rounded.
fn constants(plan: &Plan) -> Vec<usize> {
    let whole = |it: &Node| plan.graph.type_of(it.results[0]).dtype == DType::I64;
    let is_it = |it: &usize| {
        let node = &plan.graph.nodes[*it];
        matches!(node.op, Op::Fill { .. }) && whole(node) && !roundings(plan).is_empty()
    };
    (0..plan.graph.nodes.len()).filter(is_it).collect()
}

/// Leaves out the number that an operation's chances start from.
fn without_number(plan: &mut Plan, node: usize) {
    plan.graph.nodes[node].operands.truncate(1);
    let Assignment::Computed { operands, bytes, .. } = &mut plan.assignments[node] else { return };
    operands.truncate(1);
    // There is one for each operand and result, or none.
    if !bytes.is_empty() {
        bytes.remove(1);
    }
}

/// A state, what it becomes, and its place among them.
fn carried(plan: &Plan, u: &mut Unstructured<'_>) -> Result<Option<(usize, Carried)>> {
    let Some(training) = &plan.graph.training else { return Ok(None) };
    let place = u.choose_index(training.carried.len())?;
    Ok(Some((place, training.carried[place])))
}

fn is_summed(plan: &Plan, value: ValueId) -> bool {
    matches!(&plan.graph.value(value).source, Source::State(state) if state.kind.is_summed())
}

/// Whether a summed state becomes this value.
fn is_total(plan: &Plan, value: ValueId) -> bool {
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    carried.filter(|it| it.next == value).any(|it| is_summed(plan, it.state))
}
