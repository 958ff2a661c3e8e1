//! Stretches that do not repeat, cut where little is alive.
//!
//! What repeats is cut by its repetitions. What does not, such as a network whose layers all differ in
//! size, is one block; who wants to cut a program into stages or to compute parts of it again looks for
//! places in it over which few bytes are needed later.

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
    let alive = alive(&blocks.graph);
    let mut runs = Vec::new();
    let mut segments = blocks.segments.iter();
    while let Some(segment) = segments.next() {
        let (start, period) = (segment.nodes.start, segment.nodes.len());
        let count = blocks.unique[segment.block].count;
        if count > 1 {
            runs.push(Run { start, period, count });
            segments.by_ref().take(count - 1).for_each(drop);
            continue;
        }
        let cuts = if period < LONG { Vec::new() } else { cuts(&alive, segment.nodes.clone()) };
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
fn cuts(alive: &[i128], nodes: std::ops::Range<usize>) -> Vec<usize> {
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
