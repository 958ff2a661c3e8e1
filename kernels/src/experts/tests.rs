//! Mixtures of experts against their definition.

use arbtest::arbtest;
use planner_ir::{Op, Real, Unary};

use crate::Array;
use crate::naive::{Numbers, arbitrary, check, check_blocks, check_sum, one};

#[test]
fn tokens_get_the_experts_that_their_gates_let_through() {
    arbtest(|u| {
        let [t, h, f, e] = [4, 3, 4, 2];
        let (x, gates) = (arbitrary(u, &[t, h])?, arbitrary(u, &[t, e])?);
        let (up, gate) = (arbitrary(u, &[e, f, h])?, arbitrary(u, &[e, f, h])?);
        let down = arbitrary(u, &[e, h, f])?;
        let (first, second) = (arbitrary(u, &[e, f])?, arbitrary(u, &[e, f])?);
        let [tokens, weights, ups, factors, downs] = [&x, &gates, &up, &gate, &down].map(Numbers::of);
        let [firsts, seconds] = [&first, &second].map(Numbers::of);
        let bounded = |index: &[u64], limit: f64| -> f64 {
            let expert = |expert: u64| {
                let unit = |unit: u64| {
                    let dot = |matrix: &Numbers, bias: &Numbers| -> f64 {
                        let products =
                            (0..h).map(|i| tokens.at(&[index[0], i]) * matrix.at(&[expert, unit, i]));
                        products.sum::<f64>() + bias.at(&[expert, unit])
                    };
                    let (a, b) = (dot(&ups, &firsts).min(limit), dot(&factors, &seconds));
                    a.max(0.0) * (b.clamp(-limit, limit) + 1.0) * downs.at(&[expert, index[1], unit])
                };
                weights.at(&[index[0], expert]) * (0..f).map(unit).sum::<f64>()
            };
            (0..e).map(expert).sum()
        };
        let expected = |index: &[u64], is_gated: bool| -> f64 {
            let expert = |expert: u64| {
                let unit = |unit: u64| {
                    let dot = |matrix: &Numbers| -> f64 {
                        (0..h).map(|i| tokens.at(&[index[0], i]) * matrix.at(&[expert, unit, i])).sum()
                    };
                    let factor = if is_gated { dot(&factors) } else { 1.0 };
                    dot(&ups).max(0.0) * factor * downs.at(&[expert, index[1], unit])
                };
                weights.at(&[index[0], expert]) * (0..f).map(unit).sum::<f64>()
            };
            (0..e).map(expert).sum()
        };
        let op = Op::Experts { activation: Unary::Relu, limit: None, active: e };
        check(&one(&op, &[&x, &gates, &up, &gate, &down]), |index| expected(index, true));
        check(&one(&op, &[&x, &gates, &up, &down]), |index| expected(index, false));
        let limited = Op::Experts { activation: Unary::Relu, limit: Some(Real(1.5)), active: e };
        let all = [&x, &gates, &up, &gate, &down, &first, &second];
        check(&one(&limited, &all), |index| bounded(index, 1.5));
        let by_units = [None, None, Some(1), Some(1), Some(2), Some(1), Some(1)];
        let by_experts = [None, Some(1), Some(0), Some(0), Some(0), Some(0), Some(0)];
        for dims in [by_units, by_experts] {
            let cut: Vec<(&Array, Option<usize>)> = all.into_iter().zip(dims).collect();
            check_sum(&limited, &cut, 2);
        }
        let cut = |dims: [Option<usize>; 5]| {
            [(&x, dims[0]), (&gates, dims[1]), (&up, dims[2]), (&gate, dims[3]), (&down, dims[4])]
        };
        check_blocks(&op, &cut([Some(0), Some(0), None, None, None]), &[Some(0)], 2);
        check_sum(&op, &cut([None, Some(1), Some(0), Some(0), Some(0)]), 2);
        check_sum(&op, &cut([None, None, Some(1), Some(1), Some(2)]), 2);
        Ok(())
    });
}
