//! Rules of messages, and of buffers that are put together, that are broken are found.

use super::sketch::Sketch;
use super::temporal::product;
use crate::{Action, CollectiveKind, Direction, Message, Program, Violation, lower, verify};

/// Weights rotate, and results are put together of columns.
fn rotated() -> Sketch {
    product(&[3], [3, 2, 6], "3 steps [a,-,(a-@t:3)]")
}

/// Both operands rotate, along different axes.
fn square() -> Sketch {
    product(&[2, 2], [4, 4, 4], "2 steps [a,(a+b+@t:2),b]")
}

/// Both operands rotate along one axis, in blocks of one size.
fn together() -> Sketch {
    product(&[3], [3, 3, 3], "3 steps [-,(a+@t:3),-]")
}

/// Results are reduced to one device after another.
fn streamed() -> Sketch {
    product(&[2, 2], [4, 4, 4], "2 steps [a,b,(@t:2)] streams a,b")
}

/// Breaks programs and expects a violation of that rule that says this.
fn check(sketch: &Sketch, rule: &str, says: &str, fault: impl FnOnce(&mut Vec<Program>)) {
    let mut programs = lower(&sketch.plan).unwrap();
    verify(&programs).unwrap();
    fault(&mut programs);
    let violations = verify(&programs).unwrap_err();
    let found = violations.0.iter().any(|it| it.rule == rule && it.to_string().contains(says));
    assert!(found, "expected [{rule}] with `{says}`, found:\n{violations}\n{}", programs[1]);
}

/// The instructions that are messages.
fn messages(program: &Program) -> Vec<usize> {
    let is_message = |&it: &usize| matches!(program.instructions[it].action, Action::Message(_));
    (0..program.instructions.len()).filter(is_message).collect()
}

fn message(program: &mut Program, number: usize) -> &mut Message {
    let at = messages(program)[number];
    match &mut program.instructions[at].action {
        Action::Message(message) => message,
        other => panic!("{other:?}"),
    }
}

/// The copies that put parts in their places.
fn puts(program: &Program) -> Vec<usize> {
    let puts = |&it: &usize| matches!(&program.instructions[it].action, Action::Copy(copy) if copy.direction == crate::Direction::Put);
    (0..program.instructions.len()).filter(puts).collect()
}

/// Without any one of its events a slot is used again before it has been sent, or read, or what
/// has been received is read too early.
#[test]
fn every_event_is_needed() {
    let over = [over(), travelling_over(), both_ways_over()];
    for sketch in
        [rotated(), square(), together(), streamed(), travelling(), both_ways()].into_iter().chain(over)
    {
        let good = lower(&sketch.plan).unwrap();
        let all: Vec<(usize, usize)> = good[1]
            .instructions
            .iter()
            .enumerate()
            .flat_map(|(index, it)| (0..it.waits.len()).map(move |wait| (index, wait)))
            .collect();
        assert!(!all.is_empty());
        for (index, wait) in all {
            let mut programs = good.clone();
            programs[1].instructions[index].waits.remove(wait);
            let violations = verify(&programs).expect_err(&format!("{index} {}", good[1]));
            let named =
                |it: &Violation| it.place.rank == 1 && ["read-after-write", "reuse"].contains(&it.rule);
            assert!(violations.0.iter().any(named), "{violations}");
        }
    }
}

/// Sums that travel.
fn travelling() -> Sketch {
    product(&[4], [8, 4, 8], "4 steps [(a+@t+1:4),a,-]")
}

/// Half of each block of weights goes the other way.
fn both_ways() -> Sketch {
    product(&[3], [3, 2, 12], "3 steps both ways [a,-,(a-@t:3)]")
}

/// Weights rotate in one slot.
fn over() -> Sketch {
    product(&[4], [4, 4, 16], "4 steps in place [a,-,(a-@t:4)]")
}

/// Sums travel in one slot, in which addends are added to them.
fn travelling_over() -> Sketch {
    product(&[4], [8, 4, 8], "4 steps in place [(a+@t+1:4),a,-]")
}

/// Halves of weights, in one slot each.
fn both_ways_over() -> Sketch {
    product(&[3], [3, 2, 12], "3 steps both ways in place [a,-,(a-@t:3)]")
}

