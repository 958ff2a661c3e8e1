//! Programs of operations in time steps.

use expect_test::expect;
use planner_ir::{Contract, Label, Mesh, Op, parse_partition};

use super::{f32, programs};
use crate::arena::lifetimes;
use crate::build::placed;
use crate::facts::Facts;
use crate::happens::Happens;
use crate::tests::sketch::Sketch;
use crate::{Action, BufferId, Message, Moving, Origin, Program, Stream};

pub(super) fn contract(left: &str, right: &str, result: &str) -> Op {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}

/// A product of m by k and k by n, partitioned as the text says.
pub(super) fn product(sizes: &[u64], [m, k, n]: [u64; 3], text: &str) -> Sketch {
    let mesh = Mesh::of_sizes(sizes);
    let mut sketch = Sketch::new(&mesh);
    let partition = parse_partition(&mesh, text).unwrap();
    let op = contract("mk", "kn", "mn");
    let types = [f32(&[m, k]), f32(&[k, n])];
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let [x, w] = types;
    let x = sketch.input("x", x, partition.operand(&loops, 0).dims);
    let w = sketch.weight("w", w, partition.operand(&loops, 1).dims);
    let made = partition.result(&loops, 0);
    let y = sketch.node(op, &[x, w], partition)[0];
    sketch.output("y", y, made.dims, &mut |_, _, _, _| None);
    sketch
}

