//! Rules of training steps that are broken are found.

use std::sync::Arc;

use planner_ir::{Op, Real, StateKind};

use super::programs;
use super::regression::{Parallel, Regression};
use crate::{Action, BufferId, Compute, Instruction, Kind, Program, StorageId, Violation, verify};

fn good(parallel: Parallel) -> Vec<Program> {
    programs(&Regression::new(parallel, 4, 3).sketch())
}

/// Breaks programs and expects a violation of that rule that says this.
fn check(parallel: Parallel, rule: &str, says: &str, fault: impl FnOnce(&mut Vec<Program>)) {
    let mut programs = good(parallel);
    fault(&mut programs);
    let violations = verify(&programs).unwrap_err();
    let found = violations.0.iter().any(|it| it.rule == rule && it.to_string().contains(says));
    assert!(found, "expected [{rule}] with `{says}`, found:\n{violations}\n{}", programs[1]);
}

/// The instruction that says this, and the buffers that it writes.
fn find(program: &Program, says: &str) -> usize {
    let says = |it: &Instruction| program.show(it).contains(says);
    program.instructions.iter().position(says).unwrap_or_else(|| panic!("{program}"))
}

/// The storage of a state.
fn state(program: &Program, kind: StateKind, name: &str) -> StorageId {
    let is =
        |port: &&crate::Port| port.name == name && program.storage(port.buffer).kind == Kind::State(kind);
    program.buffer(program.states.iter().find(is).unwrap().buffer).storage
}

/// The last instruction that writes a storage.
fn last_write(program: &Program, storage: StorageId) -> usize {
    let writes =
        |it: &Instruction| it.action.writes().iter().any(|&buffer| program.buffer(buffer).storage == storage);
    program.instructions.iter().rposition(writes).unwrap()
}

