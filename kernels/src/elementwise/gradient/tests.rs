//! Derivatives against differences.

use arbtest::arbtest;
use planner_ir::{DType, Op, Unary};

use crate::finite::{cast, check_gradients, check_narrow, smooth};
use crate::{Array, evaluate};

const SMOOTH: [Unary; 17] = [
    Unary::Abs,
    Unary::Cos,
    Unary::Erf,
    Unary::Exp,
    Unary::Gelu,
    Unary::GeluTanh,
    Unary::GeluQuick,
    Unary::Log,
    Unary::Neg,
    Unary::Reciprocal,
    Unary::Relu,
    Unary::Sigmoid,
    Unary::Silu,
    Unary::Sin,
    Unary::Softplus,
    Unary::Sqrt,
    Unary::Tanh,
];

#[test]
fn derivatives_are_what_functions_change_by() {
    arbtest(|u| {
        let shape = [u.int_in_range(1..=3)?, u.int_in_range(1..=9)?];
        let (x, dy) = (smooth(u, &shape)?, smooth(u, &shape)?);
        for function in SMOOTH {
            let square = [Unary::Log, Unary::Sqrt, Unary::Reciprocal].contains(&function);
            let x = if square { positive(&x) } else { x.clone() };
            let op = Op::UnaryGradient(function);
            let dx = evaluate(&op, &[&x, &dy]).unwrap().remove(0);
            check_gradients(&Op::Unary(function), &[&x], &dy, &[(0, &dx)]);
            check_narrow(&op, &[&x, &dy]);
        }
        Ok(())
    });
}

/// Numbers above 0, far enough for narrow ones.
fn positive(x: &Array) -> Array {
    let numbers: Vec<f64> = x.to_floats().unwrap().iter().map(|x| x.abs() + 0.5).collect();
    Array::of(x.shape(), &numbers).unwrap()
}

#[test]
fn both_factors_of_a_gated_unit_have_a_gradient() {
    arbtest(|u| {
        let shape = [u.int_in_range(1..=3)?, u.int_in_range(1..=9)?];
        let (a, b, dy) = (smooth(u, &shape)?, smooth(u, &shape)?, smooth(u, &shape)?);
        for activation in [Unary::Silu, Unary::GeluTanh, Unary::Sigmoid] {
            let op = Op::GatedGradient(activation);
            let found = evaluate(&op, &[&a, &b, &dy]).unwrap();
            check_gradients(&Op::Gated(activation), &[&a, &b], &dy, &[(0, &found[0]), (1, &found[1])]);
            check_narrow(&op, &[&a, &b, &dy]);
        }
        Ok(())
    });
}

#[test]
fn far_from_zero_derivatives_are_numbers() {
    let x = Array::of([6], &[-1e30_f32, -200.0, -20.0, 20.0, 200.0, 1e30]).unwrap();
    let dy = Array::of([6], &[1.0_f32; 6]).unwrap();
    for function in [Unary::Silu, Unary::Gelu, Unary::GeluTanh, Unary::GeluQuick, Unary::Relu] {
        let dx = evaluate(&Op::UnaryGradient(function), &[&x, &dy]).unwrap().remove(0);
        for (dx, expected) in dx.to_floats().unwrap().into_iter().zip([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]) {
            assert!((dx - expected).abs() < 1e-6, "{function:?}: {dx}");
        }
    }
}

#[test]
fn pieces_of_several_results_are_put_together() {
    let numbers: Vec<f32> =
        (0..40_000_u32).map(|at| f32::from(u8::try_from(at % 119).unwrap()) / 20.0 - 3.0).collect();
    let wide = Array::of([100, 400], &numbers).unwrap();
    let narrow = cast(&wide, DType::BF16);
    let op = Op::GatedGradient(Unary::Silu);
    let wide = cast(&narrow, DType::F32);
    let expected = evaluate(&op, &[&wide, &wide, &wide]).unwrap();
    let found = evaluate(&op, &[&narrow, &narrow, &narrow]).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert!(*found == cast(expected, DType::BF16));
    }
}

#[test]
fn what_relu_cuts_off_has_no_gradient_even_of_infinity() {
    let x = Array::of::<f32>([3], &[-1.0, 0.0, 2.0]).unwrap();
    let dy = Array::of::<f32>([3], &[f32::INFINITY, f32::NAN, 3.0]).unwrap();
    let found = evaluate(&Op::UnaryGradient(Unary::Relu), &[&x, &dy]).unwrap().remove(0);
    assert_eq!(found.elements::<f32>().unwrap(), [0.0, 0.0, 3.0]);
}
