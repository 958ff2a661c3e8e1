//! Assignments read off messages, and improved.

use super::network::{Messages, Network};
use crate::eliminate::first_least;

/// What a forbidden choice counts for while an assignment is looked for, in parts of all that others cost.
const FORBIDDEN: f64 = 1e4;

/// The most rounds of improving.
const ROUNDS: usize = 20;

impl Messages {
    /// An assignment that suits the messages, improved until no node and no pair of neighbours has better
    /// choices; nothing if it is forbidden.
    pub(super) fn decoded(&self, network: &Network<'_>) -> Option<(Vec<usize>, f64)> {
        let search = Decoding { network, messages: self, penalty: penalty(network) };
        let mut choices = search.read();
        for _ in 0..ROUNDS {
            if !(search.singles(&mut choices) | search.pairs(&mut choices)) {
                break;
            }
        }
        let cost = network.cost(&choices);
        (cost < f64::INFINITY).then_some((choices, cost))
    }
}

/// More than any assignment that is allowed costs.
fn penalty(network: &Network<'_>) -> f64 {
    let finite = |costs: &[f64]| -> f64 {
        costs.iter().filter(|it| **it < f64::INFINITY).fold(0.0, |most: f64, it| most.max(it.abs()))
    };
    let all: f64 = network.costs.iter().map(|it| finite(it)).sum();
    FORBIDDEN * (1.0 + all)
}

struct Decoding<'a> {
    network: &'a Network<'a>,
    messages: &'a Messages,
    penalty: f64,
}

impl Decoding<'_> {
    fn soft(&self, cost: f64) -> f64 {
        cost.min(self.penalty)
    }

    fn own(&self, node: usize) -> Vec<f64> {
        let own = self.network.costs[node].iter().zip(&self.messages.alive[node]);
        own.map(|(cost, alive)| if *alive { self.soft(*cost) } else { f64::INFINITY }).collect()
    }

    /// Adds what a link costs a node with the choice of its other end.
    fn add(&self, sums: &mut [f64], node: usize, number: usize, choices: &[usize]) {
        let link = &self.network.links()[number];
        let [a, b] = link.ends;
        let columns = self.network.costs[b].len();
        for (choice, sum) in sums.iter_mut().enumerate() {
            let at = if a == node { choice * columns + choices[b] } else { choices[a] * columns + choice };
            *sum += self.soft(link.table[at]);
        }
    }

    /// Each node's best choice beside those of earlier ones, as later ones say.
    fn read(&self) -> Vec<usize> {
        let mut choices = vec![0; self.network.costs.len()];
        for node in 0..choices.len() {
            let mut sums = self.own(node);
            for &number in self.network.around(node) {
                if self.network.links()[number].ends[1] == node {
                    self.add(&mut sums, node, number, &choices);
                } else {
                    let said = &self.messages.said[number][0];
                    sums.iter_mut().zip(said).for_each(|(sum, it)| *sum += it);
                }
            }
            choices[node] = first_least(sums.into_iter());
        }
        choices
    }

    /// What a node's choices cost beside those of all others but one.
    fn beside(&self, node: usize, without: Option<usize>, choices: &[usize]) -> Vec<f64> {
        let mut sums = self.own(node);
        let links = self.network.around(node).iter().filter(|&&it| Some(it) != without);
        links.for_each(|&number| self.add(&mut sums, node, number, choices));
        sums
    }

    fn singles(&self, choices: &mut [usize]) -> bool {
        let mut better = false;
        for node in 0..choices.len() {
            let sums = self.beside(node, None, choices);
            let best = first_least(sums.iter().copied());
            if self.gains(sums[choices[node]], sums[best]) {
                choices[node] = best;
                better = true;
            }
        }
        better
    }

    fn pairs(&self, choices: &mut [usize]) -> bool {
        let mut better = false;
        for (number, link) in self.network.links().iter().enumerate() {
            let [a, b] = link.ends;
            let sums = [a, b].map(|node| self.beside(node, Some(number), choices));
            let now = sums[0][choices[a]] + sums[1][choices[b]] + self.soft(self.network.at(link, choices));
            let mut best = (now, None);
            for (row, first) in sums[0].iter().enumerate().filter(|(_, first)| **first < now) {
                let columns = sums[1].len();
                let table = &link.table[row * columns..][..columns];
                for (column, (second, together)) in sums[1].iter().zip(table).enumerate() {
                    let cost = first + second + self.soft(*together);
                    if cost < best.0 {
                        best = (cost, Some((row, column)));
                    }
                }
            }
            if let (cost, Some((row, column))) = best
                && self.gains(now, cost)
            {
                (choices[a], choices[b]) = (row, column);
                better = true;
            }
        }
        better
    }

    /// Whether something is less by more than rounding.
    fn gains(&self, before: f64, after: f64) -> bool {
        after < before - 1e-12 * before.abs()
    }
}
