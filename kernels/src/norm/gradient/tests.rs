//! Gradients of rows against differences.

use arbtest::arbtest;
use planner_ir::{Op, Real};

use crate::evaluate;
use crate::finite::{check_gradients, check_narrow, smooth};

#[test]
fn softmax_has_a_gradient_along_any_dimension() {
    arbtest(|u| {
        let shape = [u.int_in_range(1..=3)?, u.int_in_range(1..=20)?, u.int_in_range(1..=3)?];
        let (x, dy) = (smooth(u, &shape)?, smooth(u, &shape)?);
        for dim in 0..3 {
            let forward = Op::Softmax { dim };
            let y = evaluate(&forward, &[&x]).unwrap().remove(0);
            let op = Op::SoftmaxGradient { dim };
            let dx = evaluate(&op, &[&y, &dy]).unwrap().remove(0);
            check_gradients(&forward, &[&x], &dy, &[(0, &dx)]);
            check_narrow(&op, &[&y, &dy]);
        }
        Ok(())
    });
}

#[test]
fn what_is_normalised_has_a_gradient() {
    arbtest(|u| {
        let shape = [2, u.int_in_range(1..=3)?, u.int_in_range(2..=20)?];
        let (x, dy) = (smooth(u, &shape)?, smooth(u, &shape)?);
        let dims = u.int_in_range(1..=2)?;
        let other: &[u64] = if u.arbitrary()? { &shape[3 - dims..] } else { &[2, 1, 1] };
        let scale = smooth(u, other)?;
        // Large, so that differences are near the gradient where all of a row are alike.
        let epsilon = Real(0.1);
        for (forward, op) in [
            (Op::LayerNorm { dims, epsilon }, Op::LayerNormGradient { dims, epsilon }),
            (Op::RmsNorm { dims, epsilon }, Op::RmsNormGradient { dims, epsilon }),
        ] {
            let dx = evaluate(&op, &[&x, &scale, &dy]).unwrap().remove(0);
            check_gradients(&forward, &[&x, &scale], &dy, &[(0, &dx)]);
            check_narrow(&op, &[&x, &scale, &dy]);
        }
        Ok(())
    });
}
