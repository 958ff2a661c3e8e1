//! Rules that are broken are found.

use planner_ir::{Binary, DType, Digit, Op, Type, Unary};

use super::{f32, product, split, two_layers};
use crate::tests::sketch::Sketch;
use crate::{Action, BufferId, Collective, CollectiveKind, Event, Kind, Program, StorageId, lower, verify};

/// Two axes; sums over each, of which the second waits for the first, and a third over both.
///
/// ```text
/// 0 compute, 1 all-reduce a, 2 compute, 3 all-reduce b, 4 compute, 5 all-gather, ...
/// ```
fn good() -> Vec<Program> {
    let mesh = planner_ir::Mesh::of_sizes(&[2, 2]);
    let mut sketch = Sketch::new(&mesh);
    let (a, b) = (sketch.axis(0), sketch.axis(1));
    let x = sketch.input("x", f32(&[4, 8]), vec![vec![], vec![a.clone()]]);
    let w = sketch.weight("w", f32(&[8, 8]), vec![vec![a], vec![]]);
    let v = sketch.weight("v", f32(&[8, 8]), vec![vec![b.clone()], vec![]]);
    let over_a = split(&sketch, 3, &[(1, 0)]);
    let y = sketch.node(product(), &[x, w], over_a)[0];
    let over_b = split(&sketch, 3, &[(1, 1)]);
    let z = sketch.node(product(), &[y, v], over_b)[0];
    let columns = split(&sketch, 2, &[(1, 1)]);
    let half = sketch.node(Op::Unary(Unary::Relu), &[z], columns.clone())[0];
    let twice = sketch.node(Op::Binary(Binary::Add), &[half, half], columns)[0];
    sketch.output("y", twice, vec![vec![], vec![]], &mut |_, _, _, _| None);
    sketch.output("z", z, vec![vec![Digit::free(2), b], vec![]], &mut |_, _, _, _| None);
    lower(&sketch.plan).unwrap()
}

/// Breaks programs and expects a violation of that rule that says this.
fn check(rule: &str, says: &str, fault: impl FnOnce(&mut Vec<Program>)) {
    let mut programs = good();
    verify(&programs).unwrap();
    fault(&mut programs);
    let violations = verify(&programs).unwrap_err();
    let found = violations.0.iter().any(|it| it.rule == rule && it.to_string().contains(says));
    assert!(found, "expected [{rule}] with `{says}`, found:\n{violations}\n{}", programs[2]);
}

/// The instructions that are collectives.
fn collectives(program: &Program) -> Vec<usize> {
    let is_collective = |&it: &usize| matches!(program.instructions[it].action, Action::Collective(_));
    (0..program.instructions.len()).filter(is_collective).collect()
}

fn collective(program: &mut Program, number: usize) -> &mut Collective {
    let at = collectives(program)[number];
    match &mut program.instructions[at].action {
        Action::Collective(collective) => collective,
        other => panic!("{other:?}"),
    }
}

#[test]
fn collectives_in_another_order_are_found() {
    // Rank 2 sums over b before it sums over a.
    check("acyclic-overlapped", "of rank 2", |programs| {
        let at = collectives(&programs[2]);
        programs[2].instructions.swap(at[0], at[1]);
    });
    check("acyclic-serial", "of rank 2", |programs| {
        let at = collectives(&programs[2]);
        programs[2].instructions.swap(at[0], at[1]);
    });
}

#[test]
fn collectives_of_another_kind_or_size_are_found() {
    check(
        "collective-order",
        "rank 3, instruction 4: c1 enters all-to-all of 32 f32 for transfer 1.0, rank 2",
        |programs| {
            collective(&mut programs[3], 1).kind = CollectiveKind::AllToAll;
        },
    );
    check(
        "collective-order",
        "rank 2, instruction 1: c0 enters all-reduce of 7 f32 for transfer 0.0, rank 0",
        |programs| {
            collective(&mut programs[2], 0).elements = 7;
        },
    );
}

#[test]
fn a_collective_that_one_rank_leaves_out_is_found() {
    check("collective-order", "rank 2: c0 never enters all-reduce", |programs| {
        let at = collectives(&programs[2])[0];
        programs[2].instructions.remove(at);
    });
}

#[test]
fn groups_that_do_not_agree_are_found() {
    check("communicator", "rank 2: c0 is of ranks [2, 0], for rank 0 it is of Some([0, 2])", |programs| {
        programs[2].communicators[0].reverse();
    });
    check("communicator", "c0 of ranks [0, 0] cannot be", |programs| {
        programs[0].communicators[0] = vec![0, 0];
    });
}

