//! Assignments between two: parts of the one in place of parts of the other.
//!
//! Nodes in which two assignments differ, and the edges between them, form parts. A part that is switched from one
//! assignment to the other changes the time by as much whatever is done about the others, as all around it is the
//! same in both. So of all the assignments between two it is known what they take, and the best that fits is sought
//! as things are packed: what gains most for each byte first, and instead of one thing another.

use super::repair::State;
use super::{EXACT, Search};
use crate::problem::{Problem, real};

/// The most rounds over all others.
const ROUNDS: usize = 2;

/// The most pairs of parts that are tried in a round, one of which gains time and the other makes room.
const PAIRS: usize = 128;

/// Nodes that are switched together.
struct Part {
    /// The nodes, and what they choose in the other assignment.
    nodes: Vec<(usize, usize)>,
    /// How much less time it takes so (seconds).
    gain: f64,
}

/// Improves the best assignment by parts of others.
pub(super) fn switch(search: &mut Search<'_>, others: &[Vec<usize>]) {
    let Some((choices, before)) = &search.best else { return };
    let problem = &search.flat.problem;
    let choices = improved(problem, search.capacity, choices, others);
    let time = problem.time(&choices);
    if time < *before {
        search.best = Some((choices, time));
    }
}

/// An assignment that fits, with parts of others in it that make it faster.
fn improved(problem: &Problem, capacity: u64, choices: &[usize], others: &[Vec<usize>]) -> Vec<usize> {
    let mut state = State::new(problem, capacity, choices.to_vec());
    for _ in 0..ROUNDS {
        let mut moved = false;
        for other in others {
            moved |= packed(problem, &mut state, other);
        }
        if !moved {
            break;
        }
    }
    state.choices
}

/// Switches parts that gain, as far as they fit; whether there is one.
fn packed(problem: &Problem, state: &mut State<'_>, other: &[usize]) -> bool {
    let mut parts = parts(problem, state, other);
    let least = EXACT * problem.time(&state.choices).abs();
    let peak = state.fullest();
    let held =
        |part: &Part| part.nodes.iter().map(|&(node, choice)| state.grows(node, choice, peak)).sum::<f64>();
    let by_byte = |part: &Part| match held(part) {
        bytes if bytes > 0.0 => part.gain / bytes,
        _ if part.gain >= 0.0 => f64::INFINITY,
        bytes => part.gain / -bytes,
    };
    let worth: Vec<f64> = parts.iter().map(by_byte).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|&a, &b| worth[b].total_cmp(&worth[a]).then(a.cmp(&b)));
    order.retain(|&at| parts[at].gain > least);
    let mut moved = false;
    let mut left = Vec::new();
    for at in order {
        if switched(state, &mut parts[at]) {
            moved = true;
        } else {
            left.push(at);
        }
    }
    // What takes longer and makes room for what gains more, the least loss first; what was switched back too.
    let mut losses: Vec<usize> = (0..parts.len()).filter(|&at| parts[at].gain < 0.0).collect();
    losses.sort_by(|&a, &b| parts[b].gain.total_cmp(&parts[a].gain).then(a.cmp(&b)));
    let mut pairs = PAIRS;
    for at in left {
        for &loss in &losses {
            if pairs == 0 || parts[at].gain <= least || parts[at].gain + parts[loss].gain <= least {
                break;
            }
            pairs -= 1;
            if parts[loss].gain < 0.0 {
                state.switch(&mut parts[loss].nodes);
                if switched(state, &mut parts[at]) {
                    parts[loss].gain = -parts[loss].gain;
                    moved = true;
                } else {
                    state.switch(&mut parts[loss].nodes);
                }
            }
        }
    }
    moved
}

/// Switches a part, if everything fits then; whether it does.
fn switched(state: &mut State<'_>, part: &mut Part) -> bool {
    state.switch(&mut part.nodes);
    if state.excess() > 0 {
        state.switch(&mut part.nodes);
        return false;
    }
    part.gain = -part.gain;
    true
}

/// The parts in which an assignment differs from another one.
fn parts(problem: &Problem, state: &State<'_>, other: &[usize]) -> Vec<Part> {
    let own = &state.choices;
    let differs: Vec<bool> = own.iter().zip(other).map(|(a, b)| a != b).collect();
    // Which part a node is of, that with the number of one of its nodes.
    let mut of: Vec<Option<usize>> = vec![None; own.len()];
    let mut parts: Vec<Part> = Vec::new();
    for first in (0..own.len()).filter(|&it| differs[it]) {
        if of[first].is_some() {
            continue;
        }
        let number = parts.len();
        of[first] = Some(number);
        let mut nodes = vec![first];
        let mut next = 0;
        while let Some(&node) = nodes.get(next) {
            next += 1;
            for edge in state.around(node) {
                let end = edge.other(node);
                if differs[end] && of[end].is_none() {
                    of[end] = Some(number);
                    nodes.push(end);
                }
            }
        }
        parts.push(Part { nodes: nodes.into_iter().map(|node| (node, other[node])).collect(), gain: 0.0 });
    }
    for (node, part) in of.iter().enumerate() {
        if let Some(part) = *part {
            parts[part].gain += problem.times[node][own[node]] - problem.times[node][other[node]];
        }
    }
    for edge in &problem.edges {
        let Some(part) = of[edge.from].or(of[edge.to]) else { continue };
        let table = &problem.tables[edge.table];
        parts[part].gain +=
            table.at(own[edge.from], own[edge.to]) - table.at(other[edge.from], other[edge.to]);
    }
    parts
}

impl State<'_> {
    /// Nodes with their other choices, which they then have to go back.
    fn switch(&mut self, nodes: &mut [(usize, usize)]) {
        for (node, choice) in nodes {
            let old = self.choices[*node];
            self.take(*node, *choice);
            *choice = old;
        }
    }

    /// How much more a choice of a node holds in a window (bytes).
    fn grows(&self, node: usize, choice: usize, window: usize) -> f64 {
        let [after, before] = [choice, self.choices[node]].map(|it| real(self.held(node, it, window)));
        after - before
    }
}

#[cfg(test)]
mod tests;
