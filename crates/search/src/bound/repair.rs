//! Greedy repair of an assignment that takes too much memory, and greedy improvement of one that
//! fits.

use std::cmp::Reverse;

use crate::problem::{Edge, Live, Problem, real};

/// The most passes over all nodes in a repair.
const REPAIRS: usize = 40;

/// The most passes over all nodes in an improvement.
const IMPROVEMENTS: usize = 8;

/// A move of a repair may cost this many times what it was estimated to cost before others were
/// made.
const SLACK: f64 = 1.5;

/// An assignment and what it takes.
pub(super) struct State<'a> {
    pub(super) choices: Vec<usize>,
    problem: &'a Problem,
    capacity: u64,
    /// For each node, its edges.
    edges: Vec<Vec<Edge>>,
    /// For each node, the lists of bytes that it keeps resident.
    resident_of: Vec<Vec<usize>>,
    /// For each node, when it is live, and its lists of bytes then.
    live_of: Vec<Vec<Live>>,
    resident: u64,
    live: Vec<u64>,
}

/// A move of one node to another choice.
#[derive(Clone, Copy)]
struct Move {
    node: usize,
    choice: usize,
    /// Seconds for each byte by which the excess falls.
    price: f64,
}

/// An assignment that fits, made from one that need not; none if the greedy way finds none.
pub(super) fn repair(problem: &Problem, capacity: u64, choices: Vec<usize>) -> Option<Vec<usize>> {
    let mut state = State::new(problem, capacity, choices);
    for _ in 0..REPAIRS {
        if state.excess() == 0 {
            break;
        }
        let mut moves: Vec<Move> =
            (0..problem.times.len()).filter_map(|node| state.cheapest_relief(node)).collect();
        moves.sort_by(|a, b| a.price.total_cmp(&b.price).then(a.node.cmp(&b.node)));
        let mut moved = false;
        for at in moves {
            let before = state.excess();
            if before == 0 {
                break;
            }
            let Some(now) = state.price(at.node, at.choice) else {
                continue;
            };
            if now > at.price.abs() * SLACK {
                continue;
            }
            let old = state.choices[at.node];
            state.take(at.node, at.choice);
            if state.excess() < before {
                moved = true;
            } else {
                state.take(at.node, old);
            }
        }
        if !moved {
            break;
        }
    }
    if state.excess() > 0 || problem.time(&state.choices).is_infinite() {
        return None;
    }
    state.improve();
    Some(state.choices)
}

impl<'a> State<'a> {
    pub(super) fn new(problem: &'a Problem, capacity: u64, choices: Vec<usize>) -> Self {
        let nodes = problem.times.len();
        let mut edges = vec![Vec::new(); nodes];
        for edge in &problem.edges {
            edges[edge.from].push(*edge);
            edges[edge.to].push(*edge);
        }
        let mut resident_of = vec![Vec::new(); nodes];
        for held in &problem.resident {
            resident_of[held.node].push(held.bytes);
        }
        let mut live_of = vec![Vec::new(); nodes];
        for live in &problem.live {
            live_of[live.held.node].push(*live);
        }
        let resident = problem.resident(&choices);
        let live = problem.live(&choices);
        Self { problem, capacity, choices, edges, resident_of, live_of, resident, live }
    }

    /// The bytes beyond the capacity, summed over the windows.
    pub(super) fn excess(&self) -> u64 {
        let beyond = |live: &u64| (self.resident + live).saturating_sub(self.capacity);
        self.live.iter().map(beyond).sum()
    }

    /// The time of a node and its edges if it took a choice (seconds).
    pub(super) fn time(&self, node: usize, choice: usize) -> f64 {
        let edge = |edge: &Edge| {
            let table = &self.problem.tables[edge.table];
            if edge.from == node {
                table.at(choice, self.choices[edge.to])
            } else {
                table.at(self.choices[edge.from], choice)
            }
        };
        self.problem.times[node][choice] + self.edges[node].iter().map(edge).sum::<f64>()
    }

    /// The edges of a node.
    pub(super) fn around(&self, node: usize) -> &[Edge] {
        &self.edges[node]
    }

    /// The window in which most is live.
    pub(super) fn fullest(&self) -> usize {
        (0..self.live.len()).max_by_key(|&window| (self.live[window], Reverse(window))).unwrap_or(0)
    }

