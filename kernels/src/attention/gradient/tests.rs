//! Gradients of attention and of rotation against differences.

use arbtest::arbitrary::Result;
use arbtest::arbtest;
use planner_ir::{Attention, Blind, Op, Pairing, Real};

use crate::finite::{check_gradients, check_narrow, check_narrow_beside, check_near, smooth};
use crate::{Array, evaluate};

const PLAIN: Attention = Attention {
    scale: Real(0.5),
    causal: false,
    softcap: Real(0.0),
    window: None,
    blind: Blind::Zero,
    sinks: false,
    statistics: true,
};

/// Which operand of the gradient the statistics are.
const STATISTICS: usize = 4;

/// The gradients of attention of these operands, and perhaps a mask.
fn gradients(attention: Attention, operands: &[&Array], dy: &Array, mask: bool) -> Vec<Array> {
    let made = evaluate(&Op::Attention(attention), operands).unwrap();
    let mut given = operands[..3].to_vec();
    given.extend([&made[0], &made[1], dy]);
    given.extend(&operands[3..]);
    let op = Op::AttentionGradient { attention, mask };
    check_narrow_beside(&op, &given, &[STATISTICS]);
    evaluate(&op, &given).unwrap()
}

#[test]
fn queries_keys_values_and_masks_have_gradients() {
    arbtest(|u| {
        let [b, g, each, s, t, d, e] = {
            let mut draw = |high| u.int_in_range(1..=high);
            [draw(2)?, draw(2)?, draw(2)?, draw(4)?, draw(5)?, draw(3)?, draw(3)?]
        };
        let h = g * each;
        let (q, k, v) = (smooth(u, &[b, h, s, d])?, smooth(u, &[b, g, t, d])?, smooth(u, &[b, g, t, e])?);
        let dy = smooth(u, &[b, h, s, e])?;
        let attention = Attention {
            causal: u.arbitrary()?,
            softcap: Real(if u.arbitrary()? { 1.5 } else { 0.0 }),
            window: if u.arbitrary()? { Some(u.int_in_range(1..=4)?) } else { None },
            ..PLAIN
        };
        let forward = Op::Attention(attention);
        let found = gradients(attention, &[&q, &k, &v], &dy, false);
        let pairs: Vec<(usize, &Array)> = found.iter().enumerate().collect();
        check_gradients(&forward, &[&q, &k, &v], &dy, &pairs);

        let mut extent = |extent: u64| Ok(if u.arbitrary()? { extent } else { 1 });
        let shape = [extent(b)?, extent(h)?, extent(s)?, extent(t)?];
        let missing = u.int_in_range(0..=3)?;
        let mask = smooth(u, &shape[missing..])?;
        for with_mask in [false, true] {
            let found = gradients(attention, &[&q, &k, &v, &mask], &dy, with_mask);
            assert_eq!(found.len(), 3 + usize::from(with_mask));
            let pairs: Vec<(usize, &Array)> = found.iter().enumerate().collect();
            check_gradients(&forward, &[&q, &k, &v, &mask], &dy, &pairs);
        }

        let truths: Vec<bool> = mask.to_floats().unwrap().iter().map(|&it| it > 0.0).collect();
        let mask = Array::of_truths(&shape[missing..], &truths).unwrap();
        let found = gradients(attention, &[&q, &k, &v, &mask], &dy, false);
        let pairs: Vec<(usize, &Array)> = found.iter().enumerate().collect();
        check_gradients(&forward, &[&q, &k, &v, &mask], &dy, &pairs);

        let mut numbered = |shape: [u64; 4]| {
            let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
            let numbers = (0..count).map(|_| u.int_in_range(0..=1)).collect::<Result<Vec<i64>, _>>()?;
            Ok(Array::of(shape, &numbers).unwrap())
        };
        let (own, others) = (numbered([b, 1, s, 1])?, numbered([1, 1, 1, t])?);
        let given = [&q, &k, &v, &mask, &own, &others];
        let found = gradients(attention, &given, &dy, false);
        let pairs: Vec<(usize, &Array)> = found.iter().enumerate().collect();
        check_gradients(&forward, &given, &dy, &pairs);
        Ok(())
    })
    .budget_ms(2000);
}

