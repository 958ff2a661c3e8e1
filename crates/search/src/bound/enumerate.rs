//! The gap closed by enumeration: every assignment whose priced cost is below the best time.
//!
//! At fixed multipliers, time is at least the priced cost for whatever fits. Walking the buckets
//! of one elimination backwards, the least priced cost of all completions of a partial assignment
//! is known exactly, so that a branch is left as soon as it can bring nothing better. Walks go up
//! to a limit that rises from the bound to the best time: one that ends and finds nothing proves
//! its limit as a bound, one that ends and finds something has the optimum.

use std::borrow::Cow;
use std::ops::Range;

use super::Search;
use crate::chain::{Goal, priced_costs};
use crate::eliminate::{Objective, Pruned, Reduced, order, prune, reduce};
use crate::problem::{Held, Problem, SearchError, real, real_size};

/// The most work of all walks: choices and windows that are looked at.
const BUDGET: usize = 4_000_000;

/// The most nodes of a problem that is walked: a gap of a larger one is made of too many parts.
const MOST_NODES: usize = 1000;

/// The limits of the walks, as parts of the way from the bound to the best time.
const LIMITS: [f64; 6] = [0.03, 0.06, 0.12, 0.25, 0.5, 1.0];

/// Improves the best assignment and raises the bound, to its time if nothing better is left.
pub(super) fn close(search: &mut Search<'_>) -> Result<(), SearchError> {
    if search.flat.problem.times.len() > MOST_NODES {
        return Ok(());
    }
    let pruned = prune(&search.flat.problem, &[]);
    let small = &pruned.problem;
    let capacity = real(search.capacity.max(1));
    let resident = search.multipliers.iter().sum::<f64>() / capacity;
    let live = flat_prices(search);
    let costs = priced_costs(small, Goal::Time, resident, &live);
    let objective = Objective { costs: Cow::Owned(costs), edges: &small.edges, tables: &small.tables };
    let order = order(small, &[]);
    let reduced = match reduce(&objective, &order) {
        Err(SearchError::TooWide { .. }) => return Ok(()),
        reduced => reduced?,
    };
    let constant: f64 =
        small.windows.iter().zip(&live).map(|(&constant, price)| price * real(constant)).sum();
    let root = reduced.table[0] + constant - resident * real(search.capacity);

    let mut walk = Walk::new(&pruned, &reduced, search.capacity);
    let Some((_, best)) = search.best else {
        let ended = walk.descend(reduced.steps(), root);
        return match walk.found {
            Some(choices) => {
                search.best = Some((pruned.restore(&choices), walk.limit));
                search.bound = if ended { walk.limit } else { search.bound };
                Ok(())
            }
            None if ended => {
                let capacity = search.capacity;
                Err(SearchError::DoesNotFitTogether { least: capacity + 1, capacity })
            }
            None => Ok(()),
        };
    };

    let bound = search.bound;
    for part in LIMITS {
        let limit = bound + part * (best - bound);
        walk.limit = limit - limit.abs() * super::EXACT;
        let ended = walk.descend(reduced.steps(), root);
        let found = walk.found.take();
        if ended {
            search.bound = if found.is_some() { walk.limit } else { limit };
        }
        if let Some(choices) = found {
            search.best = Some((pruned.restore(&choices), walk.limit));
            break;
        }
        if !ended {
            break;
        }
    }
    Ok(())
}

/// For each window of the flat problem, the price of a byte.
fn flat_prices(search: &Search<'_>) -> Vec<f64> {
    let capacity = real(search.capacity.max(1));
    let mut prices = Vec::new();
    for (index, segment) in search.chain.segments.iter().enumerate() {
        let mut block = vec![0.0; segment.problem.windows.len()];
        for (row, multiplier) in search.rows.iter().zip(&search.multipliers) {
            if row.segment == index && row.window < block.len() {
                block[row.window] = multiplier / real_size(segment.count) / capacity;
            }
        }
        (0..segment.count).for_each(|_| prices.extend_from_slice(&block));
    }
    prices
}

