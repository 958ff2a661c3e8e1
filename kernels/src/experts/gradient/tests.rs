//! Gradients of mixtures of experts against differences.

use arbtest::arbtest;
use planner_ir::{Binary, Contract, Op, Real, Unary};

use crate::finite::{check_gradients, check_narrow, smooth};
use crate::{Array, evaluate};

#[test]
fn tokens_gates_and_experts_have_gradients() {
    arbtest(|u| {
        let [t, h, f, e] = [u.int_in_range(1..=4)?, u.int_in_range(1..=3)?, u.int_in_range(1..=3)?, 2];
        let (x, gates, dy) = (smooth(u, &[t, h])?, smooth(u, &[t, e])?, smooth(u, &[t, h])?);
        let (up, gate, down) = (smooth(u, &[e, f, h])?, smooth(u, &[e, f, h])?, smooth(u, &[e, h, f])?);
        let activation = Unary::Silu;
        let (first, second) = (smooth(u, &[e, f])?, smooth(u, &[e, f])?);
        let plain = [&x, &gates, &up, &down];
        let all = [&x, &gates, &up, &gate, &down, &first, &second];
        // What is hidden at the limit has two slopes.
        let bounded = if is_apart(&all, LIMIT) { Some(Real(LIMIT)) } else { None };
        let cases = [(&plain[..], None), (&all[..5], None), (&all, None), (&all, bounded)];
        for (operands, limit) in cases {
            let (forward, op) = (
                Op::Experts { activation, limit, active: e },
                Op::ExpertsGradient { activation, limit, active: e, adds: vec![] },
            );
            let given = [operands, &[&dy]].concat();
            let found = evaluate(&op, &given).unwrap();
            let pairs: Vec<(usize, &Array)> = found.iter().enumerate().collect();
            check_gradients(&forward, operands, &dy, &pairs);
            if limit.is_none() {
                check_narrow(&op, &given);
            }
        }
        Ok(())
    });
}

/// What units are bounded by.
const LIMIT: f64 = 0.7;

/// Whether no product is so near a limit that a difference meets it.
fn is_apart([x, _, up, gate, _, first, second]: &[&Array; 7], limit: f64) -> bool {
    let label = |text: &str| text.bytes().map(planner_ir::Label).collect();
    let product = Op::Contract(Contract { left: label("th"), right: label("efh"), result: label("tef") });
    [(up, first), (gate, second)].into_iter().all(|(weights, bias)| {
        let made = evaluate(&product, &[x, weights]).unwrap().remove(0);
        let made = evaluate(&Op::Binary(Binary::Add), &[&made, bias]).unwrap().remove(0);
        made.to_floats().unwrap().iter().all(|it| (it.abs() - limit).abs() > 1e-3)
    })
}

#[test]
fn experts_that_no_token_uses_have_no_gradient() {
    let of = |shape: &[u64]| {
        let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
        Array::of(shape, &vec![0.5_f32; count]).unwrap()
    };
    let gates = Array::of([2, 2], &[0.0_f32, 1.0, 0.0, 2.0]).unwrap();
    let (x, w, down) = (of(&[2, 3]), of(&[2, 4, 3]), of(&[2, 3, 4]));
    let op = Op::ExpertsGradient { activation: Unary::Relu, limit: None, active: 1, adds: vec![] };
    let found = evaluate(&op, &[&x, &gates, &w, &down, &x]).unwrap();
    let of_gates = found[1].elements::<f32>().unwrap();
    assert!(of_gates[0].to_bits() == 0 && of_gates[2].to_bits() == 0 && of_gates[1] > 0.0);
    for weights in &found[2..] {
        let (unused, used) = weights.elements::<f32>().unwrap().split_at(12);
        assert!(unused.iter().all(|it| it.to_bits() == 0) && used.iter().all(|&it| it > 0.0));
    }
}