/// The instructions that copy chunks of what goes one way, in one direction.
fn chunks(program: &Program, direction: Direction) -> Vec<usize> {
    let of = |&it: &usize| {
        let instruction = &program.instructions[it];
        let moves = matches!(instruction.origin, crate::Origin::Motion { .. })
            && instruction.stream == crate::Stream::Communication;
        moves && matches!(&instruction.action, Action::Copy(copy) if copy.direction == direction)
    };
    (0..program.instructions.len()).filter(of).collect()
}

/// A chunk that comes before the one that lay there was sent; a block that comes over one that is
/// worked on; an addend that is added where another lies.
#[test]
fn what_comes_over_something_that_is_in_use_is_found() {
    for sketch in [over(), travelling_over(), both_ways_over()] {
        check(&sketch, "reuse", "rank 1", |programs| {
            // The first that comes is put where the second lies, which has not gone.
            let [first, second] = [0, 1].map(|number| chunks(&programs[1], Direction::Put)[number]);
            let strided = |program: &Program, at: usize| match &program.instructions[at].action {
                Action::Copy(copy) => copy.strided.clone(),
                other => panic!("{other:?}"),
            };
            let both = [strided(&programs[1], first), strided(&programs[1], second)];
            for (at, other) in [(first, 1), (second, 0)] {
                if let Action::Copy(copy) = &mut programs[1].instructions[at].action {
                    copy.strided = both[other].clone();
                }
            }
        });
        check(&sketch, "reuse", "rank 1", |programs| {
            // What goes is another chunk than the one that another comes over.
            let [first, second] = [0, 1].map(|number| chunks(&programs[1], Direction::Take)[number]);
            let start = match &programs[1].instructions[second].action {
                Action::Copy(copy) => copy.strided.start,
                other => panic!("{other:?}"),
            };
            if let Action::Copy(copy) = &mut programs[1].instructions[first].action {
                copy.strided.start = start;
            }
            if let Action::Copy(copy) = &mut programs[1].instructions[second].action {
                copy.strided.start = 0;
            }
        });
    }
    check(&over(), "reuse", "rank 1", |programs| {
        let first = chunks(&programs[1], Direction::Take)[0];
        programs[1].instructions[first].waits.clear();
    });
    check(&travelling_over(), "reuse", "rank 1", |programs| {
        let added = |it: &crate::Instruction| matches!(&it.action, Action::Compute(it) if *it.op == planner_ir::Op::Binary(planner_ir::Binary::Add));
        let at = programs[1].instructions.iter().position(added).unwrap();
        if let Action::Compute(compute) = &mut programs[1].instructions[at].action {
            compute.op = std::sync::Arc::new(super::temporal::contract("ab", "ab", "ab"));
        }
    });
}

#[test]
fn exchanges_of_a_communicator_on_two_streams_are_found() {
    check(&both_ways(), "stream", "it is of c0 on stream contrary, others on communication", |programs| {
        for program in programs {
            let of = message(program, 0).communicator;
            (0..messages(program).len()).for_each(|it| message(program, it).communicator = of);
        }
    });
}

#[test]
fn halves_that_come_from_the_wrong_side_are_found() {
    let says = "rank 0, instruction 3: it gives to ranks [2], and ranks [1, 2] get from it";
    check(&both_ways(), "message", says, |programs| {
        let own = messages(&programs[1]);
        let forth = message(&mut programs[1], 0).from;
        let back = own.iter().position(|&it| programs[1].instructions[it].stream == crate::Stream::Contrary);
        message(&mut programs[1], back.unwrap()).from = forth;
    });
}

#[test]
fn a_slot_that_is_received_into_while_it_is_used_is_found() {
    // The second block is received where the first one is still sent from, and computed on.
    check(&travelling(), "reuse", "rank 1", |programs| {
        let [input, output] = [message(&mut programs[1], 1).input, message(&mut programs[1], 1).output];
        let storage = |buffer: crate::BufferId| programs[1].buffer(buffer).storage.0;
        let (from, to) = (storage(input), storage(output));
        programs[1].storages[to].offset = programs[1].storages[from].offset;
    });
}

