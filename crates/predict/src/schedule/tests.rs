//! Closed forms against pipelines that are played through, and against published bubbles.

use super::*;

/// The time of 1F1B on equal stages, played through: each stage does forward passes until it has
/// `p − stage` of them open, then backward and forward in turn, as soon as what it needs is there.
fn played(p: usize, m: usize, forward: f64, backward: f64) -> f64 {
    let order = |stage: usize| -> Vec<(bool, usize)> {
        let open = (p - stage).min(m);
        let mut passes: Vec<_> = (0..open).map(|it| (true, it)).collect();
        for it in 0..m {
            passes.push((false, it));
            if it + open < m {
                passes.push((true, it + open));
            }
        }
        passes
    };
    let (mut ends, mut clock) = (std::collections::BTreeMap::new(), vec![0.0_f64; p]);
    let mut left: Vec<_> =
        (0..p).map(|stage| order(stage).into_iter().collect::<std::collections::VecDeque<_>>()).collect();
    while left.iter().any(|it| !it.is_empty()) {
        for stage in 0..p {
            while let Some(&(is_forward, batch)) = left[stage].front() {
                let before = match (is_forward, stage) {
                    (true, 0) => Some(0.0),
                    (true, _) => ends.get(&(true, stage - 1, batch)).copied(),
                    (false, _) if stage + 1 == p => ends.get(&(true, stage, batch)).copied(),
                    (false, _) => ends.get(&(false, stage + 1, batch)).copied(),
                };
                let Some(ready) = before else { break };
                clock[stage] = clock[stage].max(ready) + if is_forward { forward } else { backward };
                ends.insert((is_forward, stage, batch), clock[stage]);
                left[stage].pop_front();
            }
        }
    }
    clock.into_iter().fold(0.0, f64::max)
}

#[test]
fn one_forward_one_backward_takes_what_playing_it_takes() {
    for (p, m) in [(1, 3), (2, 2), (4, 4), (4, 9), (8, 24)] {
        let stage = Stage { forward: 2.0, input: 3.0, weight: 1.0, message: 0.0 };
        let as_number = |it: usize| f64::from(u32::try_from(it).unwrap());
        let closed = makespan(Order::OneForwardOneBackward, &stage, as_number(p), as_number(m));
        let found = played(p, m, 2.0, 4.0);
        assert!((closed / found - 1.0).abs() < 1e-12, "{p} stages, {m} micro-batches: {closed}, not {found}");
    }
}

/// Source: Qi et al., ICLR 2024, table 5, the first rows, with the times of table 9.
#[test]
fn bubbles_are_those_that_are_published() {
    let stage = Stage { forward: 18.522, input: 18.086, weight: 9.337, message: 0.601 };
    let orders = [
        (Order::OneForwardOneBackward, 0.2431),
        (Order::Interleaved(3.0), 0.1055),
        (Order::ZeroBubbleH1, 0.1585),
        (Order::ZeroBubbleH2, 0.1083),
    ];
    for (order, published) in orders {
        let found = 1.0 - 24.0 * stage.whole() / makespan(order, &stage, 8.0, 24.0);
        assert!((found - published).abs() < 1e-4, "{order:?}: {found}, not {published}");
    }
}