/// What a node holds.
struct Bytes<'a> {
    /// In which windows, or none for what is resident.
    windows: Option<Range<usize>>,
    /// How much with each choice (bytes).
    of: &'a [u64],
    /// How much with any of them (bytes).
    least: u64,
}

/// A walk over the assignments, the last eliminated node first.
struct Walk<'a> {
    problem: &'a Problem,
    reduced: &'a Reduced<'a>,
    capacity: u64,
    choices: Vec<usize>,
    /// For each node, its bytes.
    held: Vec<Vec<Bytes<'a>>>,
    /// What the chosen nodes hold and the others hold at least.
    resident: u64,
    live: Vec<u64>,
    left: usize,
    /// Only what takes less is looked for: the limit of this walk, or the time of what it found.
    limit: f64,
    found: Option<Vec<usize>>,
}

impl<'a> Walk<'a> {
    fn new(pruned: &'a Pruned, reduced: &'a Reduced<'a>, capacity: u64) -> Self {
        let problem = &pruned.problem;
        let least = |held: &Held| problem.bytes[held.bytes].iter().copied().min().unwrap_or(0);
        let bytes = |held: &Held, windows: Option<Range<usize>>| Bytes {
            windows,
            of: &problem.bytes[held.bytes],
            least: least(held),
        };
        let mut of_node: Vec<Vec<Bytes<'_>>> = problem.times.iter().map(|_| vec![]).collect();
        for held in &problem.resident {
            of_node[held.node].push(bytes(held, None));
        }
        for live in &problem.live {
            of_node[live.held.node].push(bytes(&live.held, Some(live.windows())));
        }
        let mut live = problem.summed(|live| least(&live.held));
        live.resize(problem.windows.len().max(1), 0);
        Self {
            problem,
            reduced,
            capacity,
            choices: vec![0; problem.times.len()],
            held: of_node,
            resident: problem.resident.iter().map(least).sum(),
            live,
            left: BUDGET,
            limit: f64::INFINITY,
            found: None,
        }
    }

    /// Tries the choices of the nodes of the first `steps` buckets, whose least cost is `cost`
    /// together with all that is chosen. Returns whether all were tried that could matter.
    fn descend(&mut self, steps: usize, cost: f64) -> bool {
        let Some(step) = steps.checked_sub(1) else {
            let time = self.problem.time(&self.choices);
            if time < self.limit {
                self.limit = time;
                self.found = Some(self.choices.clone());
            }
            return true;
        };
        let (node, sums) = self.reduced.sums(step, &mut self.choices);
        let Some(left) = self.left.checked_sub(sums.len() + self.live.len()) else {
            return false;
        };
        self.left = left;
        let least = sums.iter().fold(f64::INFINITY, |a, &b| a.min(b));
        let with = |choice: usize| cost + (sums[choice] - least);
        // Few are below the limit: those alone are put in order.
        let mut order: Vec<usize> = (0..sums.len()).filter(|&it| !self.is_over(with(it))).collect();
        order.sort_by(|&a, &b| sums[a].total_cmp(&sums[b]));
        for choice in order {
            let with = with(choice);
            // The limit falls with what is found.
            if self.is_over(with) {
                break;
            }
            self.choices[node] = choice;
            self.shift(node, choice, u64::wrapping_add);
            let ended = !self.fits() || self.descend(step, with);
            self.shift(node, choice, u64::wrapping_sub);
            if !ended {
                return false;
            }
        }
        true
    }

    /// Whether what costs so much at least can bring nothing better.
    fn is_over(&self, cost: f64) -> bool {
        cost >= self.limit
    }

    /// Adds or takes off what a node holds beyond the least that it can.
    fn shift(&mut self, node: usize, choice: usize, shift: fn(u64, u64) -> u64) {
        for held in &self.held[node] {
            let beyond = held.of[choice] - held.least;
            match &held.windows {
                Some(windows) => {
                    self.live[windows.clone()].iter_mut().for_each(|live| *live = shift(*live, beyond));
                }
                None => self.resident = shift(self.resident, beyond),
            }
        }
    }

    fn fits(&self) -> bool {
        self.live.iter().all(|live| self.resident + live <= self.capacity)
    }
}
