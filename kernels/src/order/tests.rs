//! Extremes against sorting.

use arbtest::arbtest;
use planner_ir::{Extreme, Op};

use crate::naive::{Numbers, arbitrary, check, check_blocks, one};
use crate::{Array, evaluate};

#[test]
fn extremes_come_in_order_and_equals_by_index() {
    arbtest(|u| {
        let x = arbitrary(u, &[2, 5, 2])?;
        let numbers = Numbers::of(&x);
        for extreme in [Extreme::Largest, Extreme::Smallest] {
            let sorted = |index: &[u64]| {
                let mut order: Vec<u64> = (0..5).collect();
                let key = |&at: &u64| numbers.at(&[index[0], at, index[2]]);
                order.sort_by(|a, b| {
                    let ascending = key(a).total_cmp(&key(b));
                    if extreme == Extreme::Largest { ascending.reverse() } else { ascending }
                });
                order
            };
            let found = evaluate(&Op::TopK { dim: 1, k: 3, extreme }, &[&x]).unwrap();
            let rank = |index: &[u64]| usize::try_from(index[1]).unwrap();
            check(&found[1], |index| f64::from(u32::try_from(sorted(index)[rank(index)]).unwrap()));
            check(&found[0], |index| numbers.at(&[index[0], sorted(index)[rank(index)], index[2]]));
            let op = Op::ArgExtreme { extreme, dim: 1 };
            check(&one(&op, &[&x]), |index| f64::from(u32::try_from(sorted(index)[0]).unwrap()));
            check_blocks(&op, &[(&x, Some(2))], &[Some(2)], 2);
            check_blocks(&Op::TopK { dim: 1, k: 3, extreme }, &[(&x, Some(0))], &[Some(0), Some(0)], 2);
        }
        Ok(())
    });
}

#[test]
fn what_is_not_a_number_is_the_largest() {
    let x = Array::of([4], &[1.0_f32, f32::NAN, 3.0, f32::NAN]).unwrap();
    let found = evaluate(&Op::TopK { dim: 0, k: 4, extreme: Extreme::Largest }, &[&x]).unwrap();
    assert_eq!(found[1].to_integers().unwrap(), [1, 3, 2, 0]);
}