    /// What a choice of a node holds in a window, with what it keeps resident (bytes).
    pub(super) fn held(&self, node: usize, choice: usize, window: usize) -> u64 {
        let there = |live: &&Live| live.windows().contains(&window);
        let live = self.live_of[node].iter().filter(there);
        live.map(|live| self.problem.bytes[live.held.bytes][choice]).sum::<u64>() + self.kept(node, choice)
    }

    /// The number of choices of a node.
    pub(super) fn choices_of(&self, node: usize) -> usize {
        self.problem.times[node].len()
    }

    /// Whether a choice of a node holds fewer bytes than its present one, resident or in a window.
    pub(super) fn frees(&self, node: usize, choice: usize) -> bool {
        let old = self.choices[node];
        let fewer = |&bytes: &usize| {
            let bytes = &self.problem.bytes[bytes];
            bytes[choice] < bytes[old]
        };
        let live = self.live_of[node].iter().map(|live| &live.held.bytes);
        self.resident_of[node].iter().chain(live).any(fewer)
    }

    fn kept(&self, node: usize, choice: usize) -> u64 {
        self.resident_of[node].iter().map(|&bytes| self.problem.bytes[bytes][choice]).sum()
    }

    /// What a move costs for each byte of the violated windows, if it frees any.
    fn price(&self, node: usize, choice: usize) -> Option<f64> {
        let violated = |live: u64| self.resident + live > self.capacity;
        let windows = self.live.iter().filter(|&&live| violated(live)).count();
        self.price_in(node, choice, u64::try_from(windows).ok()?, self.time(node, self.choices[node]))
    }

    fn price_in(&self, node: usize, choice: usize, windows: u64, time: f64) -> Option<f64> {
        let old = self.choices[node];
        let weighed = |choice: usize| {
            let live = self.live_of[node].iter().map(|at| {
                let violated = |&&live: &&u64| self.resident + live > self.capacity;
                let windows = self.live[at.windows()].iter().filter(violated).count();
                self.problem.bytes[at.held.bytes][choice] * u64::try_from(windows).unwrap_or(u64::MAX)
            });
            self.kept(node, choice) * windows + live.sum::<u64>()
        };
        let relief = weighed(old).checked_sub(weighed(choice)).filter(|&relief| relief > 0)?;
        let price = (self.time(node, choice) - time) / real(relief);
        (price < f64::INFINITY).then_some(price)
    }

    /// The move of a node that frees bytes at the least price.
    fn cheapest_relief(&self, node: usize) -> Option<Move> {
        if self.resident_of[node].is_empty() && self.live_of[node].is_empty() {
            return None;
        }
        let violated = |live: &&u64| self.resident + **live > self.capacity;
        let windows = u64::try_from(self.live.iter().filter(violated).count()).ok()?;
        let time = self.time(node, self.choices[node]);
        let moves = (0..self.problem.times[node].len()).filter_map(|choice| {
            let price = self.price_in(node, choice, windows, time)?;
            Some(Move { node, choice, price })
        });
        moves.min_by(|a, b| a.price.total_cmp(&b.price))
    }

    pub(super) fn take(&mut self, node: usize, choice: usize) {
        let old = self.choices[node];
        self.resident = self.resident + self.kept(node, choice) - self.kept(node, old);
        for at in &self.live_of[node] {
            let bytes = &self.problem.bytes[at.held.bytes];
            self.live[at.windows()].iter_mut().for_each(|live| *live = *live + bytes[choice] - bytes[old]);
        }
        self.choices[node] = choice;
    }

    /// Moves single nodes to choices that take less time, as long as everything fits.
    fn improve(&mut self) {
        for _ in 0..IMPROVEMENTS {
            let mut moved = false;
            for node in 0..self.choices.len() {
                moved |= self.improve_node(node);
            }
            if !moved {
                break;
            }
        }
    }

    fn improve_node(&mut self, node: usize) -> bool {
        let now = self.time(node, self.choices[node]);
        let mut better: Vec<(f64, usize)> = (0..self.problem.times[node].len())
            .map(|choice| (self.time(node, choice), choice))
            .filter(|(time, _)| *time < now - now.abs() * f64::EPSILON)
            .collect();
        better.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let old = self.choices[node];
        for (_, choice) in better {
            self.take(node, choice);
            if self.excess() == 0 {
                return true;
            }
            self.take(node, old);
        }
        false
    }
}
