//! Tests of segments that are one where they stand alone and share parameters.

use super::tests::{Sizes, derived, recipe, transformer};
use super::*;

/// A model of layers that differ in what they are, so that each stands alone.
const SIZES: Sizes = Sizes { layers: 4, batch: 8, sequence: 8, hidden: 16, heads: 4, vocabulary: 32 };

/// The number of repetitions of each section, as they are and where those that share are one.
fn counts(graph: &Graph, homes: &[usize], forward: &[Option<NodeId>]) -> [Vec<usize>; 2] {
    let of = |sections: Vec<Section>| sections.iter().map(|it| it.repetitions.len()).collect();
    [of(fold(graph, homes, forward)), of(fold_alone(graph, homes, forward))]
}

#[test]
fn segments_that_share_are_one_where_they_stand_alone() {
    let recipe = recipe(plan::Precision::F32, 2);
    let step = |tied: bool| derived(&transformer(SIZES, tied), &recipe, &[plan::Recompute::Nothing]).step;
    // Between the two that share a table there are layers that repeat.
    let tied = step(true);
    let [apart, together] = counts(&tied.graph, &tied.homes, &tied.forward);
    assert_eq!((&apart, &together), (&vec![1, 4, 1], &vec![1, 4, 1]));
    // Where two layers are one segment nothing repeats, and all that lies between is one with it.
    let homes: Vec<usize> = tied.homes.iter().map(|home| home.div_ceil(3)).collect();
    let [apart, together] = counts(&tied.graph, &homes, &tied.forward);
    assert_eq!((apart.len() > 2, &together), (true, &vec![1]), "{apart:?}");
    let own = fold_alone(&tied.graph, &homes, &tied.forward);
    assert!(own[0].shared.iter().all(|it| it.sharing != Sharing::Anywhere));
    // What shares nothing stays apart.
    let free = step(false);
    let homes: Vec<usize> = free.homes.iter().map(|home| home.div_ceil(3)).collect();
    let [apart, together] = counts(&free.graph, &homes, &free.forward);
    assert_eq!(apart, together);
}
