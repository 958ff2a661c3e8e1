//! Ranks taken together and apart.

use arbtest::arbtest;
use cost_models::cluster::Cluster;
use cost_models::machine::shipped;
use cost_models::topology::Topology;
use lower::{Action, Alike, CollectiveKind, Program, Received, Remote, Sent, Stream, Strided, Way};

use super::same;
use super::script::Script;
use crate::classes::refined;
use crate::clock;
use crate::crossings::alike;
use crate::precedence::Order;
use crate::ranks::Ranks;
use crate::symmetry::{Telling, symmetry};
use crate::unroll::Unrolling;

/// For each rank when it is done, and how many classes there are.
fn ends(alike: &Alike, name: &str, telling: Telling) -> (Vec<f64>, usize) {
    let cluster = Cluster::of(shipped::named(name).unwrap());
    ends_of(&Ranks::alike(alike, &cluster), &cluster, telling)
}

fn ends_of(ranks: &Ranks<'_>, cluster: &Cluster, telling: Telling) -> (Vec<f64>, usize) {
    let symmetry = symmetry(ranks, &Topology::of_cluster(cluster), telling).unwrap();
    let order = Order::Streams;
    let unrolled = Unrolling { ranks, cluster, order, symmetry: &symmetry }.schedule();
    let times = clock::run(&unrolled.schedule).unwrap();
    let mut ends = vec![0.0; ranks.of.len()];
    for (class, done) in symmetry.ranks.iter().zip(&unrolled.done) {
        let end = done.iter().map(|it| it.end(&times)).fold(0.0, f64::max);
        class.ranks.iter().for_each(|&rank| ends[usize::try_from(rank).unwrap()] = end);
    }
    (ends, symmetry.ranks.len())
}

/// Stages of so many ranks each that send all of a value to the next one: each rank sends some parts to
/// each of some others, and these pass them on to all of their stage, in an order of their own.
fn gathers(stages: u64, each: u64, elements: u64, order: &dyn Fn(u64) -> u64) -> Vec<Program> {
    let all = each * each * elements;
    // A part of rank `sender` that rank `receiver` passes on.
    let part = |sender: u64, receiver: u64| {
        Strided::of_box(&[all], &[(sender * each + receiver) * elements], &[elements])
    };
    let mut programs = Vec::new();
    for rank in 0..stages * each {
        let (stage, own) = (rank / each, rank % each);
        let mut script = Script::new(&[stages * each], &[]);
        let mut parts = Vec::new();
        for turn in 0..each {
            let sender = order(own + turn) % each;
            let remote = |way, rank, strided| Remote { way, rank, strided };
            parts.push(remote(Way::From, (stage.max(1) - 1) * each + sender, part(sender, own)));
            for round in 1..each {
                let (next, before) = ((own + round) % each, (own + each - round) % each);
                let theirs = order(before + turn) % each;
                parts.push(remote(Way::To, stage * each + next, part(sender, own)));
                parts.push(remote(Way::From, stage * each + before, part(theirs, before)));
            }
        }
        let number = usize::try_from(stage).unwrap();
        let held = script.buffer(all);
        if stage > 0 {
            let received = Received { output: held, parts };
            script.crossing(Stream::Receiving, Action::Receive(received), number - 1);
        }
        if stage + 1 < stages {
            let to = |receiver: u64| Remote {
                way: Way::To,
                rank: (stage + 1) * each + receiver,
                strided: part(own, receiver),
            };
            let sent = Sent { input: held, parts: (0..each).map(to).collect() };
            script.crossing(Stream::Sending, Action::Send(sent), number);
        }
        programs.push(Program { rank, ..script.alike.program });
    }
    programs
}

#[test]
fn random_orders_take_as_long_with_equal_ranks_taken_together() {
    let cluster = Cluster::of(shipped::named("v100-32g-16x").unwrap());
    arbtest(|u| {
        let (shift, elements) = (u.int_in_range(1..=3)?, 1 << u.int_in_range(8..=16)?);
        let factor = *u.choose(&[1, 3])?;
        let programs = gathers(4, 4, elements, &|place| factor * place + shift);
        let ranks = Ranks::each(&programs, &cluster);
        let (together, kinds) = ends_of(&ranks, &cluster, Telling::Alike);
        let (apart, all) = ends_of(&ranks, &cluster, Telling::Apart);
        assert!(kinds < all);
        assert!(together.iter().zip(&apart).all(|(one, other)| same(*one, *other)), "{together:?} {apart:?}");
        Ok(())
    })
    .budget_ms(1_000);
}

#[test]
fn chains_that_begin_at_different_ranks_do_not_wait_for_each_other() {
    // Each of three ranks gets a part from one of the other stage, and passes it on in a circle.
    let cluster = Cluster::of(shipped::named("h100-80g-8x").unwrap());
    let part = |number: u64| Strided::of_box(&[3 << 16], &[number << 16], &[1 << 16]);
    let remote = |way, rank, number| Remote { way, rank, strided: part(number) };
    let rank = |rank: u64| {
        let mut script = Script::new(&[8], &[]);
        let held = script.buffer(3 << 16);
        let own = rank % 4;
        let (next, before) = (4 + (own + 1) % 3, 4 + (own + 2) % 3);
        let (second, third) = ((own + 2) % 3, (own + 1) % 3);
        let received = vec![
            remote(Way::From, own, own),
            remote(Way::To, next, own),
            remote(Way::From, before, second),
            remote(Way::To, next, second),
            remote(Way::From, before, third),
        ];
        let (stream, action) = match rank {
            3 | 7 => return Program { rank, ..script.alike.program },
            0..3 => {
                let parts = vec![remote(Way::To, rank + 4, rank)];
                (Stream::Sending, Action::Send(Sent { input: held, parts }))
            }
            _ => (Stream::Receiving, Action::Receive(Received { output: held, parts: received })),
        };
        script.crossing(stream, action, 0);
        Program { rank, ..script.alike.program }
    };
    let programs: Vec<Program> = (0..8).map(rank).collect();
    let ranks = Ranks::each(&programs, &cluster);
    let (together, kinds) = ends_of(&ranks, &cluster, Telling::Alike);
    let (apart, _) = ends_of(&ranks, &cluster, Telling::Apart);
    assert_eq!(kinds, 3);
    assert!(together.iter().zip(&apart).all(|(one, other)| same(*one, *other)), "{together:?} {apart:?}");
}

