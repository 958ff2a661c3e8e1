//! Plans run on ranks against the reference.

#[path = "../../lower/src/tests/sketch.rs"]
mod sketch; // plans made by hand
#[path = "../../lower/src/tests/regression.rs"]
mod regression; // training steps made by hand
mod random; // random programs in random layouts
mod families; // named parallelisms
mod heads; // heads instead of positions
mod grids; // grids of two and three axes
mod context; // keys and values that go around
mod temporal; // named partitions in time
mod rotated; // weights that go around
mod routed; // rows that go to their experts
mod random_time; // random partitions in time
mod training; // training steps against the reference
mod random_steps; // random training steps, with states in random layouts
mod joined; // whole values of blocks of several layouts
mod sums; // sums of narrow numbers
mod stored; // what is read of weights
mod priced; // plans that say what operations and moves take
mod written; // what is written over inputs
mod faults; // what goes wrong

use std::collections::BTreeMap;

use kernels::Array;
use lower::{Moving, Origin, Program};
use plan::{Assignment, Plan};
use planner_ir::{DType, Motion, NodeId, Slots, Source, Type, Ways, chunks};

use crate::{Outcome, Session, Sources, reference};

/// Numbers from -3 to 3, the same for the same name.
fn some_numbers(name: &str, type_: &Type) -> Array {
    let mut state = name.bytes().fold(17_u32, |state, byte| state.wrapping_mul(31).wrapping_add(byte.into()));
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i32::try_from((state >> 16) % 7).unwrap() - 3
    };
    let count = usize::try_from(type_.elements()).unwrap();
    let numbers: Vec<i32> = (0..count).map(|_| next()).collect();
    let whole = Array::of(type_.shape.clone(), &numbers).unwrap();
    let op = planner_ir::Op::Cast(type_.dtype);
    if type_.dtype == DType::I32 { whole } else { kernels::evaluate(&op, &[&whole]).unwrap().remove(0) }
}

/// Inputs and weights for a plan, by name.
fn sources(plan: &Plan) -> BTreeMap<String, Array> {
    let named = |value: &planner_ir::Value| match &value.source {
        Source::Input(name) | Source::Weight(name) => Some((name.clone(), some_numbers(name, &value.type_))),
        Source::State(_) | Source::Result { .. } => None,
    };
    plan.graph.values.iter().filter_map(named).collect()
}

fn programs(plan: &Plan) -> Vec<Program> {
    let programs = lower::lower(plan).unwrap();
    if let Err(violations) = lower::verify(&programs) {
        panic!("{violations}\n{}", programs[0]);
    }
    programs
}

/// Runs a plan twice and holds it to the reference, and what ranks receive to what it says.
fn check(plan: &Plan) -> Outcome {
    check_given(plan, &sources(plan), 0.0)
}

/// The same plan with prices: exchanges are beside computing then, and all is the same to the last bit.
fn check_in_another_order(plan: &Plan, values: &BTreeMap<String, Array>, expected: &Outcome) {
    let seed = u32::try_from(plan.graph.nodes.len() + plan.transfers.len()).unwrap();
    let programs = programs(&priced::priced(plan, seed));
    let text = programs[0].to_string();
    let found = Session::new(programs, values).unwrap().step(values).unwrap();
    assert!(found.outputs == expected.outputs, "{text}");
    let all = |it: &Outcome| it.received.iter().copied().collect::<BTreeMap<Origin, u64>>();
    assert_eq!(all(&found), all(expected), "{text}");
}

