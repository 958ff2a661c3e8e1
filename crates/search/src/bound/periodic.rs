//! Chains in which all blocks of a segment choose the same: a smaller problem, whose answer is an
//! answer for the whole.

use crate::chain::{Chain, ChainChoices, Segment};
use crate::problem::{Edge, Held, Problem, Table, real_size};

/// The chain with one block for each segment, which costs as much as all of them.
///
/// Entry and exit of a segment of several blocks must agree, which they do here by tables that
/// forbid all else.
pub(super) fn fold(chain: &Chain) -> Chain {
    let segments = chain
        .segments
        .iter()
        .map(|segment| if segment.count == 1 { segment.clone() } else { one_block(segment) });
    Chain { globals: chain.globals.clone(), segments: segments.collect() }
}

/// The choices of a folded chain, repeated.
pub(super) fn unfold(chain: &Chain, folded: &ChainChoices) -> ChainChoices {
    let segments = chain.segments.iter().zip(&folded.blocks);
    ChainChoices {
        globals: folded.globals.clone(),
        blocks: segments.map(|(segment, blocks)| vec![blocks[0].clone(); segment.count]).collect(),
    }
}

fn one_block(segment: &Segment) -> Segment {
    let mut problem = segment.problem.clone();
    let blocks = real_size(segment.count);
    let scale = |times: &mut Vec<f64>| times.iter_mut().for_each(|time| *time *= blocks);
    problem.times.iter_mut().for_each(scale);
    problem.tables.iter_mut().for_each(|table| scale(&mut table.entries));

    let count = u64::try_from(segment.count).unwrap_or(u64::MAX);
    for held in &mut problem.resident {
        let bytes = problem.bytes[held.bytes].iter().map(|bytes| bytes * count).collect();
        *held = Held { node: held.node, bytes: problem.bytes.len() };
        problem.bytes.push(bytes);
    }
    for (&from, &to) in segment.entry.iter().zip(&segment.exit) {
        if from != to {
            tie(&mut problem, from, to);
        }
    }
    // The variants are not as dear as all blocks; their union is.
    Segment { problem, count: 1, variants: Vec::new(), ..segment.clone() }
}

/// Forbids two nodes of equal domains to differ.
fn tie(problem: &mut Problem, from: usize, to: usize) {
    let columns = problem.times[to].len();
    let entry = |at: usize| {
        if at / columns == at % columns { 0.0 } else { f64::INFINITY }
    };
    let entries = (0..columns * columns).map(entry).collect();
    problem.edges.push(Edge { from, to, table: problem.tables.len() });
    problem.tables.push(Table { columns, entries });
}
