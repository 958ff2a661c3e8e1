//! What is written over inputs, where it stays from step to step.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{DType, Digit, Mesh, Op, Partition, Scatter, Type, Unary};

use super::sketch::Sketch;
use super::{check_given, programs, some_numbers, sources};
use crate::{Handed, Session, Sources, reference};

/// Entries of a cache of so many places, of which each of two devices has those of its sequences; one is written.
fn plan(places: u64) -> Sketch {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2]));
    let rows = |sketch: &Sketch| -> Vec<Vec<Digit>> { vec![vec![sketch.axis(0)], vec![], vec![]] };
    let input = |sketch: &mut Sketch, name: &str, dtype: DType, places: u64| {
        let layout = rows(sketch);
        sketch.input(name, Type::new(dtype, [4, places, 3]), layout)
    };
    let cache = input(&mut sketch, "past", DType::F32, places);
    let at = input(&mut sketch, "at", DType::I64, 1);
    let new = input(&mut sketch, "new", DType::F32, 1);
    let by_sequences = |sketch: &Sketch, op: &Op, operands: &[planner_ir::ValueId]| {
        let types = sketch.plan.graph.types_of(operands);
        let mut partition = Partition::replicated(&op.loops(&types, &op.infer(&types).unwrap()));
        partition.loops[0].push(sketch.axis(0));
        partition
    };
    let op = Op::ScatterElements { dim: 1, scatter: Scatter::Write };
    let partition = by_sequences(&sketch, &op, &[cache, at, new]);
    let written = sketch.node(op, &[cache, at, new], partition)[0];
    let op = Op::Unary(Unary::Neg);
    let partition = by_sequences(&sketch, &op, &[written]);
    let made = sketch.node(op, &[written], partition)[0];
    for (name, value) in [("present", written), ("y", made)] {
        let layout = rows(&sketch);
        sketch.output(name, value, layout, &mut |_, _, _, _| None);
    }
    sketch
}

/// The indices of one place for all elements of an entry.
fn at(place: i64) -> Array {
    Array::of([4, 1, 3], &[place; 12]).unwrap()
}

/// What a caller gives is as it was: the second step of a session has the same.
#[test]
fn inputs_of_a_caller_are_not_written() {
    let sketch = plan(5);
    let values = sources(&sketch.plan);
    assert_eq!(values["past"].shape(), [4, 5, 3]);
    let places = BTreeMap::from([("at".to_owned(), at(2))]);
    let values = values.into_iter().chain(places).collect();
    check_given(&sketch.plan, &values, 0.0);
}

/// A cache stays where it is: each step finds what those before have written, and no rank holds more than one.
#[test]
fn a_cache_is_written_from_step_to_step() {
    const PLACES: u64 = 1000;
    let plan = plan(PLACES).plan;
    let mut session = Session::new(programs(&plan), &BTreeMap::new()).unwrap();
    let handed = Handed { output: "present".to_owned(), input: "past".to_owned(), dim: 1 };
    session.keep(&[handed]).unwrap();
    let type_ = Type::new(DType::F32, [4, PLACES, 3]);
    let mut past = Array::zeros(type_.clone()).unwrap();
    for step in 0..7_i64 {
        let entry = some_numbers(&format!("entry {step}"), &Type::new(DType::F32, [4, 1, 3]));
        let place = (step * 3) % 5;
        let given = BTreeMap::from([("at".to_owned(), at(place)), ("new".to_owned(), entry)]);
        let found = session.step(&given).unwrap();
        assert!(!found.outputs.contains_key("present"), "it stays on its ranks");
        let all = given.into_iter().chain([("past".to_owned(), past)]).collect();
        let none = BTreeMap::new();
        let expected = reference(&plan.graph, Sources { inputs: &all, weights: &none }).unwrap();
        assert_eq!(found.outputs["y"], expected["y"], "after {step} steps");
        past = expected["present"].clone();
    }
    // Of two sequences each: the cache, and what is made of it.
    let each = type_.bytes() / 2;
    for held in session.held_together(None) {
        assert!((2 * each..2 * each + 1000).contains(&held), "{held} of {each} bytes");
    }
}
