//! Random training steps with states in random layouts, by random moves.

use std::collections::BTreeMap;

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use kernels::Array;
use lower::Origin;
use planner_ir::{
    AxisId, Binary, Layout, Mesh, Move, Op, Partition, Phase, Source, State, StateKind, Type, ValueId,
};

use super::priced::priced;
use super::random::{DTYPE, MESHES, any_move, at_rest, digits, operation, partition};
use super::sketch::Sketch;
use super::{programs, some_numbers};
use crate::{Reference, Session};

/// How many steps are run.
const STEPS: u64 = 2;

#[test]
fn random_steps_do_what_the_reference_does() {
    arbtest(|u| {
        let mut sketch = step(u)?;
        check(&sketch);
        sketch.plan = priced(&sketch.plan, u.arbitrary()?);
        check(&sketch);
        Ok(())
    })
    .budget_ms(4_000);
}

/// Runs some steps of a plan on ranks and holds them to the reference, bit by bit.
fn check(sketch: &Sketch) {
    let graph = &sketch.plan.graph;
    let named = |it: &planner_ir::Value| match &it.source {
        Source::Weight(name) | Source::State(State { kind: StateKind::Parameter, name }) => {
            Some((name.clone(), some_numbers(name, &it.type_)))
        }
        _ => None,
    };
    let weights: BTreeMap<String, Array> = graph.values.iter().filter_map(named).collect();
    let inputs = |number: u64| -> BTreeMap<String, Array> {
        let given = |it: &planner_ir::Value| match &it.source {
            Source::Input(name) => Some((name.clone(), some_numbers(&format!("{name}.{number}"), &it.type_))),
            _ => None,
        };
        graph.values.iter().filter_map(given).collect()
    };
    let times = graph.training.as_ref().unwrap().micro_batches;
    let programs = programs(&sketch.plan);
    let text = programs[0].to_string();
    let held: u64 = lower::memory(&sketch.plan).unwrap().iter().map(|it| it.bytes).sum();
    assert_eq!(held, programs[0].resident + programs[0].arena, "{text}");
    let mut session = Session::new(programs, &weights).unwrap();
    let mut reference = Reference::new(graph, &weights).unwrap();
    for step in 0..STEPS {
        let micro_batches: Vec<_> = (0..times).map(|it| inputs(step * 10 + it)).collect();
        let expected = reference.train(&micro_batches, &inputs(99 + step)).unwrap();
        let outcome = session.train(&micro_batches, &inputs(99 + step)).unwrap();
        assert!(outcome.outputs == expected, "step {step}\n{text}\n{:?}", graph.nodes);
        for state in session.states() {
            let same = session.gather(&state).unwrap() == *reference.state(&state).unwrap();
            assert!(same, "{state:?} in step {step}\n{text}\n{:?}", graph.nodes);
        }
        session.check_replicas().unwrap();
        for (origin, bytes) in outcome.received {
            let Origin::Move { transfer, step } = origin else { panic!("{origin}") };
            let once = sketch.plan.transfers[transfer].bytes[step];
            assert!(bytes == once || bytes == times * once, "{origin} {bytes} {once}\n{text}");
        }
    }
}

/// Moves at random, as long as what is to be owed stays so.
fn detour(u: &mut Unstructured) -> impl FnMut(&Mesh, &Type, &Layout, &[AxisId]) -> Option<Move> {
    |mesh, type_, layout, keep| any_move(u, mesh, type_, layout, keep).ok().flatten()
}

