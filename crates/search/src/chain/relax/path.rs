//! The cheapest path through the tables of all segments.

use super::super::ChainChoices;
use super::super::product::product;
use super::super::segment::block::{Block, Of};
use super::Relaxation;
use crate::eliminate::first_least;

/// For each segment, which row of its tables a path is in, and the states at the boundaries of its blocks.
pub(super) type Path = Vec<(usize, Vec<usize>)>;

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
    pub(super) fn sweep(&self, blocks: &[Block<'_>], of: Of, globals: &[usize]) -> Vec<Vec<f64>> {
        let entries = self.segments.first().map_or(1, |it| it.entries);
        let mut ends = vec![vec![0.0; entries]];
        for (ready, block) in self.segments.iter().zip(blocks) {
            let table = ready.row_of(block.costs(of), ready.row(globals));
            for _ in 0..ready.count {
                ends.push(product(&ends[ends.len() - 1], table, ready.entries));
            }
        }
        ends
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
