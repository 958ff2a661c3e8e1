//! By which adapters work enters nodes.
//!
//! Work that may enter a node by several takes that by which least enters so far, of equal ones the
//! first: what can enter by one only is counted before, and what is larger chooses before what is
//! smaller.

use super::{Problem, Work};

/// The same work, which enters each node by one adapter.
pub(super) fn entered(problem: &Problem) -> Problem {
    let mut load = vec![0_u64; problem.adapters];
    for work in &problem.works {
        for entries in &work.receivers {
            if let [only] = entries[..] {
                load[only] += work.bytes;
            }
        }
    }
    let mut works: Vec<Work> = problem.works.clone();
    let mut largest: Vec<usize> = (0..works.len()).collect();
    largest.sort_by_key(|&it| u64::MAX - works[it].bytes);
    for index in largest {
        let Work { receivers, bytes, .. } = &mut works[index];
        for entries in receivers.iter_mut().filter(|entries| entries.len() > 1) {
            if let Some(least) = entries.iter().copied().min_by_key(|&it| load[it]) {
                load[least] += *bytes;
                *entries = vec![least];
            }
        }
    }
    Problem { adapters: problem.adapters, works }
}
