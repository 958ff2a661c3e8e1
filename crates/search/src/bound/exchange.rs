//! Improvement of an assignment that fits by pairs of moves: one takes less time and more memory,
//! the other pays for it.

use super::repair::State;
use crate::problem::Problem;

/// The most pairs that are looked at.
const PAIRS: usize = 1_000_000;

/// The most passes over all nodes.
const PASSES: usize = 20;

/// A move that frees memory somewhere, and what it costs by itself (seconds).
struct Relief {
    cost: f64,
    node: usize,
    choice: usize,
}

/// An assignment that takes no more time.
pub(super) fn exchange(problem: &Problem, capacity: u64, choices: Vec<usize>) -> Vec<usize> {
    let mut state = State::new(problem, capacity, choices);
    let mut left = PAIRS;
    for _ in 0..PASSES {
        let reliefs = reliefs(&state);
        let mut moved = false;
        for node in 0..problem.times.len() {
            for choice in 0..problem.times[node].len() {
                let gain = state.time(node, state.choices[node]) - state.time(node, choice);
                if gain > 0.0 {
                    moved |= gain_by(&mut state, &reliefs, &mut left, (node, choice, gain));
                }
            }
        }
        if !moved || left == 0 {
            break;
        }
    }
    state.choices
}

/// Makes a move that gains time, and another that costs less than that, if both together fit.
fn gain_by(
    state: &mut State<'_>,
    reliefs: &[Relief],
    left: &mut usize,
    (node, choice, gain): (usize, usize, f64),
) -> bool {
    let old = state.choices[node];
    let rounding = gain * f64::EPSILON + state.time(node, old).abs() * f64::EPSILON;
    if gain <= rounding {
        return false;
    }
    state.take(node, choice);
    if state.excess() == 0 {
        return true;
    }
    for relief in reliefs.iter().take_while(|relief| relief.cost < gain) {
        if relief.node == node || relief.choice == state.choices[relief.node] {
            continue;
        }
        let Some(fewer) = left.checked_sub(1) else {
            break;
        };
        *left = fewer;
        let before = state.choices[relief.node];
        let cost = state.time(relief.node, relief.choice) - state.time(relief.node, before);
        if cost >= gain - rounding {
            continue;
        }
        state.take(relief.node, relief.choice);
        if state.excess() == 0 {
            return true;
        }
        state.take(relief.node, before);
    }
    state.take(node, old);
    false
}

/// All moves that free memory, by cost.
fn reliefs(state: &State<'_>) -> Vec<Relief> {
    let mut reliefs = Vec::new();
    for (node, &old) in state.choices.iter().enumerate() {
        let now = state.time(node, old);
        for choice in (0..state.choices_of(node)).filter(|&choice| state.frees(node, choice)) {
            let cost = state.time(node, choice) - now;
            if cost < f64::INFINITY {
                reliefs.push(Relief { cost, node, choice });
            }
        }
    }
    let by_cost = |a: &Relief, b: &Relief| a.cost.total_cmp(&b.cost);
    reliefs.sort_by(|a, b| by_cost(a, b).then((a.node, a.choice).cmp(&(b.node, b.choice))));
    reliefs
}
