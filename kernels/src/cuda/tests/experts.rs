//! Mixtures of experts and their gradients.

use planner_ir::{DType, Op, Real, Unary};

use super::emulator::{Trial, check};
use super::values::{FLOATS, cast, many, numbers, tolerance};
use crate::array::Array;

/// Gates of which each row has so many at most that are not 0.
fn gates(dtype: DType, [tokens, experts]: [u64; 2], active: u64, seed: u64) -> Array {
    let numbers = numbers(DType::F64, &[tokens, experts], seed);
    let mut numbers = numbers.elements::<f64>().unwrap().to_vec();
    let (experts_, active) = (usize::try_from(experts).unwrap(), usize::try_from(active).unwrap());
    for (token, row) in numbers.chunks_exact_mut(experts_).enumerate() {
        let used = (token + usize::try_from(seed % 7).unwrap()) % (active + 1);
        for (expert, gate) in row.iter_mut().enumerate() {
            let place = (expert + token * 3) % experts_;
            *gate = if place < used { *gate + 2.0 } else { 0.0 };
        }
    }
    cast(&Array::of([tokens, experts], &numbers).unwrap(), dtype)
}

#[test]
fn experts_compute_their_tokens() {
    let trials = many(24, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let [t, h] = [*u.choose(&[1, 3, 40, 270])?, *u.choose(&[4, 16, 37])?];
        let [f, e] = [*u.choose(&[5, 32, 35])?, *u.choose(&[1, 3, 4])?];
        let active = u.int_in_range(1..=e)?;
        let activation = *u.choose(&[Unary::Silu, Unary::Relu, Unary::GeluTanh, Unary::GeluQuick])?;
        let of = |shape: &[u64], more: u64| numbers(dtype, shape, seed + more);
        let mut operands = vec![of(&[t, h], 0), gates(dtype, [t, e], active, seed), of(&[e, f, h], 1)];
        let gated: bool = u.arbitrary()?;
        operands.extend(gated.then(|| of(&[e, f, h], 2)));
        operands.push(of(&[e, h, f], 3));
        if gated && u.arbitrary()? {
            operands.extend([5, 6].map(|it| of(&[e, f], it)));
        }
        let limit = if gated && u.arbitrary()? { Some(Real(0.7)) } else { None };
        // The processor rounds narrow numbers after each product.
        let near = match dtype {
            DType::BF16 => 0.5,
            DType::F16 => 0.05,
            _ => 100.0 * tolerance(dtype),
        };
        if u.arbitrary()? {
            return Ok(Trial::whole(Op::Experts { activation, limit, active }, operands, near));
        }
        operands.push(of(&[t, h], 4));
        Ok(Trial::whole(Op::ExpertsGradient { activation, limit, active }, operands, near))
    });
    check(&trials);
}
