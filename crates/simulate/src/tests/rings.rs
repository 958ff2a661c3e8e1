//! Collectives as messages around a ring, against their closed forms.

use crate::{Flow, Schedule, Task, run};

const LATENCY: f64 = 2e-6;
const RATE: f64 = 4e9;

/// Rounds in which each of `n` ranks sends a part to the next one, and needs what it got in the
/// round before.
fn rounds(n: usize, rounds: usize, bytes: f64) -> f64 {
    let mut schedule = Schedule::default();
    let links: Vec<_> = (0..n).map(|_| schedule.link(RATE)).collect();
    let mut sent: Vec<Option<Task>> = vec![None; n];
    for _ in 0..rounds {
        let send = |rank: usize| {
            let flow = Flow { latency: LATENCY, bytes, rate: RATE, uses: vec![(links[rank], 1.0)] };
            let gotten = sent[(rank + n - 1) % n];
            let before: Vec<Task> = gotten.into_iter().chain(sent[rank]).collect();
            Some(schedule.moving(flow, &before))
        };
        sent = (0..n).map(send).collect();
    }
    run(&schedule).unwrap().last()
}

fn real(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap())
}

#[test]
fn an_all_gather_takes_its_closed_form() {
    for n in [2, 3, 8, 16] {
        for size in [1e3, 1e6, 1e9] {
            let closed = (real(n) - 1.0) * (LATENCY + size / (real(n) * RATE));
            let found = rounds(n, n - 1, size / real(n));
            assert!((found / closed - 1.0).abs() < 1e-3, "{n} ranks, {size} bytes: {found} {closed}");
        }
    }
}

#[test]
fn an_all_reduce_takes_its_closed_form() {
    for n in [2, 5, 8] {
        let size = 3e8;
        let closed = 2.0 * (real(n) - 1.0) * (LATENCY + size / (real(n) * RATE));
        assert!((rounds(n, 2 * (n - 1), size / real(n)) / closed - 1.0).abs() < 1e-3);
    }
}

#[test]
fn a_chain_in_pieces_takes_its_closed_form() {
    // A broadcast from the first of n ranks in K pieces: (n - 2 + K) times a piece.
    let (n, pieces, size) = (6, 32, 1e8);
    let mut schedule = Schedule::default();
    let links: Vec<_> = (1..n).map(|_| schedule.link(RATE)).collect();
    let piece = size / real(pieces);
    let mut last: Vec<Option<Task>> = vec![None; links.len()];
    for _ in 0..pieces {
        let mut gotten = None;
        for (hop, link) in links.iter().enumerate() {
            let flow = Flow { latency: LATENCY, bytes: piece, rate: RATE, uses: vec![(*link, 1.0)] };
            let before: Vec<Task> = gotten.into_iter().chain(last[hop]).collect();
            gotten = Some(schedule.moving(flow, &before));
            last[hop] = gotten;
        }
    }
    let closed = real(n - 2 + pieces) * (LATENCY + piece / RATE);
    assert!((run(&schedule).unwrap().last() / closed - 1.0).abs() < 1e-3);
}