#[test]
fn weights_rotate_while_a_step_is_computed() {
    let sketch = product(&[3], [3, 2, 6], "3 steps [a,-,(a-@t:3)]");
    expect![[r#"
        rank 1 of 3
        resident 128 bytes, arena 256 bytes
        communicator c0 of ranks [0, 1, 2]
        b0: f32[1,2] input in resident 0..8
        b1: f32[2,2] weight in resident 64..80
        b2: f32[2,2] communication in arena 0..16
        b3: f32[1,2] activation in arena 64..72
        b4: f32[1,6] output in arena 128..152
        b5: f32[2,2] communication in arena 64..80
        b6: f32[1,2] activation in arena 192..200
        b7: f32[1,2] activation in arena 0..8
        input `x` f32[3,2] pieces [1/3.1, 2] -> b0
        weight `w` f32[2,6] pieces [2, 1/3.2] -> b1
        0: communication message c0 b1 to [2] and from 0 -> b2 for operand 1 of node 0 at time 1 signals e0
        1: compute `node0` Contract(b0[0/3,0/2], b1[0/2,0/6]) -> b3[0/3,0/6] for node 0
        2: compute copy b3 -> b4 put from 2 2x(1->1) for node 0 signals e1
        3: communication message c0 b2 to [2] and from 0 -> b5 for operand 1 of node 0 at time 2 after e1 signals e2
        4: compute `node0` Contract(b0[0/3,0/2], b2[0/2,0/6]) -> b6[0/3,0/6] for node 0 after e0
        5: compute copy b6 -> b4 put from 0 2x(1->1) for node 0
        6: compute `node0` Contract(b0[0/3,0/2], b5[0/2,0/6]) -> b7[0/3,0/6] for node 0 after e2
        7: compute copy b7 -> b4 put from 4 2x(1->1) for node 0
        b4 -> output `y` f32[3,6] pieces [1/3.1, 6]
    "#]]
    .assert_eq(&programs(&sketch)[1].to_string());
}

#[test]
fn halves_go_both_ways_at_once() {
    for (text, of) in [
        ("4 steps both ways [a,-,(a-@t:4)]", Moving::Operand(1)),
        ("4 steps both ways [a,(a-@t:4),-]", Moving::Operand(1)),
        ("4 steps both ways [(a+@t:4),-,a]", Moving::Operand(0)),
        ("4 steps both ways [(a+@t+1:4),a,-]", Moving::Result(0)),
    ] {
        let program = &programs(&product(&[4], [24, 24, 24], text))[1];
        let happens = Happens::of(program);
        let messages: Vec<(usize, u64, Stream, &Message)> = (0..program.instructions.len())
            .filter_map(|at| {
                let it = &program.instructions[at];
                match (&it.action, it.origin) {
                    (Action::Message(message), Origin::Motion { time, moving, .. }) if moving == of => {
                        Some((at, time, it.stream, message))
                    }
                    _ => None,
                }
            })
            .collect();
        assert_eq!(messages.len(), 6, "{program}");
        for time in 1..4 {
            let at: Vec<_> = messages.iter().filter(|it| it.1 == time).collect();
            let [(one, _, Stream::Communication, forth), (other, _, Stream::Contrary, back)] = at[..] else {
                panic!("{program}");
            };
            // To and from different neighbours, half a block each, and neither waits for the other.
            assert!(forth.to == [back.from] && back.to == [forth.from], "{program}");
            let [size, half] = [forth, back].map(|it| program.buffer(it.input).type_.elements());
            assert!(size == half && 2 * half == 24 * 24 / 4, "{program}");
            assert!(!happens.before(*one, *other) && !happens.before(*other, *one), "{program}");
        }
    }
}

#[test]
fn sums_travel_while_the_next_addend_is_computed() {
    let sketch = product(&[2], [2, 4, 3], "2 steps [(a+@t+1:2),a,-]");
    expect![[r#"
        rank 0 of 2
        resident 128 bytes, arena 256 bytes
        communicator c0 of ranks [0, 1]
        b0: f32[2,2] input in resident 0..16
        b1: f32[2,3] weight in resident 64..88
        b2: f32[1,2] activation in arena 0..8
        b3: f32[1,3] activation in arena 64..76
        b4: f32[1,3] communication in arena 0..12
        b5: f32[1,2] activation in arena 128..136
        b6: f32[1,3] activation in arena 192..204
        b7: f32[1,3] output in arena 64..76
        input `x` f32[2,4] pieces [2, 0/2.2] -> b0
        weight `w` f32[4,3] pieces [0/2.2, 3] -> b1
        0: compute copy b0 -> b2 from 2 2x(1->1) for node 0
        1: compute `node0` Contract(b2[0/2,0/4], b1[0/4,0/3]) -> b3[0/2,0/3] for node 0 signals e0
        2: communication message c0 b3 to [1] and from 1 -> b4 for result 0 of node 0 at time 1 after e0 signals e1
        3: compute copy b0 -> b5 from 0 2x(1->1) for node 0
        4: compute `node0` Contract(b5[0/2,0/4], b1[0/4,0/3]) -> b6[0/2,0/3] for node 0
        5: compute `node0` Add(b4, b6) -> b7 for node 0 after e1
        b7 -> output `y` f32[2,3] pieces [0/2.1, 3]
    "#]]
    .assert_eq(&programs(&sketch)[0].to_string());
}

#[test]
fn blocks_are_given_out_and_reduced_in_groups() {
    let sketch = product(&[2, 2], [2, 2, 2], "2 steps [a,b,(@t:2)] streams a,b");
    expect![[r#"
        rank 2 of 4
        resident 128 bytes, arena 256 bytes
        communicator c0 of ranks [0, 2]
        communicator c1 of ranks [2, 3]
        b0: f32[1,1] input in resident 0..4
        b1: f32[1,1] weight in resident 64..68
        b2: f32[1,1] communication in arena 0..4
        b3: f32[1,1] communication in arena 64..68
        b4: f32[1,1] activation in arena 128..132
        b5: f32[1,1] output in arena 0..4
        b6: f32[1,1] activation in arena 192..196
        input `x` f32[2,2] pieces [1/2.1, 0/2.1] -> b0
        weight `w` f32[2,2] pieces [0/2.1, 1/2.1] -> b1
        0: communication broadcast of member 0 c0 of 1 f32 b1 -> b2 for operand 1 of node 0 at time 0 signals e0
        1: communication broadcast of member 1 c0 of 1 f32 b1 -> b3 for operand 1 of node 0 at time 1 signals e1
        2: compute `node0` Contract(b0[0/2,0/2], b2[0/2,0/2]) -> b4[0/2,0/2] for node 0 after e0 signals e2
        3: communication reduce of member 0 c1 of 1 f32 b4 -> b5 for result 0 of node 0 at time 0 after e2
        4: compute `node0` Contract(b0[0/2,0/2], b3[0/2,0/2]) -> b6[0/2,0/2] for node 0 after e1 signals e3
        5: communication reduce of member 1 c1 of 1 f32 b6 -> b5 for result 0 of node 0 at time 1 after e3
        b5 -> output `y` f32[2,2] pieces [1/2.1, 0/2.1]
    "#]]
    .assert_eq(&programs(&sketch)[2].to_string());
}

#[test]
fn what_moves_for_a_step_moves_while_the_one_before_is_computed() {
    for (sizes, text) in [
        (vec![4], "4 steps [a,-,(a-@t:4)]"),
        (vec![4], "4 steps [(a+@t+1:4),a,-]"),
        (vec![4], "4 steps [(a+@t:4),-,a]"),
        (vec![3, 3], "3 steps [a,(a+b+@t:3),b]"),
        (vec![3, 3], "3 steps [a,(@t:3),b] streams a,b"),
        (vec![3, 3], "3 steps [a,b,(@t:3)] streams a,b"),
    ] {
        let program = &programs(&product(&sizes, [24, 24, 24], text))[0];
        let happens = Happens::of(program);
        let products = (0..program.instructions.len()).filter(|&it| {
            matches!(&program.instructions[it].action, Action::Compute(it) if matches!(*it.op, Op::Contract(_)))
        });
        let mut overlapped = 0;
        for (time, product) in (0..).zip(products) {
            for (index, it) in program.instructions.iter().enumerate() {
                let reduced = matches!(&it.action, Action::Collective(it) if it.kind.name() == "reduce");
                let next = match it.origin {
                    // Operands go ahead of their step, sums go along with it, or are made after it.
                    Origin::Motion { time: of, .. } if reduced => of + 1 == time,
                    Origin::Motion { moving: Moving::Operand(_), time: of, .. } => of == time + 1,
                    Origin::Motion { moving: Moving::Result(_), time: of, .. } => of == time,
                    _ => false,
                };
                if next {
                    let apart = !happens.before(index, product) && !happens.before(product, index);
                    assert!(apart, "{index} and {product}\n{program}");
                    overlapped += 1;
                }
            }
        }
        assert!(overlapped > 1, "{program}");
    }
}

/// How many of the places in which something of an operand or result moves are in use at once.
fn slots(program: &Program, of: Moving) -> usize {
    let mut buffers: Vec<BufferId> = Vec::new();
    for instruction in &program.instructions {
        if matches!(instruction.origin, Origin::Motion { moving, .. } if moving == of) {
            buffers.extend(instruction.action.writes());
            buffers.extend(instruction.action.reads());
        }
    }
    let lifetimes = lifetimes(program);
    let lives = |moment: usize| {
        let mut storages: Vec<usize> = buffers.iter().map(|it| program.buffer(*it).storage.0).collect();
        storages.sort_unstable();
        storages.dedup();
        let live = |it: &&usize| lifetimes[**it].is_some_and(|it| it.first <= moment && moment <= it.last);
        storages.iter().filter(live).count()
    };
    (0..program.instructions.len()).map(lives).max().unwrap_or(0)
}

#[test]
fn two_slots_suffice_for_each_that_moves() {
    let [x, w, y] = [Moving::Operand(0), Moving::Operand(1), Moving::Result(0)];
    let cases = |s: u64| {
        [
            (vec![s], "[a,-,(a-@t:s)]", vec![w]),
            (vec![s], "[a,(a-@t:s),-]", vec![w]),
            (vec![s], "[(a+@t:s),-,a]", vec![x]),
            (vec![s], "[(a+@t+1:s),a,-]", vec![y]),
            (vec![s, s], "[a,(a+b+@t:s),b]", vec![x, w]),
            (vec![s, s], "[a,(@t:s),b] streams a,b", vec![x, w]),
        ]
    };
    for s in 2..=8 {
        for (sizes, text, moving) in cases(s) {
            let text = format!("{s} steps {}", text.replace(":s", &format!(":{s}")));
            // Blocks of which no two kinds are equally large.
            let plan = product(&sizes, [16 * s, 32 * s, 48 * s], &text).plan;
            let program = &placed(&plan, &Facts::of(&plan).unwrap(), 0).unwrap().program;
            for of in moving {
                let slots = slots(program, of);
                assert!(slots <= 2, "{slots} slots of {of:?}\n{program}");
                assert!(s == 2 || slots == 2, "{slots} slots of {of:?}\n{program}");
            }
        }
    }
}

/// What the places take at most in which something of an operand or result moves (bytes), with what
/// is computed there if it travels.
fn moving(program: &Program, of: Moving) -> u64 {
    let mut storages: Vec<usize> = Vec::new();
    for it in program
        .instructions
        .iter()
        .filter(|it| matches!(it.origin, Origin::Motion { moving, .. } if moving == of))
    {
        let buffers = it.action.writes().into_iter().chain(it.action.reads());
        storages.extend(buffers.map(|it| program.lowest(program.buffer(it).storage).0));
    }
    storages.sort_unstable();
    storages.dedup();
    let lifetimes = lifetimes(program);
    let live =
        |moment: usize, it: &usize| lifetimes[*it].is_some_and(|it| it.first <= moment && moment <= it.last);
    let at = |moment: usize| {
        storages.iter().filter(|it| live(moment, it)).map(|it| program.storages[*it].bytes).sum()
    };
    (0..program.instructions.len()).map(at).max().unwrap_or(0)
}

/// A block and two chunks of it, in as many ways as there are, where two blocks would be.
#[test]
fn one_slot_and_two_chunks_suffice_for_what_comes_over_another() {
    let [x, w, y] = [Moving::Operand(0), Moving::Operand(1), Moving::Result(0)];
    for (s, ways) in (3..=8).flat_map(|s| ["", "both ways "].map(|ways| (s, ways))) {
        let block = 16 * s * 48 * 4;
        for (text, of) in
            [("[a,-,(a-@t:s)]", w), ("[a,(a-@t:s),-]", w), ("[(a+@t:s),-,a]", x), ("[(a+@t+1:s),a,-]", y)]
        {
            let bytes = |slots: &str| {
                let text = format!("{s} steps {ways}{slots}{}", text.replace(":s", &format!(":{s}")));
                let extents = match of {
                    Moving::Operand(0) => [16 * s, 48, s],
                    Moving::Operand(_) if text.contains("-,(a") => [s, 48, 16 * s],
                    Moving::Operand(_) => [s, 16 * s, 48],
                    Moving::Result(_) => [16 * s, s, 48],
                };
                let plan = product(&[s], extents, &text).plan;
                let program = &placed(&plan, &Facts::of(&plan).unwrap(), 0).unwrap().program;
                assert_eq!(program.storages.iter().any(|it| it.over.is_some()), !slots.is_empty());
                moving(program, of)
            };
            assert_eq!(s * bytes("in place "), block + 2 * block / 8, "{text} {ways}");
            assert_eq!(s * bytes(""), 2 * block, "{text} {ways}");
        }
    }
}

#[test]
fn more_steps_take_no_more_memory() {
    // Blocks of the same size, whatever the ring.
    for text in ["[a,(a-@t:s),-]", "[(a+@t+1:s),a,-]"] {
        let arena = |s: u64| {
            let text = format!("{s} steps {}", text.replace(":s", &format!(":{s}")));
            let plan = product(&[s], [16 * s, 16 * s, 16], &text).plan;
            placed(&plan, &Facts::of(&plan).unwrap(), 0).unwrap().program.arena
        };
        assert_eq!(arena(4), arena(8), "{text}");
    }
}