#[test]
fn sizes_that_differ_by_a_row_count_as_one() {
    let found = alike([1000, 1003, 1004, 2000, 1, 2].into_iter());
    let expected = [(1, 1), (2, 2), (1000, 1003), (1003, 1003), (1004, 1004), (2000, 2000)];
    assert!(found.into_iter().eq(expected));
}

#[test]
fn stages_whose_ranks_gather_are_of_one_kind_each() {
    for (name, stages, each) in [("h100-80g-16x", 2, 8), ("h100-80g-64x", 8, 8), ("h100-80g-16x", 4, 4)] {
        let cluster = Cluster::of(shipped::named(name).unwrap());
        let programs = gathers(stages, each, 1 << 16, &|place| place);
        let ranks = Ranks::each(&programs, &cluster);
        let (together, kinds) = ends_of(&ranks, &cluster, Telling::Alike);
        assert_eq!(u64::try_from(kinds).unwrap(), stages, "{name}");
        let (apart, _) = ends_of(&ranks, &cluster, Telling::Apart);
        assert!(together.iter().zip(&apart).all(|(one, other)| same(*one, *other)), "{together:?} {apart:?}");
    }
}

fn check(script: &Script, name: &str) -> usize {
    let (together, classes) = ends(&script.alike, name, Telling::Alike);
    let (apart, all) = ends(&script.alike, name, Telling::Apart);
    assert_eq!(all, apart.len());
    assert!(together.iter().zip(&apart).all(|(one, other)| same(*one, *other)), "{together:?} {apart:?}");
    classes
}

#[test]
fn ranks_that_nothing_tells_apart_are_one() {
    let mut script = Script::new(&[2, 8], &[&[0], &[1]]);
    let buffers = [script.buffer(1 << 20), script.buffer(1 << 20)];
    script.collective(CollectiveKind::AllReduce, 0, buffers, 1 << 20);
    script.collective(CollectiveKind::AllReduce, 1, buffers, 1 << 20);
    assert_eq!(check(&script, "h100-80g-16x"), 1);
    // Two devices share an adapter, and all pairs do.
    assert_eq!(check(&script, "v100-32g-16x"), 1);
}

#[test]
fn groups_that_cross_nodes_are_told_from_those_that_do_not() {
    // Groups of 3 of 24 ranks: the third and the sixth of each period cross the border of a node.
    let mut script = Script::new(&[8, 3], &[&[1]]);
    let buffers = [script.buffer(1 << 20), script.buffer(1 << 20)];
    script.collective(CollectiveKind::AllReduce, 0, buffers, 1 << 20);
    assert!(check(&script, "h100-80g-24x") > 1);
    let (ends, _) = ends(&script.alike, "h100-80g-24x", Telling::Alike);
    assert!(ends[0] < ends[6]);
}

#[test]
fn random_programs_take_as_long_with_equal_ranks_taken_together() {
    const KINDS: [CollectiveKind; 4] = [
        CollectiveKind::AllReduce,
        CollectiveKind::AllToAll,
        CollectiveKind::AllGather,
        CollectiveKind::Broadcast(0),
    ];
    arbtest(|u| {
        let (name, sizes) = *u.choose(&[
            ("v100-32g-16x", [4, 4]),
            ("v100-32g-16x", [8, 2]),
            ("a100-80g-16x", [2, 8]),
            ("h100-80g-24x", [8, 3]),
            ("v100-32g-8x", [2, 4]),
        ])?;
        let mut script = Script::new(&sizes, &[&[0], &[1], &[0, 1]]);
        let elements = 1 << u.int_in_range(8..=18)?;
        let [a, b] = [0; 2].map(|_| script.buffer(64 * elements));
        let ranks = sizes[0] * sizes[1];
        let shift = u.int_in_range(1..=ranks - 1)?;
        for _ in 0..u.int_in_range(1..=6)? {
            match u.int_in_range(0..=3u8)? {
                0 => drop(script.compute(a, b)),
                1 => {
                    let sources = (0..ranks).map(|rank| (rank + shift) % ranks).collect();
                    script.message(2, sources, [a, b]);
                }
                _ => {
                    let kind = *u.choose(&KINDS)?;
                    script.collective(kind, u.int_in_range(0..=2)?, [a, b], elements);
                }
            }
        }
        check(&script, name);
        Ok(())
    })
    .budget_ms(3_000);
}

#[test]
fn nodes_are_parted_as_far_as_their_neighbours_are() {
    // A path of five: its ends, those beside them, and the middle.
    let path = [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0)];
    assert_eq!(refined(&[0; 5], &path), [0, 1, 2, 1, 0]);
    // A ring is not parted, but for a label.
    let ring = [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 0, 0)];
    assert_eq!(refined(&[0; 4], &ring), [0; 4]);
    let marked = [(0, 1, 7), (1, 2, 0), (2, 3, 0), (3, 0, 0)];
    assert_eq!(refined(&[0; 4], &marked), [0, 0, 1, 1]);
}
