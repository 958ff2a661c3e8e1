//! Which nodes of a graph cannot be told apart by their neighbours.
//!
//! Nodes start in given classes. Nodes of a class are parted if, by some label, they have different
//! numbers of neighbours in some class, until none are. Then all nodes of a class see the same:
//! what happens to one, if it follows from its neighbours, happens to all.
//!
//! Source: colour refinement; Weisfeiler and Leman, "The reduction of a graph to canonical form",
//! Nauchno-Technicheskaya Informatsia 2(9), 1968.

use std::collections::BTreeMap;

/// Nodes that are joined, and the label of what joins them.
pub(crate) type Edge = (usize, usize, usize);

/// For each node its class: 0 and on, in the order of their first nodes.
pub(crate) fn refined(first: &[usize], edges: &[Edge]) -> Vec<usize> {
    let mut near: Vec<Vec<(usize, usize)>> = vec![Vec::new(); first.len()];
    for &(one, other, label) in edges {
        near[one].push((label, other));
        near[other].push((label, one));
    }
    let mut classes = numbered(first.iter());
    loop {
        let seen = near.iter().zip(&classes).map(|(near, &own)| {
            let mut seen: Vec<(usize, usize)> =
                near.iter().map(|&(label, it)| (label, classes[it])).collect();
            seen.sort_unstable();
            (own, seen)
        });
        let seen: Vec<(usize, Vec<(usize, usize)>)> = seen.collect();
        let next = numbered(seen.iter());
        if next == classes {
            return classes;
        }
        classes = next;
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
