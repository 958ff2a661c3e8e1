//! Chains in which all blocks of a segment choose the same: a smaller problem, whose answer is an
//! answer for the whole.

use std::sync::Arc;

use crate::chain::{Chain, ChainChoices, Segment, Variant};
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
    let once = |problem: &Problem, entry: &[usize], exit: &[usize]| {
        let mut problem = times(problem, segment.count);
        for (&from, &to) in entry.iter().zip(exit).filter(|(from, to)| from != to) {
            tie(&mut problem, from, to);
        }
        problem
    };
    let variant = |it: &Variant| Variant { problem: once(&it.problem, &it.entry, &it.exit), ..it.clone() };
    Segment {
        problem: once(&segment.problem, &segment.entry, &segment.exit),
        count: 1,
        variants: segment.variants.iter().map(variant).collect(),
        ..segment.clone()
    }
}

/// A problem that takes as much time, and keeps as much resident, as so many times this one.
fn times(problem: &Problem, count: usize) -> Problem {
    let mut problem = problem.clone();
    let blocks = real_size(count);
    let scale = |times: &mut Vec<f64>| times.iter_mut().for_each(|time| *time *= blocks);
    problem.times.iter_mut().for_each(scale);
    problem.tables.iter_mut().for_each(|table| scale(&mut Arc::make_mut(table).entries));
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    for held in &mut problem.resident {
        let bytes = problem.bytes[held.bytes].iter().map(|bytes| bytes * count).collect();
        *held = Held { node: held.node, bytes: problem.bytes.len() };
        problem.bytes.push(bytes);
    }
    problem
}

/// Forbids two nodes of equal domains to differ.
fn tie(problem: &mut Problem, from: usize, to: usize) {
    let columns = problem.times[to].len();
    let entry = |at: usize| {
        if at / columns == at % columns { 0.0 } else { f64::INFINITY }
    };
    let entries = (0..columns * columns).map(entry).collect();
    problem.edges.push(Edge { from, to, table: problem.tables.len() });
    problem.tables.push(Table { columns, entries }.into());
}
