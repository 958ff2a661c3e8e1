//! Programs of pipelines: what is planted in them is found, and what is right is not.

use plan::{Arrival, Crossing, MachineName, Pipeline, Recipe, Stage};
use plan::{Loss, Precision, Proof};
use planner_ir::{Binary, Contract, Label, Layout, Mesh, Op, Optimizer, Phase, Real, StateKind};
use schedule::Kind as Order;

use super::{Sketch, f32, split};
use crate::{Action, Origin, Program, Turn, pipeline, verify};

const SGD: Optimizer = Optimizer::Sgd { decay: Real(0.0) };
const MICRO_BATCHES: u64 = 4;

fn contract(left: [u8; 2], right: [u8; 2], result: [u8; 2]) -> Op {
    let labels = |of: [u8; 2]| of.map(Label).to_vec();
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}

/// A stage `y = x w` of `[4, 8]` by `[8, 8]` on two devices, `w` in columns: the results are split,
/// what is taken is whole, and its gradient is a sum that is made before it is sent. `x` is what comes, doubled so often.
fn stage(number: usize, stages: usize, doubled: usize) -> Sketch {
    let mesh = Mesh::of_sizes(&[2]);
    let mut sketch = Sketch::training(&mesh, MICRO_BATCHES);
    let a = || vec![super::sketch_axis(&mesh)];
    let whole = || vec![vec![], vec![]];
    let columns = Layout { dims: vec![vec![], a()], owed: vec![] };
    let (first, last) = (number == 0, number + 1 == stages);
    let none = &mut |_: &_, _: &_, _: &_, _: &[_]| None;
    let x = if first { "x".to_owned() } else { format!("crossing:{}", number - 1) };
    let mut x = sketch.input(&x, f32(&[4, 8]), whole());
    let rate = sketch.input("rate", f32(&[]), vec![]);
    let w = sketch.state(StateKind::Parameter, &format!("w{number}"), f32(&[8, 8]), columns.clone());
    let g = sketch.state(StateKind::Gradient, &format!("w{number}"), f32(&[8, 8]), columns);
    let split = |sketch: &Sketch, loops, splits: &[(usize, usize)]| split(sketch, loops, splits);
    for _ in 0..doubled {
        let whole = split(&sketch, 2, &[]);
        x = sketch.node(Op::Binary(Binary::Add), &[x, x], whole)[0];
    }
    let forward = split(&sketch, 3, &[(2, 0)]);
    let y = sketch.node(contract([0, 1], [1, 2], [0, 2]), &[x, w], forward)[0];
    if !last {
        sketch.output(&format!("crossing:{number}"), y, vec![vec![], a()], none);
    }
    sketch.phase = Phase::Backward;
    let dy = if last {
        let element = split(&sketch, 2, &[(1, 0)]);
        sketch.node(Op::Binary(Binary::Add), &[y, y], element)[0]
    } else {
        sketch.input(&format!("crossing:{number}b"), f32(&[4, 8]), vec![vec![], a()])
    };
    let rows = split(&sketch, 3, &[(1, 0)]);
    let dx = sketch.node(contract([0, 1], [2, 1], [0, 2]), &[dy, w], rows)[0];
    if !first {
        sketch.output(&format!("crossing:{}b", number - 1), dx, whole(), none);
    }
    sketch.phase = Phase::Gradient;
    let columns = split(&sketch, 3, &[(2, 0)]);
    let dw = sketch.node(contract([1, 0], [1, 2], [0, 2]), &[x, dy], columns)[0];
    let element = split(&sketch, 2, &[(1, 0)]);
    let sum = sketch.node(Op::Binary(Binary::Add), &[g, dw], element.clone())[0];
    sketch.carry(g, sum, none);
    sketch.phase = Phase::Update;
    let scale = sketch.node(Op::Unary(planner_ir::Unary::Neg), &[rate], split(&sketch, 0, &[]))[0];
    let next = sketch.node(Op::Update(SGD), &[w, sum, scale, rate], element)[0];
    sketch.carry(w, next, none);
    sketch
}

/// Stages on two devices each.
pub(super) fn staged(groups: usize, chunks: usize, order: Order) -> Pipeline {
    doubling(groups, chunks, order, 0)
}