#[test]
fn a_missing_event_is_found() {
    let all: Vec<(usize, usize)> = good()[1]
        .instructions
        .iter()
        .enumerate()
        .flat_map(|(index, it)| (0..it.waits.len()).map(move |wait| (index, wait)))
        .collect();
    assert!(all.len() > 3);
    for (index, wait) in all {
        let mut programs = good();
        programs[1].instructions[index].waits.remove(wait);
        let violations = verify(&programs).unwrap_err();
        let named =
            |it: &crate::Violation| it.place.rank == 1 && ["read-after-write", "reuse"].contains(&it.rule);
        assert!(violations.0.iter().any(named), "{violations}");
    }
}

#[test]
fn events_that_come_late_are_found() {
    check("event", "rank 1, instruction 0: e0 is waited for, not signalled before", |programs| {
        programs[1].instructions[0].waits.push(Event(0));
    });
    check("acyclic-overlapped", "0 of rank 1", |programs| {
        let signal = programs[1].instructions.iter().rev().find_map(|it| it.signals).unwrap();
        programs[1].instructions[0].waits.push(signal);
    });
    check("event", "is signalled twice", |programs| {
        let signal = programs[1].instructions.iter().rev().find_map(|it| it.signals);
        programs[1].instructions.last_mut().unwrap().signals = signal;
    });
}

#[test]
fn an_exchange_on_another_stream_is_found() {
    let message = "rank 1, instruction 1: it exchanges on stream compute, expected communication";
    check("stream", message, |programs| programs[1].instructions[1].stream = crate::Stream::Compute);
}

/// Of a thousand ranks that do the same, one that does not.
#[test]
fn a_fault_among_a_thousand_ranks_is_found() {
    let mesh = planner_ir::Mesh::of_sizes(&[32, 32]);
    let mut sketch = Sketch::new(&mesh);
    let (a, b) = (sketch.axis(0), sketch.axis(1));
    let x = sketch.input("x", f32(&[4, 64]), vec![vec![], vec![a.clone()]]);
    let w = sketch.weight("w", f32(&[64, 64]), vec![vec![a], vec![]]);
    let v = sketch.weight("v", f32(&[64, 64]), vec![vec![b], vec![]]);
    let over_a = split(&sketch, 3, &[(1, 0)]);
    let y = sketch.node(product(), &[x, w], over_a)[0];
    let over_b = split(&sketch, 3, &[(1, 1)]);
    let z = sketch.node(product(), &[y, v], over_b)[0];
    sketch.output("z", z, vec![vec![], vec![]], &mut |_, _, _, _| None);
    let mut programs = lower(&sketch.plan).unwrap();
    assert_eq!(programs.len(), 1024);
    assert_eq!(verify(&programs), Ok(()));
    let at = collectives(&programs[777]);
    programs[777].instructions.swap(at[0], at[1]);
    let violations = verify(&programs).unwrap_err();
    for rule in ["acyclic-overlapped", "acyclic-serial"] {
        let named = |it: &crate::Violation| it.rule == rule && it.message.contains("of rank 777");
        assert!(violations.0.iter().any(named), "{violations}");
    }
}

#[test]
fn buffers_that_share_bytes_too_early_are_found() {
    // Every storage that a step writes, moved onto every other that it does not share bytes with
    // while both are in use, must be found; one that is out of use may be.
    let programs = good();
    let storages = programs[1].storages.len();
    let mut found = 0;
    for (first, second) in (0..storages).flat_map(|it| (0..storages).map(move |other| (it, other))) {
        let mut programs = programs.clone();
        let step = |it: usize| !matches!(programs[1].storages[it].kind, Kind::Weight | Kind::Input);
        if first == second || !step(first) || !step(second) {
            continue;
        }
        let meets = lives(&programs[1], first, second);
        let offset = programs[1].storages[second].offset;
        if programs[1].storages[first].offset == offset {
            continue;
        }
        programs[1].storages[first].offset = offset;
        let violations = verify(&programs);
        let reuse = |it: &crate::Violation| {
            it.place.rank == 1 && it.rule == "reuse" && it.place.instruction.is_some()
        };
        if meets {
            assert!(violations.is_err_and(|all| all.0.iter().any(reuse)), "{first} on {second}");
            found += 1;
        }
    }
    assert!(found > 4, "{found}");
}

