//! What goes wrong.

use std::collections::BTreeMap;

use kernels::Array;
use lower::{Action, Program};
use planner_ir::{DType, Mesh, Op, Partition, Reduction, Slots, Type, Ways};

use super::sketch::Sketch;
use super::{programs, some_numbers};
use crate::{RunError, Session};

/// Rows picked by an index on two devices, summed over both.
fn picked() -> Sketch {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2]));
    let a = sketch.axis(0);
    let data = sketch.weight("data", Type::new(DType::F32, [4, 3]), vec![vec![], vec![]]);
    let index = sketch.input("index", Type::new(DType::I64, [2]), vec![vec![a.clone()]]);
    let op = Op::Gather { dim: 0 };
    let types = sketch.plan.graph.types_of(&[data, index]);
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let mut partition = Partition::replicated(&loops);
    partition.loops[loops.operands[1][0][0].0].push(a.clone());
    let rows = sketch.node(op, &[data, index], partition)[0];
    let total = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
    let partition = Partition {
        steps: 1,
        loops: vec![vec![a], vec![]],
        passed: vec![],
        through: 0,
        streams: vec![],
        ways: Ways::One,
        slots: Slots::Two,
        routed: vec![],
        routed_by: 1,
    };
    let y = sketch.node(total, &[rows], partition)[0];
    sketch.output("y", y, vec![vec![], vec![]], &mut |_, _, _, _| None);
    sketch
}

fn indices(of: [i64; 2]) -> BTreeMap<String, Array> {
    BTreeMap::from([("index".to_owned(), Array::of([2], &of).unwrap())])
}

fn session(programs: Vec<Program>) -> Session {
    let data = some_numbers("data", &Type::new(DType::F32, [4, 3]));
    Session::new(programs, &BTreeMap::from([("data".to_owned(), data)])).unwrap()
}

#[test]
fn an_error_of_one_rank_ends_the_step_and_is_named() {
    let mut session = session(programs(&picked().plan));
    let error = session.step(&indices([1, 9])).unwrap_err();
    let RunError::Instruction { rank, number, text, .. } = &error else { panic!("{error}") };
    assert_eq!((*rank, *number), (1, 0));
    assert!(text.contains("`node0`"), "{text}");
    // The session goes on.
    assert!(session.step(&indices([1, 3])).is_ok());
}

#[test]
fn an_input_that_is_missing_or_of_another_type_is_refused() {
    let mut session = session(programs(&picked().plan));
    assert_eq!(session.step(&BTreeMap::new()).unwrap_err(), RunError::Missing("index".to_owned()));
    let wrong = BTreeMap::from([("index".to_owned(), Array::of([3], &[1_i64, 2, 3]).unwrap())]);
    assert!(matches!(session.step(&wrong).unwrap_err(), RunError::Type(..)));
}

#[test]
fn a_weight_that_cannot_be_read_is_named() {
    let error = Session::new(programs(&picked().plan), &BTreeMap::new()).err().unwrap();
    assert_eq!(error.to_string(), "weight `data` cannot be read: there is none of that name");
}

#[test]
fn copies_that_differ_are_found() {
    let mut programs = programs(&picked().plan);
    // Rank 1 returns its addend instead of the sum.
    let last = programs[1].instructions.last().unwrap().action.clone();
    let Action::Collective(collective) = last else { panic!("no collective") };
    programs[1].outputs[0].buffer = collective.input;
    let error = session(programs).step(&indices([1, 2])).unwrap_err();
    assert_eq!(error, RunError::Replicas("y".to_owned(), 0, 1));
}

#[test]
fn a_panic_of_one_rank_ends_the_step_and_is_named() {
    let mut programs = programs(&picked().plan);
    // The collective's communicator does not exist.
    programs[1].communicators.clear();
    let error = session(programs).step(&indices([1, 2])).unwrap_err();
    assert_eq!(error, RunError::Panicked(1));
}
