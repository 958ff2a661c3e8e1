//! Stretches of an order that repeat.
//!
//! Nodes are first compared one by one, by a token that says operation and types. Where tokens
//! recur at a constant distance for longer than that distance there may be a run; candidates for
//! the distance are those at which equal tokens follow one another most often. A run is then
//! confirmed with the operands: inside a repetition they must be at the same places, outside they
//! must be bindable (`Binding`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use planner_ir::{Graph, NodeId, Op, Source, Type, ValueId};

/// How many distances are tried.
const PERIODS: usize = 16;
/// Of how many of them multiples are tried, up to this factor: layers may alternate.
const MULTIPLIED: usize = 4;
const MULTIPLES: usize = 6;
/// How many cuts of a run are tried.
const ROTATIONS: usize = 4;
/// How many nodes a run has to save: fewer are not worth a boundary.
const LEAST_SAVING: usize = 8;

/// Consecutive equal stretches of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    /// Where the first begins.
    pub(super) start: usize,
    /// How many nodes each has.
    pub(super) period: usize,
    /// How many there are: two at least.
    pub(super) count: usize,
}

impl Run {
    fn end(&self) -> usize {
        self.start + self.period * self.count
    }
}

/// How many nodes are left if each run is told once.
pub(super) fn unique_nodes(runs: &[Run], nodes: usize) -> usize {
    nodes - runs.iter().map(|run| run.period * (run.count - 1)).sum::<usize>()
}

/// For each node, a number that is equal for nodes of equal operation and types.
pub(super) fn tokens(graph: &Graph) -> Vec<usize> {
    let mut known: BTreeMap<(&Op, Vec<&Type>), usize> = BTreeMap::new();
    let mut tokens = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let operands = node.operands.iter().map(|&it| graph.type_of(it)).collect();
        let next = known.len();
        tokens.push(*known.entry((&node.op, operands)).or_insert(next));
    }
    tokens
}

/// Which kind of source a value has.
fn kind(graph: &Graph, value: ValueId) -> u8 {
    match graph.value(value).source {
        Source::Input(_) => 0,
        Source::Weight(_) => 1,
        Source::Result { .. } => 2,
        Source::State(_) => 3,
    }
}

/// The runs of an order, ascending and disjoint.
pub(super) fn find(graph: &Graph, tokens: &[usize], order: &[NodeId]) -> Vec<Run> {
    let places = Places::of(graph, order);
    let sequence: Vec<usize> = order.iter().map(|node| tokens[node.0]).collect();
    let mut found: Vec<Stretch> = Vec::new();
    for period in periods(&sequence) {
        stretches_of(&sequence, period, &mut found);
    }
    // Ascending and disjoint; a run is worth most that saves most, of those the one that repeats most often.
    let mut runs: Vec<Run> = Vec::new();
    let rank =
        |stretch: Stretch| (stretch.saving(), Reverse(stretch.period), Reverse(stretch.start), stretch.end);
    let mut stretches: BinaryHeap<_> = found.into_iter().map(rank).collect();
    while let Some((_, Reverse(period), Reverse(start), end)) = stretches.pop() {
        let stretch = Stretch { start, end, period };
        let free = stretch.without(&runs);
        if free != [stretch] {
            stretches.extend(free.into_iter().map(rank));
            continue;
        }
        if let Some(run) = places.confirm(&stretch).filter(|run| run.period * (run.count - 1) >= LEAST_SAVING)
        {
            runs.insert(runs.partition_point(|it| it.start < run.start), run);
            stretches.extend(stretch.without(&runs).into_iter().map(rank));
        }
    }
    runs
}

/// Where tokens recur at a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: usize,
    end: usize,
    period: usize,
}

impl Stretch {
    fn saving(&self) -> usize {
        ((self.end - self.start) / self.period).saturating_sub(1) * self.period
    }

    /// What runs, ascending and disjoint, leave of it, where two repetitions have room.
    fn without(&self, runs: &[Run]) -> Vec<Self> {
        let first = runs.partition_point(|run| run.end() <= self.start);
        let within = runs[first..].iter().take_while(|run| run.start < self.end);
        let (mut pieces, mut start) = (Vec::new(), self.start);
        for run in within {
            pieces.push(Self { start, end: run.start.max(start), ..*self });
            start = run.end();
        }
        pieces.push(Self { start, end: self.end.max(start), ..*self });
        pieces.retain(|it| it.start + 2 * it.period <= it.end && it.saving() >= LEAST_SAVING);
        pieces
    }
}

fn stretches_of(sequence: &[usize], period: usize, stretches: &mut Vec<Stretch>) {
    let mut start = 0;
    for index in period..=sequence.len() {
        if index < sequence.len() && sequence[index] == sequence[index - period] {
            continue;
        }
        // What recurs is [start, index): its last period has no successor.
        if start + 2 * period <= index && (index - start) / period * period >= period + LEAST_SAVING {
            stretches.push(Stretch { start, end: index, period });
        }
        start = index + 1 - period;
    }
}

/// The distances at which equal tokens follow one another, the most frequent ones, and multiples.
fn periods(sequence: &[usize]) -> Vec<usize> {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, &token) in sequence.iter().enumerate() {
        if let Some(before) = last.insert(token, index) {
            *counts.entry(index - before).or_default() += 1;
        }
    }
    let mut frequent: Vec<(usize, usize)> = counts.into_iter().collect();
    // A long period has few repetitions, so what counts is how much of the order recurs.
    frequent.sort_by_key(|&(period, count)| (usize::MAX - count, period));
    frequent.truncate(PERIODS);
    let mut periods: Vec<usize> = frequent.iter().map(|&(period, _)| period).collect();
    for factor in 2..=MULTIPLES {
        periods.extend(frequent.iter().take(MULTIPLIED).map(|&(period, _)| period * factor));
    }
    periods.retain(|&period| 2 * period <= sequence.len());
    periods.sort_unstable();
    periods.dedup();
    periods
}

