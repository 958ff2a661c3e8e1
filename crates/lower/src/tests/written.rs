//! What is written over inputs is written where they are.

use planner_ir::{DType, Op, Scatter, Type, Unary};

use super::{f32, split};
use crate::tests::sketch::Sketch;
use crate::{Action, Kind, Program, StorageId, lower, verify};

/// Entries of a cache, of which each of two devices has those of its sequences, one of them written, and what is made
/// of all; returned whole.
fn programs(scatter: Scatter) -> Vec<Program> {
    let mesh = planner_ir::Mesh::of_sizes(&[2]);
    let mut sketch = Sketch::new(&mesh);
    let rows = |sketch: &Sketch| vec![vec![sketch.axis(0)], vec![], vec![]];
    let cache = sketch.input("past", f32(&[2, 64, 4]), rows(&sketch));
    let at = sketch.input("at", Type::new(DType::I64, [2, 1, 4]), rows(&sketch));
    let new = sketch.input("new", f32(&[2, 1, 4]), rows(&sketch));
    let op = Op::ScatterElements { dim: 1, scatter };
    let types = sketch.plan.graph.types_of(&[cache, at, new]);
    let loops = op.loops(&types, &op.infer(&types).unwrap()).loops.len();
    let by_sequences = split(&sketch, loops, &[(0, 0)]);
    let written = sketch.node(op, &[cache, at, new], by_sequences)[0];
    let by_sequences = split(&sketch, 3, &[(0, 0)]);
    let made = sketch.node(Op::Unary(Unary::Relu), &[written], by_sequences)[0];
    let layout = rows(&sketch);
    sketch.output("present", written, layout, &mut |_, _, _, _| None);
    sketch.output("y", made, vec![vec![], vec![], vec![]], &mut |_, _, _, _| None);
    lower(&sketch.plan).unwrap()
}

fn storage(program: &Program, name: &str) -> StorageId {
    let port = program.inputs.iter().chain(&program.outputs).find(|port| port.name == name).unwrap();
    program.buffer(port.buffer).storage
}

#[test]
fn a_cache_is_there_once() {
    let (over, anew) = (programs(Scatter::Write), programs(Scatter::Replace));
    verify(&over).unwrap();
    verify(&anew).unwrap();
    for (over, anew) in over.iter().zip(&anew) {
        assert_eq!(storage(over, "past"), storage(over, "present"));
        assert_ne!(storage(anew, "past"), storage(anew, "present"));
        assert_eq!(over.resident, anew.resident);
        // What each device has of the cache: 64 entries of 4 numbers.
        assert_eq!(over.arena + 64 * 4 * 4, anew.arena);
    }
}

/// Breaks programs and expects a violation of that rule that says this.
fn check(rule: &str, says: &str, fault: impl FnOnce(&mut Program)) {
    let mut programs = programs(Scatter::Write);
    fault(&mut programs[0]);
    let violations = verify(&programs).unwrap_err();
    let found = violations.0.iter().any(|it| it.rule == rule && it.to_string().contains(says));
    assert!(found, "expected [{rule}] with `{says}`, found:\n{violations}\n{}", programs[0]);
}

#[test]
fn what_is_read_of_a_cache_after_it_was_written_over_is_found() {
    check("state-order", "input `past` is read, perhaps after it is written over", |program| {
        let past = program.inputs.iter().find(|port| port.name == "past").unwrap().buffer;
        let reader = program.instructions.iter_mut().find_map(|it| match &mut it.action {
            Action::Compute(compute) if matches!(*compute.op, Op::Unary(_)) => Some(compute),
            _ => None,
        });
        reader.unwrap().operands[0].buffer = past;
    });
}

#[test]
fn inputs_that_are_written_otherwise_are_found() {
    check("written-once", "is at rest and written", |program| {
        let past = storage(program, "past");
        let made = program.outputs.iter().find(|port| port.name == "y").unwrap();
        let value = program.instructions.iter().find_map(|it| match &it.action {
            Action::Compute(compute) if matches!(*compute.op, Op::Unary(_)) => {
                Some(compute.results[0].buffer)
            }
            _ => None,
        });
        assert_eq!(program.storages[past.0].kind, Kind::Input);
        assert_ne!(program.buffer(made.buffer).storage, past);
        program.buffers[value.unwrap().0].storage = past;
    });
}