fn compute(program: &mut Program, index: usize) -> &mut Compute {
    match &mut program.instructions[index].action {
        Action::Compute(compute) => compute,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_event_is_found() {
    for parallel in Parallel::ALL {
        let waits: Vec<usize> = good(parallel)[1].instructions.iter().map(|it| it.waits.len()).collect();
        for (index, wait) in waits.iter().enumerate().flat_map(|(it, &n)| (0..n).map(move |wait| (it, wait)))
        {
            let mut programs = good(parallel);
            programs[1].instructions[index].waits.remove(wait);
            let violations = verify(&programs).unwrap_err();
            let rules = ["read-after-write", "reuse", "state-order"];
            let named = |it: &Violation| it.place.rank == 1 && rules.contains(&it.rule);
            assert!(violations.0.iter().any(named), "{violations}");
        }
    }
}

#[test]
fn an_instruction_at_another_place_is_found() {
    // Every instruction moved to every other place: whatever reads or writes a state between
    // sees something else, or nothing that matters has changed. What is accepted has the same
    // order of uses of each state.
    for parallel in [Parallel::Data, Parallel::Zero1, Parallel::Zero3] {
        let programs = good(parallel);
        let count = programs[1].instructions.len();
        let mut refused = 0;
        for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
            let mut moved = programs.clone();
            let instruction = moved[1].instructions.remove(from);
            moved[1].instructions.insert(to, instruction);
            if verify(&moved).is_err() {
                refused += 1;
                continue;
            }
            for storage in (0..moved[1].storages.len()).map(StorageId) {
                if moved[1].storages[storage.0].kind.state().is_some() {
                    assert_eq!(uses(&moved[1], storage), uses(&programs[1], storage), "{from} to {to}");
                }
            }
        }
        assert!(refused > count * count / 4, "{refused}");
    }
}

/// Which buffers of a state are used how, in order; reads between two writes in any.
fn uses(program: &Program, storage: StorageId) -> Vec<(bool, Vec<BufferId>)> {
    let mut uses: Vec<(bool, Vec<BufferId>)> = Vec::new();
    for instruction in &program.instructions {
        let reads = instruction.action.reads().into_iter().map(|it| (false, it));
        let writes = instruction.action.writes().into_iter().map(|it| (true, it));
        for (writes, buffer) in reads.chain(writes).filter(|it| program.buffer(it.1).storage == storage) {
            match uses.last_mut() {
                Some((false, buffers)) if !writes => buffers.push(buffer),
                _ => uses.push((writes, vec![buffer])),
            }
        }
    }
    uses.iter_mut().for_each(|it| it.1.sort_unstable());
    uses
}

#[test]
fn sums_that_do_not_start_from_zero_are_found() {
    check(Parallel::Data, "cleared", "rank 1: gradient `up` is not set to zero once", |programs| {
        let program = &mut programs[1];
        program.instructions.remove(0);
        let range = &mut program.repeated.as_mut().unwrap().instructions;
        *range = range.start - 1..range.end - 1;
    });
    check(Parallel::Data, "cleared", "rank 2: gradient `down` is not set to zero once", |programs| {
        let clear = compute(&mut programs[2], 1);
        let Op::Fill { result, .. } = &*clear.op else { panic!("{clear:?}") };
        clear.op = Arc::new(Op::Fill { result: result.clone(), value: Real(1.0) });
    });
    check(Parallel::Data, "cleared", "rank 1: parameter `up` is not set to zero never", |programs| {
        let parameter = state(&programs[1], StateKind::Parameter, "up");
        let cleared = compute(&mut programs[1], 0).results[0].buffer;
        programs[1].buffers[cleared.0].storage = parameter;
    });
}

#[test]
fn states_that_become_nothing_are_found() {
    for (name, kind) in [("down", StateKind::Parameter), ("down", StateKind::FirstMoment)] {
        let says = format!("rank 1: {} `{name}` is not written after the repetitions", kind.name());
        check(Parallel::Zero1, "carried", &says, |programs| {
            let storage = state(&programs[1], kind, name);
            let last = last_write(&programs[1], storage);
            programs[1].instructions.remove(last);
        });
    }
    check(
        Parallel::Zero2,
        "carried",
        "rank 1: gradient `up` is not written in the repetitions",
        |programs| {
            let storage = state(&programs[1], StateKind::Gradient, "up");
            let last = last_write(&programs[1], storage);
            programs[1].instructions.remove(last);
            programs[1].repeated.as_mut().unwrap().instructions.end -= 1;
        },
    );
    check(Parallel::Data, "carried", "is a state that lasts, written in a repetition", |programs| {
        let end = programs[1].instructions.len();
        programs[1].repeated.as_mut().unwrap().instructions.end = end;
    });
}

#[test]
fn states_that_are_used_out_of_order_are_found() {
    // The slice of the parameter is taken after it has been gathered.
    check(Parallel::Zero1, "state-order", "is read, perhaps after it is written over", |programs| {
        let slice = find(&programs[1], "compute copy");
        let instruction = programs[1].instructions.remove(slice);
        programs[1].instructions.push(instruction);
    });
    // What is not element by element cannot be written where it is read.
    check(Parallel::Tensor, "state-order", "is read, perhaps after it is written over", |programs| {
        let storage = state(&programs[1], StateKind::Gradient, "up");
        let last = last_write(&programs[1], storage);
        compute(&mut programs[1], last).op = Arc::new(Op::Concat { dim: 0 });
    });
    // A sum over devices made where another gradient is, which is still to be read.
    check(Parallel::Data, "state-order", "rank 1, instruction", |programs| {
        let other = state(&programs[1], StateKind::Gradient, "down");
        let first = find(&programs[1], "all-reduce c0 of 32 f32");
        let sum = programs[1].instructions[first].action.writes()[0];
        programs[1].buffers[sum.0].storage = other;
    });
}

#[test]
fn repetitions_that_do_not_fit_are_found() {
    check(Parallel::Data, "repetition", "there are", |programs| {
        programs[1].repeated.as_mut().unwrap().instructions.end = 99;
    });
    check(Parallel::Data, "repetition", "nothing is repeated", |programs| {
        programs.iter_mut().for_each(|it| it.repeated.as_mut().unwrap().times = 0);
    });
    check(Parallel::Data, "repetition", "rank 2: it has 4 repetitions, rank 0 has 3", |programs| {
        programs[2].repeated.as_mut().unwrap().times = 4;
    });
    check(Parallel::Data, "repetition", "is read, which is given for each repetition", |programs| {
        let range = &mut programs[1].repeated.as_mut().unwrap().instructions;
        range.end = range.start + 1;
    });
    check(
        Parallel::Zero3,
        "collective-order",
        "enters all-gather of 8 f32 before the repetitions",
        |programs| {
            programs[2].repeated.as_mut().unwrap().instructions.start += 1;
        },
    );
}

#[test]
fn a_guard_at_another_place_is_found() {
    let guard = good(Parallel::Zero1)[1].guard.unwrap();
    check(Parallel::Zero1, "guard", "is a state, written before the guard", |programs| {
        programs[1].guard = Some(programs[1].instructions.len());
    });
    check(Parallel::Zero1, "guard", "output `loss` is not written before the guard", |programs| {
        programs[1].guard = Some(programs[1].repetition().end);
    });
    check(Parallel::Zero1, "guard", "expected one after repetitions", |programs| programs[1].guard = Some(5));
    check(Parallel::Zero1, "guard", "expected one after repetitions", |programs| {
        programs[1].guard = Some(guard + 1_000);
    });
}

#[test]
fn a_state_that_is_written_and_no_state_is_found() {
    check(Parallel::Data, "written-once", "is at rest and written", |programs| {
        let storage = state(&programs[1], StateKind::Parameter, "up");
        programs[1].storages[storage.0].kind = Kind::Weight;
    });
}