/// An operand as seen from its repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Result `index` of the node at an offset of the same repetition.
    Inside(usize, usize),
    /// Any other value.
    Outside(ValueId),
}

/// An order, with the position of each node.
pub(super) struct Places<'a> {
    graph: &'a Graph,
    order: &'a [NodeId],
    position: Vec<usize>,
}

/// In which ways an operand from outside may still be bound.
#[derive(Clone, Copy, Debug)]
struct Possible {
    shared: bool,
    private: bool,
    carried: Option<(usize, usize)>,
}

impl<'a> Places<'a> {
    pub(super) fn of(graph: &'a Graph, order: &'a [NodeId]) -> Self {
        let mut position = vec![0; graph.nodes.len()];
        for (index, node) in order.iter().enumerate() {
            position[node.0] = index;
        }
        Self { graph, order, position }
    }

    /// A value as seen from the repetition that begins at `base`.
    pub(super) fn place(&self, value: ValueId, base: usize, period: usize) -> Place {
        match self.graph.value(value).source {
            Source::Result { node, index } if (base..base + period).contains(&self.position[node.0]) => {
                Place::Inside(self.position[node.0] - base, index)
            }
            _ => Place::Outside(value),
        }
    }

    /// The run in a stretch that carries the least from one repetition to the next.
    fn confirm(&self, stretch: &Stretch) -> Option<Run> {
        let Stretch { start, end, period } = *stretch;
        let carried = self.carried(stretch);
        let most = (end - start) / period;
        let mut rotations: Vec<(u64, usize)> = (0..period)
            .filter(|&it| (end - start - it) / period >= most.saturating_sub(1).max(2))
            .map(|it| (carried[it], it))
            .collect();
        rotations.sort_unstable();
        rotations.truncate(ROTATIONS);
        let confirmed = rotations.into_iter().filter_map(|(_, rotation)| {
            let count = (end - start - rotation) / period;
            self.longest(Run { start: start + rotation, period, count })
        });
        confirmed.reduce(|best, next| if next.count > best.count + 1 { next } else { best })
    }

    /// For each rotation, how much is carried over its second boundary (bytes).
    fn carried(&self, stretch: &Stretch) -> Vec<u64> {
        let Stretch { start, end, period } = *stretch;
        let mut last_use: BTreeMap<ValueId, usize> = BTreeMap::new();
        for at in start..end.min(start + 3 * period) {
            for &operand in &self.graph.node(self.order[at]).operands {
                last_use.insert(operand, at);
            }
        }
        let mut carried = vec![0; period];
        for at in start..(start + 2 * period).min(end) {
            for &result in &self.graph.node(self.order[at]).results {
                let bytes = self.graph.type_of(result).bytes();
                let Some(&last) = last_use.get(&result) else {
                    continue;
                };
                // Boundaries lie before the node at start + period + rotation.
                let first = (at + 1).max(start + period);
                for boundary in first..(last + 1).min(start + 2 * period) {
                    carried[boundary - start - period] += bytes;
                }
            }
        }
        carried
    }

    /// The longest part of a run whose operands can be bound.
    fn longest(&self, run: Run) -> Option<Run> {
        let base = |repetition: usize| run.start + repetition * run.period;
        let mut best: Option<(usize, usize)> = None;
        let mut first = 0;
        while first + 1 < run.count {
            let mut possible: Vec<Vec<Option<Possible>>> = vec![Vec::new(); run.period];
            let mut next = first + 1;
            while next < run.count && self.extends(base(next), run.period, next == first + 1, &mut possible) {
                next += 1;
            }
            if next - first >= 2 && best.is_none_or(|(from, to)| next - first > to - from) {
                best = Some((first, next));
            }
            first = next;
        }
        best.map(|(from, to)| Run { start: base(from), period: run.period, count: to - from })
    }

    /// Whether the repetition at `base` continues the one before it.
    fn extends(
        &self,
        base: usize,
        period: usize,
        first: bool,
        possible: &mut [Vec<Option<Possible>>],
    ) -> bool {
        for (offset, known) in possible.iter_mut().enumerate() {
            let before = self.graph.node(self.order[base - period + offset]);
            let node = self.graph.node(self.order[base + offset]);
            if before.op != node.op {
                return false;
            }
            for (index, (&old, &new)) in before.operands.iter().zip(&node.operands).enumerate() {
                let now = match (self.place(old, base - period, period), self.place(new, base, period)) {
                    (Place::Inside(a, b), Place::Inside(c, d)) if (a, b) == (c, d) => None,
                    (Place::Outside(old), Place::Outside(new)) => Some(self.possible(old, new, base, period)),
                    _ => return false,
                };
                if first {
                    known.push(now);
                } else if let (Some(known), Some(now)) = (&mut known[index], now) {
                    known.shared &= now.shared;
                    known.private &= now.private;
                    known.carried = known.carried.filter(|_| known.carried == now.carried);
                }
                if let Some(Some(Possible { shared: false, private: false, carried: None })) =
                    known.get(index)
                {
                    return false;
                }
            }
        }
        true
    }

    fn possible(&self, old: ValueId, new: ValueId, base: usize, period: usize) -> Possible {
        let carried = match self.place(new, base - period, period) {
            Place::Inside(offset, index) => Some((offset, index)),
            Place::Outside(_) => None,
        };
        let given = kind(self.graph, old) == kind(self.graph, new) && kind(self.graph, new) < 2;
        Possible { shared: old == new, private: given, carried }
    }
}