#[test]
fn statistics_are_the_largest_scores_and_sums() {
    let numbers: Vec<f64> = (0..150_u16).map(|at| f64::from(at % 7) / 2.0 - 1.0).collect();
    let q = Array::of([1, 1, 150, 1], &numbers).unwrap();
    let made = evaluate(&Op::Attention(Attention { causal: true, ..PLAIN }), &[&q, &q, &q]).unwrap();
    let pair = |query: usize| {
        let scores: Vec<f64> = numbers[..=query].iter().map(|key| 0.5 * numbers[query] * key).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [largest, scores.iter().map(|score| (score - largest).exp()).sum()]
    };
    let expected: Vec<f64> = (0..150).flat_map(pair).collect();
    check_near(&made[1].to_floats().unwrap(), &expected, 1e-12, "statistics");
}

#[test]
fn queries_that_see_nothing_have_no_gradient() {
    let x = Array::of([1, 1, 2, 1], &[1.0_f32, 2.0]).unwrap();
    for mask in [
        Array::of_truths([2, 2], &[false, false, true, false]).unwrap(),
        Array::of([2, 2], &[f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY]).unwrap(),
    ] {
        let made = evaluate(&Op::Attention(PLAIN), &[&x, &x, &x, &mask]).unwrap();
        assert_eq!(made[1].elements::<f32>().unwrap(), [f32::NEG_INFINITY, 0.0, 1.0, 1.0]);
        let op = Op::AttentionGradient { attention: PLAIN, mask: false };
        let found = evaluate(&op, &[&x, &x, &x, &made[0], &made[1], &x, &mask]).unwrap();
        assert_eq!(found[0].elements::<f32>().unwrap(), [0.0, 0.0]);
        assert_eq!(found[1].elements::<f32>().unwrap(), [0.0, 0.0]);
        assert_eq!(found[2].elements::<f32>().unwrap(), [2.0, 0.0]);
    }
}

#[test]
fn rows_beyond_a_block_of_queries_have_gradients() {
    arbtest(|u| {
        let (q, k) = (smooth(u, &[1, 2, 70, 1])?, smooth(u, &[1, 1, 70, 1])?);
        let (v, dy) = (smooth(u, &[1, 1, 70, 1])?, smooth(u, &[1, 2, 70, 1])?);
        for window in [None, Some(9)] {
            let attention = Attention { causal: true, window, ..PLAIN };
            let found = gradients(attention, &[&q, &k, &v], &dy, false);
            let pairs: Vec<(usize, &Array)> = found.iter().enumerate().collect();
            check_gradients(&Op::Attention(attention), &[&q, &k, &v], &dy, &pairs);
        }
        Ok(())
    })
    .budget_ms(200);
}

#[test]
fn rotated_pairs_have_a_gradient() {
    arbtest(|u| {
        let shape = [2, u.int_in_range(1..=3)?, 2 * u.int_in_range(1..=3)?];
        let (x, dy) = (smooth(u, &shape)?, smooth(u, &shape)?);
        let (cos, sin) = (smooth(u, &shape[1..])?, smooth(u, &shape[1..])?);
        for pairing in [Pairing::Halves, Pairing::Neighbours] {
            let op = Op::RotaryGradient(pairing);
            let dx = evaluate(&op, &[&dy, &cos, &sin]).unwrap().remove(0);
            check_gradients(&Op::Rotary(pairing), &[&x, &cos, &sin], &dy, &[(0, &dx)]);
            check_narrow(&op, &[&dy, &cos, &sin]);
        }
        Ok(())
    });
}
