//! Softmax and normalisations against their definitions.

use arbtest::arbtest;
use half::f16;
use planner_ir::{Op, Real};

use crate::Array;
use crate::naive::{Numbers, arbitrary, check, check_blocks, every_index, one};

const EPSILON: Real = Real(1e-3);

#[test]
fn rows_in_any_dimension_sum_to_one() {
    arbtest(|u| {
        let shape = [u.int_in_range(1..=3)?, 2 * u.int_in_range(1..=9)?, 2 * u.int_in_range(1..=2)?];
        let x = arbitrary(u, &shape)?;
        let numbers = Numbers::of(&x);
        for dim in 0..3 {
            let softmax = |index: &[u64]| {
                let at = |place: u64| {
                    let mut index = index.to_vec();
                    index[dim] = place;
                    numbers.at(&index).exp()
                };
                numbers.at(index).exp() / (0..shape[dim]).map(at).sum::<f64>()
            };
            check(&one(&Op::Softmax { dim }, &[&x]), softmax);
            check(&one(&Op::LogSoftmax { dim }, &[&x]), |index| softmax(index).ln());
        }
        check_blocks(&Op::Softmax { dim: 2 }, &[(&x, Some(1))], &[Some(1)], 2);
        check_blocks(&Op::Softmax { dim: 1 }, &[(&x, Some(2))], &[Some(2)], 2);
        Ok(())
    });
}

#[test]
fn large_and_hidden_scores_are_no_problem_unless_all_are_hidden() {
    let x = Array::of([2, 2], &[1000.0_f32, f32::NEG_INFINITY, 1000.0, 1000.0]).unwrap();
    let found = one(&Op::Softmax { dim: 1 }, &[&x]);
    assert_eq!(found.elements::<f32>().unwrap(), [1.0, 0.0, 0.5, 0.5]);
    let x = Array::of([1, 2], &[f32::NEG_INFINITY; 2]).unwrap();
    for dim in [0, 1] {
        check(&one(&Op::Softmax { dim }, &[&x]), |_| f64::NAN);
    }
}

#[test]
fn samples_are_normalised() {
    arbtest(|u| {
        let shape = [2, u.int_in_range(1..=3)?, u.int_in_range(1..=20)?];
        let x = arbitrary(u, &shape)?;
        let dims = u.int_in_range(1..=2)?;
        let sample = &shape[3 - dims..];
        // Scale and bias are rows, or are broadcast in some other way.
        let other: &[u64] = if u.arbitrary()? { sample } else { &[1] };
        let (scale, bias) = (arbitrary(u, other)?, arbitrary(u, other)?);
        let [numbers, factors, offsets] = [&x, &scale, &bias].map(Numbers::of);
        let mean = |index: &[u64], f: &dyn Fn(f64) -> f64| {
            let all = every_index(sample).into_iter();
            let sum: f64 = all.map(|at| f(numbers.at(&[&index[..3 - dims], &at].concat()))).sum();
            sum / f64::from(u32::try_from(sample.iter().product::<u64>()).unwrap())
        };
        let plain = |index: &[u64]| {
            let middle = mean(index, &|x| x);
            let variance = mean(index, &|x| (x - middle) * (x - middle));
            (numbers.at(index) - middle) / (variance + EPSILON.0).sqrt() * factors.at(index)
        };
        let op = Op::LayerNorm { dims, epsilon: EPSILON };
        check(&one(&op, &[&x, &scale]), plain);
        check(&one(&op, &[&x, &scale, &bias]), |index| plain(index) + offsets.at(index));
        check_blocks(&op, &[(&x, Some(0)), (&scale, None), (&bias, None)], &[Some(0)], 2);
        let op = Op::RmsNorm { dims, epsilon: EPSILON };
        check(&one(&op, &[&x, &scale]), |index| {
            let square = mean(index, &|x| x * x);
            numbers.at(index) / (square + EPSILON.0).sqrt() * factors.at(index)
        });
        Ok(())
    });
}

#[test]
fn channels_are_normalised() {
    arbtest(|u| {
        let x = arbitrary(u, &[2, 2, 3, 2])?;
        let (scale, bias) = (arbitrary(u, &[2])?, arbitrary(u, &[2])?);
        let [numbers, factors, offsets] = [&x, &scale, &bias].map(Numbers::of);
        let op = Op::InstanceNorm { epsilon: EPSILON };
        check(&one(&op, &[&x, &scale, &bias]), |index| {
            let all = || every_index(&[3, 2]).into_iter().map(|at| numbers.at(&[&index[..2], &at].concat()));
            let middle = all().sum::<f64>() / 6.0;
            let variance = all().map(|x| (x - middle) * (x - middle)).sum::<f64>() / 6.0;
            let plain = (numbers.at(index) - middle) / (variance + EPSILON.0).sqrt();
            plain * factors.at(&index[1..2]) + offsets.at(&index[1..2])
        });
        check_blocks(&op, &[(&x, Some(1)), (&scale, Some(0)), (&bias, Some(0))], &[Some(1)], 2);
        Ok(())
    });
}

#[test]
fn squares_beyond_half_precision_do_no_harm() {
    let x = Array::of([1, 2], &[f16::from_f32(300.0), f16::from_f32(-300.0)]).unwrap();
    let scale = Array::of([2], &[f16::from_f32(1.0), f16::from_f32(2.0)]).unwrap();
    let found = one(&Op::RmsNorm { dims: 1, epsilon: EPSILON }, &[&x, &scale]);
    assert_eq!(found.elements::<f16>().unwrap(), [f16::from_f32(1.0), f16::from_f32(-2.0)]);
}
