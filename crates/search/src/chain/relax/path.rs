//! The cheapest path through the tables of all segments.

use super::super::ChainChoices;
use super::super::product::product;
use super::super::segment::Ready;
use super::super::segment::block::{Block, Costs, Of};
use super::Relaxation;
use crate::eliminate::first_least;

/// For each segment, which row of its tables a path is in, and the states at the boundaries of its blocks.
pub(super) type Path = Vec<(usize, Vec<usize>)>;

/// A segment that has a slot for one global, reduced.
pub(super) struct Beside<'a> {
    pub(super) segment: usize,
    pub(super) ready: &'a Ready,
    pub(super) block: Block<'a>,
}

/// For each boundary between the blocks of segments, the least cost of all before, by state.
fn sweep<'a>(segments: impl Iterator<Item = (&'a Ready, &'a Costs)>, globals: &[usize]) -> Vec<Vec<f64>> {
    let mut ends: Vec<Vec<f64>> = Vec::new();
    for (ready, costs) in segments {
        if ends.is_empty() {
            ends.push(vec![0.0; ready.entries]);
        }
        let table = ready.row_of(costs, ready.row(globals));
        for _ in 0..ready.count {
            ends.push(product(&ends[ends.len() - 1], table, ready.entries));
        }
    }
    if ends.is_empty() { vec![vec![0.0]] } else { ends }
}

fn last_least(ends: &[Vec<f64>]) -> f64 {
    ends[ends.len() - 1].iter().fold(f64::INFINITY, |a, &b| a.min(b))
}

impl Relaxation {
    /// What the blocks of a path cost at least.
    pub(super) fn along(&self, blocks: &[Block<'_>], path: &Path) -> f64 {
        let segments = self.segments.iter().zip(blocks).zip(path);
        let costs = segments.map(|((ready, block), (row, states))| -> f64 {
            let cost = |pair: &[usize]| block.costs(Of::Bound).table[ready.place(*row, [pair[0], pair[1]])];
            states.windows(2).map(cost).sum()
        });
        costs.sum()
    }

    /// For each boundary between blocks, the least cost of all before, by state.
    fn sweep(&self, blocks: &[Block<'_>], of: Of, globals: &[usize]) -> Vec<Vec<f64>> {
        let segments = self.segments.iter().zip(blocks);
        sweep(segments.map(|(ready, block)| (ready, block.costs(of))), globals)
    }

    /// The least cost of all blocks, by one side of the tables.
    pub(super) fn cost(&self, blocks: &[Block<'_>], of: Of, globals: &[usize]) -> f64 {
        last_least(&self.sweep(blocks, of, globals))
    }

    /// What was found of all blocks, where some segments have a slot for a global, by the choices of all of them.
    pub(super) fn cost_beside(&self, blocks: &[Block<'_>], beside: &[Beside<'_>], globals: &[usize]) -> f64 {
        let segment = |(number, (ready, block)): (usize, _)| {
            let own = beside.iter().find(|it| it.segment == number);
            own.map_or((ready, block), |it| (it.ready, &it.block))
        };
        let segments = self.segments.iter().zip(blocks).enumerate().map(segment);
        last_least(&sweep(segments.map(|(ready, block)| (ready, block.costs(Of::Found))), globals))
    }

    pub(super) fn recover(&self, blocks: &[Block<'_>], globals: Vec<usize>) -> ChainChoices {
        let path = self.path(blocks, Of::Found, &globals);
        let segments = self.chain.segments.iter().zip(&self.segments).zip(blocks).zip(&path);
        let blocks = segments
            .map(|(((segment, ready), block), (row, states))| ready.recover(segment, block, *row, states));
        ChainChoices { globals, blocks: blocks.collect() }
    }

    /// The cheapest path.
    pub(super) fn path(&self, blocks: &[Block<'_>], of: Of, globals: &[usize]) -> Path {
        let mut ends = self.sweep(blocks, of, globals);
        let mut last = ends.pop().map_or(0, |costs| first_least(costs.into_iter()));
        let mut path = Vec::with_capacity(self.segments.len());
        for (ready, block) in self.segments.iter().zip(blocks).rev() {
            let row = ready.row(globals);
            let table = ready.row_of(block.costs(of), row);
            let mut states = vec![last];
            for _ in 0..ready.count {
                let before = ends.pop().unwrap_or_default();
                let costs = before.iter().enumerate();
                last = first_least(costs.map(|(first, cost)| cost + table[first * ready.exits + last]));
                states.push(last);
            }
            states.reverse();
            path.push((row, states));
        }
        path.reverse();
        path
    }
}