/// The same with these inputs and weights; outputs are the same bits, or as near as this in terms of the
/// largest number of each.
fn check_given(plan: &Plan, values: &BTreeMap<String, Array>, tolerance: f64) -> Outcome {
    let given = Sources { inputs: values, weights: values };
    let expected = reference(&plan.graph, given).unwrap();
    let programs = programs(plan);
    let text = programs[0].to_string();
    let mut session = Session::new(programs, values).unwrap();
    let first = session.step(values).unwrap();
    let second = session.step(values).unwrap();
    assert!(first.outputs.keys().eq(expected.keys()));
    for (name, expected) in &expected {
        let numbers = |array: &Array| array.to_floats().unwrap();
        let (found, right) = (numbers(&first.outputs[name]), numbers(expected));
        let size = right.iter().fold(1.0_f64, |size, it| size.max(it.abs()));
        let same = |(found, right): (&f64, &f64)| {
            found.to_bits() == right.to_bits() || (found - right).abs() < tolerance * size
        };
        let differs = found.iter().zip(&right).position(|it| !same(it));
        if let Some(at) = differs {
            panic!("`{name}`[{at}] is {}, expected {}\n{:?}\n{text}", found[at], right[at], plan.graph.nodes);
        }
        assert!(second.outputs[name] == first.outputs[name]);
    }
    assert_eq!(first.received, second.received);
    check_in_another_order(plan, values, &first);
    let received: BTreeMap<Origin, u64> = first.received.iter().copied().collect();
    let used = |transfer: usize| {
        text.contains(&format!("for transfer {transfer}."))
            || received.keys().any(|origin| is_of(*origin, transfer))
    };
    for (transfer, moves) in plan.transfers.iter().enumerate().filter(|(transfer, _)| used(*transfer)) {
        for (step, &bytes) in moves.bytes.iter().enumerate() {
            let found = received.get(&Origin::Move { transfer, step }).copied().unwrap_or(0);
            assert_eq!(found, bytes, "move {step} of transfer {transfer}\n{text}");
        }
    }
    check_steps(plan, &first);
    first
}

/// Holds what ranks receive between the time steps of operations, and how often, to what the plan
/// says of it.
fn check_steps(plan: &Plan, outcome: &Outcome) {
    for (number, assignment) in plan.assignments.iter().enumerate() {
        let Assignment::Computed { partition, bytes, .. } = assignment else { continue };
        let it = &plan.graph.nodes[number];
        let loops = it.op.loops(&plan.graph.types_of(&it.operands), &plan.graph.types_of(&it.results));
        if !partition.routed.is_empty() {
            // Which rows go is not known to a plan.
            continue;
        }
        let operands = (0..it.operands.len())
            .map(|index| (Moving::Operand(index), partition.operand_motion(&loops, index)));
        let results = (0..it.results.len())
            .map(|index| (Moving::Result(index), partition.result_motion(&loops, index)));
        for (place, (what, motion)) in operands.chain(results).enumerate() {
            let of = |origin: &Origin| matches!(*origin, Origin::Motion { node, moving, .. } if node == NodeId(number) && moving == what);
            let found: Vec<u64> = outcome.received.iter().filter(|it| of(&it.0)).map(|it| it.1).collect();
            let block = match what {
                Moving::Operand(index) => {
                    partition.operand_block(&loops, index, plan.graph.type_of(it.operands[index]))
                }
                Moving::Result(index) => {
                    partition.result_block(&loops, index, plan.graph.type_of(it.results[index]))
                }
            };
            let shifts = partition.ways.count() * (partition.steps - 1);
            // What is at rest is not in a slot yet: the first shift of it is at once.
            let at_rest = matches!(what, Moving::Operand(_)) && partition.ways == Ways::One;
            let at_once = if at_rest { shifts.min(1) } else { 0 };
            let times = match (&motion, partition.slots) {
                (Motion::Stationary | Motion::Whole, _) => 0,
                (Motion::Rotating(_), Slots::Two) => shifts,
                (Motion::Rotating(_), Slots::One) => at_once + (shifts - at_once) * chunks(block.elements()),
                (Motion::Streaming(_), _) => partition.steps,
            };
            assert_eq!(u64::try_from(found.len()), Ok(times), "{what:?} of node {number}");
            let later = found.get(usize::try_from(at_once).unwrap()..).unwrap_or_default();
            assert!(later.iter().all(|bytes| later[0] == *bytes), "{found:?}");
            let expected = if partition.steps == 1 { 0 } else { bytes[place] };
            assert_eq!(found.iter().sum::<u64>(), expected, "{what:?} of node {number}");
        }
    }
}

fn is_of(origin: Origin, transfer: usize) -> bool {
    matches!(origin, Origin::Move { transfer: it, .. } if it == transfer)
}