/// Whether some instruction uses both storages, or uses one while the other still will be used.
fn lives(program: &Program, first: usize, second: usize) -> bool {
    let uses = |storage: usize| -> Vec<usize> {
        let used = |(index, it): (usize, &crate::Instruction)| {
            let all = [it.action.reads(), it.action.writes()].concat();
            all.iter().any(|it| program.buffer(*it).storage == StorageId(storage)).then_some(index)
        };
        program.instructions.iter().enumerate().filter_map(used).collect()
    };
    let (first, second) = (uses(first), uses(second));
    // What is made element by element may be made where that lies which it is made from.
    let over = |before: &[usize], after: &[usize]| {
        let elementwise = matches!(&program.instructions[after[0]].action, crate::Action::Compute(it) if program.is_elementwise(it));
        elementwise && before[before.len() - 1] == after[0]
    };
    let meet = first[0] <= second[second.len() - 1] && second[0] <= first[first.len() - 1];
    meet && !over(&first, &second) && !over(&second, &first)
}

#[test]
fn a_returned_buffer_that_is_written_over_is_found() {
    check("reuse", "rank 0, instruction", |programs| {
        let output = programs[0].outputs[1].buffer;
        let early = programs[0].instructions[0].action.writes()[0];
        programs[0].outputs[1].buffer = early;
        let type_ = programs[0].buffer(output).type_.clone();
        programs[0].buffers[early.0].type_ = type_;
    });
}

#[test]
fn memory_that_is_not_there_is_found() {
    check("place", "is outside its memory", |programs| programs[3].arena -= 64);
    check("place", "not at a cache line", |programs| {
        let buffer = programs[3].outputs[0].buffer;
        let storage = programs[3].buffer(buffer).storage;
        programs[3].storages[storage.0].offset += 4;
    });
    check("place", "at rest share bytes", |programs| {
        let storage = |port: BufferId| programs[0].buffer(port).storage;
        let (w, v) = (storage(programs[0].weights[0].buffer), storage(programs[0].weights[1].buffer));
        programs[0].storages[w.0].offset = programs[0].storages[v.0].offset;
    });
    check("reference", "rank 1, instruction 3: there is no b99", |programs| {
        let Action::Compute(compute) = &mut programs[1].instructions[3].action else {
            panic!("no operation")
        };
        compute.operands[0].buffer = BufferId(99);
    });
}

#[test]
fn sizes_that_do_not_fit_are_found() {
    check("size", "rank 0, instruction 1: b2 of f32[4,8] is given, expected 31 elements", |programs| {
        for program in programs {
            collective(program, 0).elements = 31;
        }
    });
    check("size", "larger than its storage", |programs| {
        let first = programs[0].instructions[0].action.writes()[0];
        programs[0].buffers[first.0].type_ = Type::new(DType::F32, [4, 9]);
    });
    check("type", "instruction 0: `node0` makes f32[4,8], not f32[8,4]", |programs| {
        let first = programs[0].instructions[0].action.writes()[0];
        programs[0].buffers[first.0].type_ = Type::new(DType::F32, [8, 4]);
    });
    let copied = |program: &mut Program, change: &dyn Fn(&mut crate::Strided)| {
        for instruction in &mut program.instructions {
            if let Action::Copy(copy) = &mut instruction.action {
                change(&mut copy.strided);
            }
        }
    };
    check("size", "is read beyond its end", |programs| {
        copied(&mut programs[1], &|strided| strided.start += 1000);
    });
    check("size", "is not set once", |programs| {
        copied(&mut programs[1], &|strided| strided.loops[0].count -= 1);
    });
}

#[test]
fn values_written_never_or_twice_are_found() {
    check("written-once", "rank 0, instruction 1: b2 is written, as by instruction 0 before", |programs| {
        programs[0].instructions[1] = programs[0].instructions[0].clone();
    });
    check("written-once", "is at rest and written", |programs| {
        let rest = programs[0].inputs[0].buffer;
        collective(&mut programs[0], 0).output = rest;
    });
    check("read-after-write", "rank 0, instruction 0: b2 is read, never written", |programs| {
        programs[0].instructions.remove(0);
    });
    check("read-after-write", "output `z` is never written", |programs| {
        programs[0].instructions.pop();
    });
}

#[test]
fn ports_that_do_not_fit_are_found() {
    check("port", "the pieces of `w` make", |programs| programs[0].weights[0].pieces[0][0].size = 4);
    check("port", "is none of its blocks", |programs| programs[0].weights[0].pieces[0][0].index = Some(2));
    check("port", "has pieces of", |programs| programs[0].weights[0].pieces[0][0].index = None);
    check("rank", "it is program 0 of 3, for 4 ranks", |programs| {
        programs.pop();
    });
}

#[test]
fn what_the_fullest_moment_holds_is_the_arena() {
    // Two layers: x and weights at rest; at most two activations at a time.
    let program = &lower(&two_layers(2).plan).unwrap()[0];
    let memory = program.memory();
    assert_eq!(
        memory,
        [("weight", 2 * 8 * 8 * 4), ("prepared", 0), ("input", 4 * 8 * 4), ("arena", 2 * 128)]
    );
}
