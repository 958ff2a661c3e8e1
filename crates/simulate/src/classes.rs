//! Which nodes of a graph cannot be told apart by their neighbours.
//!
//! Nodes start in given classes. Nodes of a class are parted if, by some label, they have different
//! numbers of neighbours in some class, until none are. Then all nodes of a class see the same:
//! what happens to one, if it follows from its neighbours, happens to all.
//!
//! Source: colour refinement; Weisfeiler and Leman, "The reduction of a graph to canonical form",
//! Nauchno-Technicheskaya Informatsia 2(9), 1968.

use std::collections::BTreeMap;
use std::ops::Range;

/// Nodes that are joined, and the label of what joins them.
pub(crate) type Edge = (usize, usize, usize);

/// For each node its class: 0 and on, in the order of their first nodes.
pub(crate) fn refined(first: &[usize], edges: &[Edge]) -> Vec<usize> {
    let near = Near::of(first.len(), edges);
    let mut classes = numbered(first.iter());
    // What each node sees, one after another: labels and classes.
    let mut seen: Vec<(usize, usize)> = vec![(0, 0); near.all.len()];
    loop {
        for node in 0..classes.len() {
            let places = near.places(node);
            let of = near.all[places.clone()].iter().map(|&(label, it)| (label, classes[it]));
            seen[places.clone()].iter_mut().zip(of).for_each(|(seen, it)| *seen = it);
            seen[places].sort_unstable();
        }
        let next = numbered((0..classes.len()).map(|node| (classes[node], &seen[near.places(node)])));
        if next == classes {
            return classes;
        }
        classes = next;
    }
}

/// The neighbours of nodes and the labels of what joins them, one node after another.
struct Near {
    all: Vec<(usize, usize)>,
    starts: Vec<usize>,
}

impl Near {
    fn of(nodes: usize, edges: &[Edge]) -> Self {
        let mut starts = vec![0; nodes + 1];
        edges.iter().flat_map(|edge| [edge.0, edge.1]).for_each(|node| starts[node + 1] += 1);
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let (mut all, mut ends) = (vec![(0, 0); 2 * edges.len()], starts.clone());
        for &(one, other, label) in edges {
            for (node, near) in [(one, other), (other, one)] {
                all[ends[node]] = (label, near);
                ends[node] += 1;
            }
        }
        Self { all, starts }
    }

    fn places(&self, node: usize) -> Range<usize> {
        self.starts[node]..self.starts[node + 1]
    }
}

/// Each thing's number: equal ones have the same, in the order of their first places.
pub(crate) fn numbered<T: Ord>(things: impl Iterator<Item = T>) -> Vec<usize> {
    let mut numbers: BTreeMap<T, usize> = BTreeMap::new();
    things
        .map(|thing| {
            let next = numbers.len();
            *numbers.entry(thing).or_insert(next)
        })
        .collect()
}