/// The same, each of which doubles what comes to it so often.
pub(super) fn doubling(groups: usize, chunks: usize, order: Order, doubled: usize) -> Pipeline {
    let stages = groups * chunks;
    let count = usize::try_from(MICRO_BATCHES).unwrap();
    let devices = 2 * u64::try_from(groups).unwrap();
    let arrival =
        |stage| Arrival { stage, strategy: "local all-gather".to_owned(), chunks: 1, bytes: 0, seconds: 0.0 };
    let crossing = |name: String, from, to| Crossing { name, from, to: vec![arrival(to)] };
    let stage = |number: usize| Stage {
        first_block: number,
        first_device: 2 * u64::try_from(number % groups).unwrap(),
        adapters: 1,
        plan: stage(number, stages, doubled).plan,
    };
    let between = |it: usize| {
        [crossing(format!("crossing:{it}"), it, it + 1), crossing(format!("crossing:{it}b"), it + 1, it)]
    };
    Pipeline {
        machine: MachineName { name: "none".to_owned(), devices, sha256: None },
        devices_per_node: 2,
        schedule: order.schedule(groups, chunks, count).unwrap(),
        stages: (0..stages).map(stage).collect(),
        crossings: (0..stages - 1).flat_map(between).collect(),
        recipe: Recipe {
            precision: Precision::F32,
            micro_batches: MICRO_BATCHES,
            ..Recipe::new(Loss::Output("loss".to_owned()), SGD)
        },
        estimate: vec![],
        memory: vec![],
        capacity: 0,
        proof: Proof::Optimal,
    }
}

pub(super) fn good(groups: usize, chunks: usize, order: Order) -> Vec<Program> {
    let programs = pipeline(&staged(groups, chunks, order)).unwrap();
    if let Err(violations) = verify(&programs) {
        panic!("{order:?}: {violations}\n{}", programs[0]);
    }
    programs
}

/// Breaks programs of two stages, and expects a violation of that rule that says all of this.
#[track_caller]
fn check(rule: &str, says: &[&str], fault: impl FnOnce(&mut Vec<Program>)) {
    let mut programs = good(2, 1, Order::Eager);
    fault(&mut programs);
    let Err(violations) = verify(&programs) else { panic!("nothing is found\n{}", programs[0]) };
    let found = violations.0.iter().any(|it| {
        let shown = it.to_string();
        it.rule == rule && says.iter().all(|part| shown.contains(part))
    });
    assert!(found, "expected [{rule}] with {says:?}, found:\n{violations}\n{}", programs[0]);
}

pub(super) fn is_send(action: &Action) -> bool {
    matches!(action, Action::Send(_))
}

fn is_receive(action: &Action) -> bool {
    matches!(action, Action::Receive(_))
}

fn find(program: &Program, is_it: impl Fn(&Action) -> bool) -> usize {
    program.instructions.iter().position(|it| is_it(&it.action)).unwrap()
}

