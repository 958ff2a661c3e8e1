//! Stretches that do not repeat, cut where little is alive.
//!
//! What repeats is cut by its repetitions. What does not, such as a network whose layers all differ in
//! size, is one block; who wants to cut a program into stages or to compute parts of it again looks for
//! places in it over which few bytes are needed later.

use std::ops::Range;

use planner_ir::{Graph, Source};

use super::describe::describe;
use super::runs::Run;
use super::{Blocks, check};

/// How many nodes a piece has at least: within so many of a cut there is no better one.
const LEAST: usize = 16;

/// How many nodes a stretch has at least if it is cut: the beginnings and ends of models that repeat have
/// fewer.
const LONG: usize = 4 * LEAST;

/// The same graph in blocks, those that do not repeat cut at their narrowest places.
///
/// # Panics
/// If the result is not a cut of the same graph, which would be a mistake of ours.
pub fn narrowed(blocks: &Blocks) -> Blocks {
    cut(blocks, |count, nodes| count == 1 && nodes >= LONG, cuts)
}

/// The same graph in blocks of no more nodes than that, longer ones cut where least is alive, whether they repeat
/// or not: what grows faster than with the nodes of a block is then bounded.
///
/// # Panics
/// As [`narrowed`] does.
pub(crate) fn bounded(blocks: Blocks, most: usize) -> Blocks {
    if blocks.unique.iter().all(|block| block.body.nodes.len() <= most) {
        return blocks;
    }
    cut(&blocks, |_, nodes| nodes > most, |alive, nodes| pieces(alive, nodes, most))
}

/// The same graph, the segments cut whose blocks are chosen by how often they repeat and how many nodes they have.
fn cut(
    blocks: &Blocks,
    is_cut: impl Fn(usize, usize) -> bool,
    places: impl Fn(&[i128], Range<usize>) -> Vec<usize>,
) -> Blocks {
    let alive = alive(&blocks.graph);
    let mut runs = Vec::new();
    let mut segments = blocks.segments.iter();
    while let Some(segment) = segments.next() {
        let (start, period) = (segment.nodes.start, segment.nodes.len());
        let count = blocks.unique[segment.block].count;
        if !is_cut(count, period) {
            runs.push(Run { start, period, count });
            segments.by_ref().take(count - 1).for_each(drop);
            continue;
        }
        let cuts = places(&alive, segment.nodes.clone());
        let ends = cuts.iter().copied().chain([segment.nodes.end]);
        let starts = [start].into_iter().chain(cuts.iter().copied());
        runs.extend(starts.zip(ends).map(|(start, end)| Run { start, period: end - start, count: 1 }));
    }
    let found = describe(blocks.graph.clone(), &runs);
    if let Err(error) = check(&found) {
        panic!("{error}");
    }
    found
}

/// For each place between nodes, and at both ends, how many bytes are made before it and read after it;
/// what is computed from weights and constants alone does not count.
fn alive(graph: &Graph) -> Vec<i128> {
    let prepared = graph.prepared();
    let mut last = vec![None; graph.values.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.operands.iter().for_each(|operand| last[operand.0] = Some(at));
    }
    for output in &graph.outputs {
        last[output.value.0] = Some(graph.nodes.len());
    }
    let mut change = vec![0_i128; graph.nodes.len() + 2];
    for value in graph.value_ids().filter(|it| !prepared[it.0]) {
        if let (Source::Result { node, .. }, Some(last)) = (&graph.value(value).source, last[value.0]) {
            let bytes = i128::from(graph.type_of(value).bytes());
            change[node.0 + 1] += bytes;
            change[last + 1] -= bytes;
        }
    }
    let sum = |sum: &mut i128, change: i128| {
        *sum += change;
        Some(*sum)
    };
    change.into_iter().take(graph.nodes.len() + 1).scan(0, sum).collect()
}

/// The places of a stretch at which fewest bytes are alive, of all in their neighbourhood.
fn cuts(alive: &[i128], nodes: Range<usize>) -> Vec<usize> {
    let mut cuts: Vec<usize> = Vec::new();
    for at in nodes.start + LEAST..(nodes.end + 1).saturating_sub(LEAST) {
        let near = (at - LEAST).max(nodes.start + 1)..=(at + LEAST).min(nodes.end - 1);
        let narrow = alive[near].iter().all(|&it| it >= alive[at]);
        if narrow && cuts.last().is_none_or(|&before| at >= before + LEAST) {
            cuts.push(at);
        }
    }
    cuts
}

/// The places that leave no more than `most` nodes between them, each where fewest bytes are alive in the second half
/// of what may be one piece.
fn pieces(alive: &[i128], nodes: Range<usize>, most: usize) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut start = nodes.start;
    while nodes.end - start > most {
        let near = start + most.div_ceil(2)..=start + most;
        start = near.min_by_key(|&at| alive[at]).unwrap_or(start + most);
        cuts.push(start);
    }
    cuts
}
