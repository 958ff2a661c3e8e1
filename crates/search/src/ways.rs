//! The cheapest moves from each layout of a value to each other one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, PoisonError};

use planner_ir::{Layout, Type};
use rewrite::Edge;

use crate::prices::Prices;

/// For each pair of layouts of a value, the least time and the way that takes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ways {
    count: usize,
    /// `times[from * count + to]` (seconds); infinite where no way leads.
    times: Vec<f64>,
    /// `last[from * count + to]`: the number of the last move of the way.
    last: Vec<usize>,
    /// `exchanges[from * count + to]`: how often something is exchanged on the way.
    exchanges: Vec<usize>,
}

impl Ways {
    /// The least time from one layout to another (seconds).
    pub(crate) fn time(&self, from: usize, to: usize) -> f64 {
        self.times[from * self.count + to]
    }

    /// How often devices exchange something on the way from one layout to another.
    pub(crate) fn exchanges(&self, from: usize, to: usize) -> usize {
        self.exchanges[from * self.count + to]
    }

    /// The moves of the cheapest way, as numbers of the edges that it was found among.
    pub(crate) fn moves(&self, edges: &[Edge], from: usize, to: usize) -> Vec<usize> {
        let mut moves = Vec::new();
        let mut place = to;
        while place != from {
            let edge = self.last[from * self.count + place];
            moves.push(edge);
            place = edges[edge].from;
        }
        moves.reverse();
        moves
    }
}

/// The ways between the layouts of values, those that many values have in common found once for all
/// sections of a program.
#[derive(Debug, Default)]
pub(crate) struct Found<'a>(Mutex<BTreeMap<Between<'a>, Arc<Ways>>>);

/// A type of values, the layouts of one, and the moves between them.
type Between<'a> = (&'a Type, &'a [Layout], &'a [Edge]);

impl<'a> Found<'a> {
    /// The ways between these layouts.
    ///
    /// Equal layouts of equal types mostly have equal moves, in the same order, but need not: ways say the
    /// numbers of moves, and are those of the same moves only.
    pub(crate) fn ways(&self, between: Between<'a>, prices: &dyn Prices) -> Arc<Ways> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ways) = known().get(&between) {
            return Arc::clone(ways);
        }
        let ways = Arc::new(find(between, prices));
        Arc::clone(known().entry(between).or_insert(ways))
    }
}

/// Dijkstra's algorithm from every layout.
fn find((type_, layouts, edges): Between<'_>, prices: &dyn Prices) -> Ways {
    let price = |edge: &Edge| prices.step(type_, &edge.step, &layouts[edge.from], &layouts[edge.to]);
    let costs: Vec<f64> = edges.iter().map(price).collect();
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); layouts.len()];
    for (number, edge) in edges.iter().enumerate() {
        leaving[edge.from].push(number);
    }
    let count = layouts.len();
    let mut ways = Ways {
        count,
        times: vec![f64::INFINITY; count * count],
        last: vec![0; count * count],
        exchanges: vec![0; count * count],
    };
    for from in 0..count {
        let times = &mut ways.times[from * count..][..count];
        let last = &mut ways.last[from * count..][..count];
        let exchanges = &mut ways.exchanges[from * count..][..count];
        times[from] = 0.0;
        let mut waiting = BinaryHeap::from([Reached { time: 0.0, place: from }]);
        while let Some(Reached { time, place }) = waiting.pop() {
            if time > times[place] {
                continue;
            }
            for &edge in &leaving[place] {
                let (to, time) = (edges[edge].to, time + costs[edge]);
                if time < times[to] {
                    times[to] = time;
                    last[to] = edge;
                    exchanges[to] = exchanges[place] + usize::from(edges[edge].step.travels());
                    waiting.push(Reached { time, place: to });
                }
            }
        }
    }
    ways
}

/// A layout on the way, nearest first.
struct Reached {
    time: f64,
    place: usize,
}

impl PartialEq for Reached {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Reached {}

impl PartialOrd for Reached {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Reached {
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.place.cmp(&self.place))
    }
}

#[cfg(test)]
mod tests;
