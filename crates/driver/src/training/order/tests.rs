//! Tests of orders.

use super::*;

const START: Position = Position { epoch: 0, used: 0 };

#[test]
fn an_epoch_has_each_example_once_but_for_what_fills_no_step() {
    for examples in 1..40 {
        for per_step in 1..=examples.min(5) {
            let mut order = Order::new(7, examples, per_step, START);
            for epoch in 0..3 {
                let mut seen: Vec<u64> = (0..examples / per_step).flat_map(|_| order.step()).collect();
                assert_eq!(order.position().epoch, epoch);
                seen.sort_unstable();
                let count = seen.len();
                seen.dedup();
                assert_eq!(seen.len(), count);
                assert_eq!(count as u64, examples - examples % per_step);
                assert!(seen.iter().all(|it| *it < examples));
            }
        }
    }
}

#[test]
fn an_order_goes_on_from_any_position_also_in_other_steps() {
    let mut whole = Order::new(3, 20, 1, START);
    let all: Vec<u64> = (0..60).flat_map(|_| whole.step()).collect();
    for start in 0..40 {
        let position = Position { epoch: start / 20, used: start % 20 };
        let mut rest = Order::new(3, 20, 1, position);
        let rest: Vec<u64> = (start..60).flat_map(|_| rest.step()).collect();
        assert_eq!(rest, all[usize::try_from(start).unwrap()..]);
    }
    let mut wide = Order::new(3, 20, 4, Position { epoch: 0, used: 8 });
    assert_eq!(wide.step(), all[8..12]);
    // What is left fills no step of this size.
    let mut wide = Order::new(3, 20, 4, Position { epoch: 0, used: 18 });
    assert_eq!(wide.step(), all[20..24]);
}

#[test]
fn seeds_and_epochs_have_orders_of_their_own_and_all_orders_occur() {
    assert_ne!(shuffled(30, 1, 0), shuffled(30, 2, 0));
    assert_ne!(shuffled(30, 1, 0), shuffled(30, 1, 1));
    let mut counts = std::collections::BTreeMap::new();
    for epoch in 0..2400 {
        *counts.entry(shuffled(4, 5, epoch)).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 24);
    // 100 are expected of each; six standard deviations are 59.
    assert!(counts.values().all(|count| (41..160).contains(count)), "{counts:?}");
}

#[test]
fn each_step_has_chances_of_its_own_and_each_of_its_micro_batches() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..3 {
        for step in 1..30 {
            for micro_batch in 0..10 {
                let number = dropout_seed(seed, step, micro_batch);
                assert_eq!(number, dropout_seed(seed, step, micro_batch));
                assert!(number >= 0);
                // A thousand dropouts have numbers of their own too.
                seen.insert(number / 1000);
            }
            // So have a thousand blocks of parameters, apart from these.
            let number = rounding_seed(seed, step);
            assert!(number >= 0);
            seen.insert(number / 1000);
        }
    }
    assert_eq!(seen.len(), 3 * 29 * 11);
}
