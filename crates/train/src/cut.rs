//! Minimum cuts of networks: what to part at least cost.

use std::collections::VecDeque;

/// A network with a source and a sink, in which capacities are whole numbers.
///
/// Source: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
/// estimation", 1970.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// For each place, the arcs that leave it.
    arcs: Vec<Vec<usize>>,
    /// For each arc, where it leads, and what it can still take. Arcs come in pairs, there and back.
    ends: Vec<(usize, u128)>,
}

/// A capacity that no cut pays.
pub(crate) const NEVER: u128 = u128::MAX / 4;

impl Network {
    /// Where flow comes from.
    pub(crate) const SOURCE: usize = 0;
    /// Where flow goes to.
    pub(crate) const SINK: usize = 1;

    /// A network of so many places, the source and the sink among them, without arcs.
    pub(crate) fn new(places: usize) -> Self {
        Self { arcs: vec![Vec::new(); places], ends: Vec::new() }
    }

    /// Adds an arc: what a cut pays that has its start on the source's side and its end on the
    /// other.
    pub(crate) fn arc(&mut self, from: usize, to: usize, capacity: u128) {
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.arcs[from].push(self.ends.len());
            self.ends.push((to, capacity));
        }
    }

    /// For each place, whether it is on the source's side of the cheapest cut; of several cuts, of
    /// that with the fewest places there.
    pub(crate) fn cut(mut self) -> Vec<bool> {
        loop {
            let levels = self.levels();
            if levels[Self::SINK].is_none() {
                return levels.iter().map(Option::is_some).collect();
            }
            let mut next = vec![0; self.arcs.len()];
            while self.push(&levels, &mut next) {}
        }
    }

    /// For each place, how many arcs away from the source it is, by arcs that can take more.
    fn levels(&self) -> Vec<Option<usize>> {
        let mut levels = vec![None; self.arcs.len()];
        levels[Self::SOURCE] = Some(0);
        let mut queue = VecDeque::from([(Self::SOURCE, 0)]);
        while let Some((place, level)) = queue.pop_front() {
            for &arc in &self.arcs[place] {
                let (to, capacity) = self.ends[arc];
                if capacity > 0 && levels[to].is_none() {
                    levels[to] = Some(level + 1);
                    queue.push_back((to, level + 1));
                }
            }
        }
        levels
    }

    /// Sends as much as fits along one path that leads a level up with each arc, if there is one.
    /// `next` has for each place its first arc that may still be of such a path.
    fn push(&mut self, levels: &[Option<usize>], next: &mut [usize]) -> bool {
        let mut path: Vec<usize> = Vec::new();
        loop {
            let place = path.last().map_or(Self::SOURCE, |&arc| self.ends[arc].0);
            if place == Self::SINK {
                break;
            }
            match self.arcs[place].get(next[place]) {
                Some(&arc) => {
                    let (to, capacity) = self.ends[arc];
                    let up = levels[to] == levels[place].map(|level| level + 1);
                    if capacity > 0 && up { path.push(arc) } else { next[place] += 1 }
                }
                // No path leads on from here.
                None => match path.pop() {
                    Some(arc) => next[self.ends[arc ^ 1].0] += 1,
                    None => return false,
                },
            }
        }
        let flow = path.iter().map(|&arc| self.ends[arc].1).min().unwrap_or(0);
        for arc in path {
            self.ends[arc].1 -= flow;
            self.ends[arc ^ 1].1 += flow;
        }
        flow > 0
    }
}

#[cfg(test)]
mod tests;