fn step(u: &mut Unstructured) -> Result<Sketch> {
    let mesh = Mesh::of_sizes(u.choose(&MESHES)?);
    let mut sketch = Sketch::training(&mesh, u.int_in_range(1..=3)?);
    let mut values = vec![at_rest(u, &mut sketch, true)?];
    let mut parameters = Vec::new();
    for number in 0..u.int_in_range(1..=2)? {
        let rank = u.int_in_range(1..=2)?;
        let shape: Vec<u64> = (0..rank).map(|_| u.choose(&[1, 4, 8]).copied()).collect::<Result<_>>()?;
        let parameter = state(u, &mut sketch, StateKind::Parameter, number, Type::new(DTYPE, shape), vec![])?;
        parameters.push(parameter);
        values.push(parameter);
    }
    for _ in 0..u.int_in_range(1..=4)? {
        values.push(node(u, &mut sketch, &values)?);
    }
    // Sums over micro-batches, some of several addends.
    sketch.phase = Phase::Gradient;
    let (mut sums, mut found) = (Vec::new(), Vec::new());
    for (number, &parameter) in parameters.iter().enumerate() {
        let type_ = sketch.plan.graph.type_of(parameter).clone();
        let same = |it: &&ValueId| *sketch.plan.graph.type_of(**it) == type_;
        let addends: Vec<ValueId> = values.iter().filter(same).copied().collect();
        let mut addend = *u.choose(&addends)?;
        let owed: Vec<AxisId> = sketch.plan.layouts[addend.0].owed.clone();
        let owed = if u.ratio(1, 2)? { owed } else { vec![] };
        let sum = state(u, &mut sketch, StateKind::Gradient, number, type_, owed.clone())?;
        found.push(sum);
        if u.ratio(1, 3)? {
            // Something reads what a micro-batch finds.
            node(u, &mut sketch, &[sum])?;
        }
        let mut next = sum;
        for _ in 0..u.int_in_range(1..=2)? {
            next = add(u, &mut sketch, next, addend)?;
            let fits = |it: &&ValueId| owed.iter().all(|axis| sketch.plan.layouts[it.0].owed.contains(axis));
            let others: Vec<ValueId> = addends.iter().filter(fits).copied().collect();
            addend = *u.choose(&others)?;
        }
        sketch.carry(sum, next, &mut detour(u));
        sums.push(next);
    }
    sketch.phase = Phase::Update;
    sketch.reused_from = if u.ratio(1, 2)? { sketch.plan.transfers.len() } else { 0 };
    let mut values: Vec<ValueId> = parameters.iter().chain(&sums).chain(&found).copied().collect();
    for (number, &parameter) in parameters.iter().enumerate() {
        // What a sum has become is in its place too.
        let sum = if u.ratio(1, 2)? { sums[number] } else { found[number] };
        for _ in 0..u.int_in_range(0..=1)? {
            values.push(node(u, &mut sketch, &values)?);
        }
        let moment = if u.ratio(1, 2)? {
            let type_ = sketch.plan.graph.type_of(parameter).clone();
            let moment = state(u, &mut sketch, StateKind::FirstMoment, number, type_, vec![])?;
            let next = elementwise(u, &mut sketch, Binary::Add, [moment, sum])?;
            sketch.carry(moment, next, &mut detour(u));
            next
        } else {
            sum
        };
        let next = elementwise(u, &mut sketch, Binary::Sub, [parameter, moment])?;
        sketch.carry(parameter, next, &mut detour(u));
        values.push(next);
    }
    // Some read what has been replaced.
    for _ in 0..u.int_in_range(0..=2)? {
        values.push(node(u, &mut sketch, &values)?);
    }
    for number in 0..u.int_in_range(1..=2)? {
        let value = *u.choose(&values)?;
        let type_ = sketch.plan.graph.type_of(value).clone();
        let dims = digits(u, &mesh, &type_, &[])?;
        sketch.output(&format!("y{number}"), value, dims, &mut detour(u));
    }
    Ok(sketch)
}

/// A state in a random layout that owes these axes.
fn state(
    u: &mut Unstructured,
    sketch: &mut Sketch,
    kind: StateKind,
    number: usize,
    type_: Type,
    owed: Vec<AxisId>,
) -> Result<ValueId> {
    let dims = digits(u, &sketch.plan.mesh, &type_, &owed)?;
    Ok(sketch.state(kind, &format!("p{number}"), type_, Layout { dims, owed }))
}

/// A random operation.
fn node(u: &mut Unstructured, sketch: &mut Sketch, values: &[ValueId]) -> Result<ValueId> {
    let (op, operands) = operation(u, sketch, values)?;
    let partition = partition(u, sketch, &op, &operands)?;
    Ok(sketch.node_with(op, &operands, partition, &mut detour(u))[0])
}

/// An operation of values of one type in a random partition.
fn elementwise(
    u: &mut Unstructured,
    sketch: &mut Sketch,
    function: Binary,
    of: [ValueId; 2],
) -> Result<ValueId> {
    let op = Op::Binary(function);
    let partition = partition(u, sketch, &op, &of)?;
    Ok(sketch.node_with(op, &of, partition, &mut detour(u))[0])
}

/// A sum and an addend more, in the layout of the sum.
fn add(u: &mut Unstructured, sketch: &mut Sketch, sum: ValueId, addend: ValueId) -> Result<ValueId> {
    let op = Op::Binary(Binary::Add);
    let operands = [sum, addend];
    let types = sketch.plan.graph.types_of(&operands);
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let layout = sketch.plan.layouts[sum.0].clone();
    let mut partition = Partition::replicated(&loops);
    for (dim, digits) in loops.operands[0].iter().zip(layout.dims) {
        if let [it] = dim[..] {
            partition.loops[it.0] = digits;
        }
    }
    partition.through = loops.linear.iter().position(|set| set.len() == 2).unwrap();
    partition.passed = layout.owed;
    Ok(sketch.node_with(op, &operands, partition, &mut detour(u))[0])
}
