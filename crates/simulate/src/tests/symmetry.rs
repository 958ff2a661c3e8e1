//! Ranks taken together and apart.

use arbtest::arbtest;
use cost_models::cluster::Cluster;
use cost_models::machine::shipped;
use cost_models::topology::Topology;
use lower::{Alike, CollectiveKind};

use super::same;
use super::script::Script;
use crate::classes::refined;
use crate::clock;
use crate::ranks::Ranks;
use crate::symmetry::{Telling, symmetry};
use crate::unroll::{Order, Unrolling};

/// For each rank when it is done, and how many classes there are.
fn ends(alike: &Alike, name: &str, telling: Telling) -> (Vec<f64>, usize) {
    let machine = shipped::named(name).unwrap();
    let cluster = Cluster::of(machine.clone());
    let ranks = Ranks::alike(alike, &cluster);
    let symmetry = symmetry(&ranks, &Topology::of(&machine), telling).unwrap();
    let order = Order::Streams;
    let unrolled = Unrolling { ranks: &ranks, cluster: &cluster, order, symmetry: &symmetry }.schedule();
    let times = clock::run(&unrolled.schedule).unwrap();
    let mut ends = vec![0.0; usize::try_from(alike.mesh.devices()).unwrap()];
    for (class, done) in symmetry.ranks.iter().zip(&unrolled.done) {
        let end = done.iter().map(|it| it.end(&times)).fold(0.0, f64::max);
        class.ranks.iter().for_each(|&rank| ends[usize::try_from(rank).unwrap()] = end);
    }
    (ends, symmetry.ranks.len())
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