/// What is received in an instruction.
fn received(program: &mut Program) -> &mut crate::Received {
    let place = find(program, is_receive);
    match &mut program.instructions[place].action {
        Action::Receive(it) => it,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_schedule_has_programs_that_are_right() {
    for order in Order::ALL {
        for groups in [2, 4] {
            good(groups, if order.interleaves() { 2 } else { 1 }, order);
        }
    }
}

/// In each way of travelling, what a rank lacks of a value arrives once, and the bytes are those that
/// a whole has beyond what nobody has to send: every receiver gets all that it holds.
#[test]
fn what_arrives_is_what_the_receivers_hold() {
    for strategy in crate::routes::POLICY_NAMES {
        let mut pipelined = staged(2, 1, Order::OneForwardOneBackward);
        for arrival in pipelined.crossings.iter_mut().flat_map(|it| &mut it.to) {
            arrival.strategy = strategy.to_owned();
        }
        let programs = pipeline(&pipelined).unwrap();
        verify(&programs).unwrap();
        let mut bytes = [0; 2];
        for program in &programs {
            for instruction in &program.instructions {
                let (Action::Receive(it), Origin::Crossing(crossing)) =
                    (&instruction.action, instruction.origin)
                else {
                    continue;
                };
                let came = it.parts.iter().filter(|part| part.way == crate::Way::From);
                bytes[crossing] += 4 * came.map(|part| part.strided.elements()).sum::<u64>();
            }
        }
        // f32[4, 8]: whole on both devices of stage 1, and in columns on those of stage 0.
        assert_eq!(bytes, [2 * 4 * 4 * 8, 4 * 4 * 8], "{strategy}");
    }
}

#[test]
fn an_unknown_strategy_is_said() {
    let mut pipelined = staged(2, 1, Order::GPipe);
    pipelined.crossings[0].to[0].strategy = "pigeon".to_owned();
    let error = pipeline(&pipelined).unwrap_err().to_string();
    assert!(error.contains("crossing:0") && error.contains("`pigeon`"), "{error}");
}

#[test]
fn what_is_sent_and_not_received_is_found() {
    check("crossing", &["rank 0, instruction", "to rank 2, which does not receive it"], |programs| {
        let turns = |program: &mut Program| program.repeated.as_mut().unwrap().turns.len();
        assert_eq!(turns(&mut programs[0]), 8);
        received(&mut programs[2]).parts.retain(|part| part.rank != 0);
    });
    check("waiting", &["sending to rank 2", "waits forever"], |programs| {
        received(&mut programs[2]).parts.retain(|part| part.rank != 0);
    });
}

#[test]
fn what_is_received_and_not_sent_is_found() {
    let silent = |programs: &mut Vec<Program>| {
        let place = find(&programs[0], is_send);
        let Action::Send(sent) = &mut programs[0].instructions[place].action else { unreachable!() };
        sent.parts.clear();
    };
    check("crossing", &["rank 2, instruction", "from rank 0, which does not send it"], silent);
    check("waiting", &["receiving from rank 0", "waits forever"], silent);
}

#[test]
fn elements_received_twice_or_not_at_all_are_found() {
    check("size", &["rank 2, instruction", "received twice"], |programs| {
        let received = received(&mut programs[2]);
        let came = received.parts.iter().position(|part| part.way == crate::Way::From).unwrap();
        let again = received.parts[came].clone();
        received.parts.push(again);
    });
    check("size", &["rank 2, instruction", "received not at all"], |programs| {
        received(&mut programs[2]).parts.pop();
    });
    check("size", &["rank 2, instruction", "beyond its end"], |programs| {
        received(&mut programs[2]).parts[0].strided.start += 1000;
    });
    check("size", &["rank 2, instruction", "beyond its end"], |programs| {
        received(&mut programs[2]).parts[0].rank = 4;
    });
}

#[test]
fn passing_on_before_arrival_is_found() {
    check("size", &["rank 2, instruction", "passed on before they come"], |programs| {
        let parts = &mut received(&mut programs[2]).parts;
        let on = parts.iter().position(|part| part.way == crate::Way::To).unwrap();
        let first = parts.remove(on);
        parts.insert(0, first);
    });
}

#[test]
fn a_place_too_few_is_found() {
    let mut most = 0;
    for rank in 0..8 {
        let programs = good(4, 1, Order::Eager);
        for storage in 0..programs[rank].storages.len() {
            let mut programs = programs.clone();
            let places = &mut programs[rank].storages[storage].places;
            if *places == 1 {
                continue;
            }
            most = most.max(*places);
            *places -= 1;
            let violations = verify(&programs).unwrap_err();
            let says = format!("storage {storage} ");
            let named = |it: &crate::Violation| it.rule == "places" && it.message.contains(&says);
            let found = violations.0.iter().any(|it| u64::try_from(rank) == Ok(it.place.rank) && named(it));
            assert!(found, "rank {rank}, storage {storage}: {violations}");
        }
    }
    assert!(most > 2, "{most} places");
}

#[test]
fn ranks_of_a_stage_that_take_other_turns_are_found() {
    check("crossing", &["from rank 3", "of micro-batch 0", "of micro-batch 1"], |programs| {
        let turns = &mut programs[3].repeated.as_mut().unwrap().turns;
        let of = |turns: &[Turn], micro_batch| {
            turns.iter().position(|it| *it == Turn { part: 1, micro_batch }).unwrap()
        };
        let (first, second) = (of(turns, 0), of(turns, 1));
        turns.swap(first, second);
    });
    check("repetition", &["rank 0", "7 turns are done, expected 8"], |programs| {
        programs[0].repeated.as_mut().unwrap().turns.pop();
    });
    check("repetition", &["rank 0"], |programs| {
        let turns = &mut programs[0].repeated.as_mut().unwrap().turns;
        let first = turns[0];
        turns.push(first);
    });
    check("repetition", &["rank 0"], |programs| {
        programs[0].repeated.as_mut().unwrap().turns[0] = Turn { part: 7, micro_batch: 0 };
    });
}

/// A part that nobody waits for: without it, a gradient would be less than it is.
#[test]
fn turns_that_are_left_out_or_too_early_are_found() {
    let found = |change: &dyn Fn(&mut Vec<Turn>)| {
        let mut programs = good(2, 1, Order::ZeroBubbleH1);
        change(&mut programs[0].repeated.as_mut().unwrap().turns);
        verify(&programs).unwrap_err().to_string()
    };
    let weights = |turns: &[Turn]| turns.iter().position(|it| it.part == 2).unwrap();
    let less = found(&|turns| {
        turns.remove(weights(turns));
    });
    assert!(less.contains("rank 0: 11 turns are done, expected 12"), "{less}");
    let again = found(&|turns| {
        let one = turns[weights(turns)];
        turns.push(one);
    });
    assert!(again.contains("comes again [repetition]"), "{again}");
    let early = found(&|turns| {
        let first = turns.remove(weights(turns));
        turns.insert(0, first);
    });
    assert!(early.contains("comes before the part before it [repetition]"), "{early}");
}

/// Stage 0 waits for a gradient before it has sent what that is of.
#[test]
fn stages_that_wait_for_each_other_are_found() {
    let cycle = |programs: &mut Vec<Program>| {
        for program in &mut programs[..2] {
            let turns = &mut program.repeated.as_mut().unwrap().turns;
            turns.reverse();
        }
    };
    check("waiting", &["rank 0, instruction", "receiving from rank 2", "rank 2, instruction"], cycle);
}

/// Ranks of a stage that do what they do together in different parts.
#[test]
fn collectives_swapped_across_parts_are_found() {
    check("collective-order", &["instruction"], |programs| {
        for stage in [2, 3] {
            assert!(programs[stage].instructions.iter().any(|it| it.action.communicator().is_some()));
        }
        let program = &mut programs[3];
        let parts = &mut program.repeated.as_mut().unwrap().parts;
        let (forward, backward) = (parts[0].instructions.clone(), parts[1].instructions.clone());
        parts[0].instructions = forward.start..backward.end - 1;
        parts[1].instructions = backward.end - 1..backward.end;
    });
}

/// Random turns of two parts: no two micro-batches have the same place between their first and their
/// last turn, and one place less would give two that are there at the same time the same one, if all
/// between them are there too.
#[test]
fn windows_are_right_and_no_wider_than_they_have_to_be() {
    /// Whether with so many places each micro-batch keeps its own.
    fn keeps(turns: &[Turn], places: u64) -> bool {
        let mut live: Vec<u64> = Vec::new();
        turns.iter().all(|turn| {
            if turn.part == 0 {
                live.push(turn.micro_batch);
            }
            let mut taken: Vec<u64> = live.iter().map(|it| it % places).collect();
            taken.sort_unstable();
            let apart = taken.windows(2).all(|pair| pair[0] != pair[1]);
            if turn.part == 2 {
                live.retain(|&it| it != turn.micro_batch);
            }
            apart
        })
    }
    let mut in_order = 0;
    arbtest::arbtest(|u| {
        let count = u.int_in_range(1..=6_u64)?;
        let mut waiting: Vec<u64> = (0..count).collect();
        let (mut open, mut turns): (Vec<u64>, Vec<Turn>) = (Vec::new(), Vec::new());
        let (mut contiguous, orderly) = (true, u.arbitrary()?);
        while !waiting.is_empty() || !open.is_empty() {
            let starts = open.is_empty() || !waiting.is_empty() && u.arbitrary()?;
            let from = if starts { &mut waiting } else { &mut open };
            let place = if orderly { 0 } else { u.choose_index(from.len())? };
            let micro_batch = from.remove(place);
            if starts {
                open.push(micro_batch);
            }
            turns.push(Turn { part: if starts { 0 } else { 2 }, micro_batch });
            // What other parts do does not count.
            turns.push(Turn { part: 1, micro_batch });
            let ends = open.iter().min().zip(open.iter().max());
            contiguous &= ends.is_none_or(|(a, b)| usize::try_from(b - a + 1) == Ok(open.len()));
        }
        let places = crate::rings::window(&turns, 0, 2);
        assert!(keeps(&turns, places), "{places} places: {turns:?}");
        if contiguous {
            in_order += 1;
            assert!(places == 1 || !keeps(&turns, places - 1), "{places} places: {turns:?}");
        }
        Ok(())
    })
    .budget_ms(500);
    assert!(in_order > 10);
}

/// A group has as many places for what a chunk keeps as its schedule holds micro-batches at once: those
/// of schedules with names follow each other.
#[test]
fn places_are_as_many_as_schedules_hold() {
    for kind in Order::ALL {
        for groups in 1..=3_usize {
            let chunks = if kind.interleaves() { 2 } else { 1 };
            let schedule = kind.schedule(groups, chunks, 6).unwrap();
            let verified = schedule::verify(schedule, groups * chunks, 6).unwrap();
            let live = schedule::live(&verified);
            let works = verified.schedule().works().len();
            for (group, live) in live.iter().enumerate() {
                let turns = crate::pipeline::turns(verified.schedule(), group).unwrap();
                for (chunk, &held) in live.chunks.iter().enumerate() {
                    let (first, last) = (chunk * works, chunk * works + works - 1);
                    let places = crate::rings::window(&turns, first, last);
                    assert_eq!(usize::try_from(places), Ok(held), "{kind} {groups} {group} {chunk}");
                }
            }
        }
    }
}