#[test]
fn a_message_without_a_receiver_or_a_sender_is_found() {
    check(
        &rotated(),
        "message",
        "rank 1, instruction 0: it gives to ranks [], and ranks [2] get from it",
        |programs| {
            message(&mut programs[1], 0).to.clear();
        },
    );
    check(&rotated(), "message", "it gives to ranks [0, 2], and ranks [2] get from it", |programs| {
        message(&mut programs[1], 0).to.insert(0, 0);
    });
    check(&rotated(), "message", "rank 7 is not in c0", |programs| message(&mut programs[2], 1).from = 7);
}

#[test]
fn a_message_from_another_rank_is_found() {
    check(
        &rotated(),
        "message",
        "rank 1, instruction 0: it gives to ranks [2], and ranks [] get from it",
        |programs| {
            message(&mut programs[2], 0).from = 0;
        },
    );
    // Its own block instead.
    check(&rotated(), "message", "rank 1, instruction 0: it gives to ranks [2]", |programs| {
        message(&mut programs[2], 0).from = 2
    });
}

#[test]
fn messages_of_other_sizes_are_found() {
    check(&rotated(), "size", "f32[2,2] is given and f32[2,1] gotten", |programs| {
        let output = message(&mut programs[1], 0).output;
        programs[1].buffers[output.0].type_ = super::f32(&[2, 1]);
    });
    check(&travelling(), "collective-order", "message of 15 f32", |programs| {
        let Message { input, output, .. } = message(&mut programs[1], 0).clone();
        for buffer in [input, output] {
            programs[1].buffers[buffer.0].type_ = super::f32(&[15]);
        }
    });
}

#[test]
fn a_step_that_one_rank_leaves_out_is_found() {
    check(&rotated(), "collective-order", "rank 1: c0 never enters message of 4 f32", |programs| {
        let last = messages(&programs[1])[1];
        programs[1].instructions.remove(last);
    });
}

#[test]
fn messages_in_another_order_are_found() {
    // Of two communicators, in which ranks would wait for each other for ever.
    for rule in ["acyclic-overlapped", "acyclic-serial"] {
        check(&square(), rule, "of rank", |programs| {
            for program in [0, 3] {
                let at = messages(&programs[program]);
                programs[program].instructions.swap(at[0], at[1]);
            }
        });
    }
    // Of one, in which they would get the other block.
    check(&together(), "collective-order", "of 3 f32 for operand 1 of node 0 at time 1", |programs| {
        let at = messages(&programs[1]);
        programs[1].instructions.swap(at[0], at[1]);
    });
}

#[test]
fn parts_that_are_never_written_or_twice_are_found() {
    check(&rotated(), "written-once", "of 3 parts of", |programs| {
        let at = puts(&programs[1]);
        programs[1].instructions.remove(at[1]);
    });
    let moved = |programs: &mut Vec<Program>, change: &dyn Fn(&mut crate::Strided)| {
        let at = puts(&programs[1])[1];
        if let Action::Copy(copy) = &mut programs[1].instructions[at].action {
            change(&mut copy.strided);
        }
    };
    check(&rotated(), "written-once", "is written, as by instruction", |programs| {
        let first = puts(&programs[1])[0];
        let Action::Copy(first) = programs[1].instructions[first].action.clone() else { panic!("no copy") };
        moved(programs, &|strided| strided.start = first.strided.start);
    });
    check(&rotated(), "written-once", "is set in parts that are none", |programs| {
        moved(programs, &|strided| strided.start = 1);
    });
    check(&rotated(), "written-once", "is set in parts that are none", |programs| {
        let first = puts(&programs[1])[0];
        if let Action::Copy(copy) = &mut programs[1].instructions[first].action {
            copy.strided.start = 1;
        }
    });
    check(&rotated(), "size", "is written beyond its end", |programs| {
        moved(programs, &|strided| strided.start = 6);
    });
}

#[test]
fn results_that_no_rank_or_the_wrong_one_gets_are_found() {
    let change = |from: usize, to: usize| {
        move |programs: &mut Vec<Program>| {
            for instruction in programs.iter_mut().flat_map(|it| &mut it.instructions) {
                if let Action::Collective(it) = &mut instruction.action
                    && it.kind == CollectiveKind::Reduce(from)
                {
                    it.kind = CollectiveKind::Reduce(to);
                }
            }
        }
    };
    check(&streamed(), "written-once", "rank 1, instruction", change(1, 0));
    check(&streamed(), "written-once", "rank 0, instruction", change(1, 0));
    check(&streamed(), "size", "has no member 2", change(1, 2));
}
