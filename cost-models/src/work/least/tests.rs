//! Pieces against the whole: no split of an operation takes less of all devices together.

use planner_ir::{Attention, Binary, Blind, Contract, DType, Label, Real, Unary};

use super::*;
use crate::machine::shipped;
use crate::work::{Rows, Work, operation};

/// Divisors of a number.
fn divisors(number: u64) -> Vec<u64> {
    (1..=number).filter(|it| number.is_multiple_of(*it)).collect()
}

/// Holds the bound against splits of every dimension of labelled values into all numbers of pieces.
fn hold(name: &str, op: &Op, labels: &[&[usize]], result: &[usize], sizes: &[u64], dtype: DType) {
    let device = &shipped::named(name).expect("is shipped").device;
    let shaped = |labels: &[usize], sizes: &[u64]| {
        Type::new(dtype, labels.iter().map(|&it| sizes[it]).collect::<Vec<_>>())
    };
    let types = |sizes: &[u64]| -> (Vec<Type>, Vec<Type>) {
        (labels.iter().map(|it| shaped(it, sizes)).collect(), vec![shaped(result, sizes)])
    };
    let (whole, made) = types(sizes);
    let bound = least(device, op, &whole, &made).0;
    assert!(bound > 0.0);
    let mut pieces = vec![1; sizes.len()];
    let mut tightest = f64::INFINITY;
    let all: Vec<Vec<u64>> = sizes.iter().map(|&size| divisors(size)).collect();
    let count: usize = all.iter().map(Vec::len).product();
    for mut number in 0..count {
        for (piece, divisors) in pieces.iter_mut().zip(&all) {
            *piece = divisors[number % divisors.len()];
            number /= divisors.len();
        }
        let local: Vec<u64> = sizes.iter().zip(&pieces).map(|(size, pieces)| size / pieces).collect();
        let (operands, results) = types(&local);
        for rows in [Rows::Together, Rows::Spread] {
            let work = Work { op, whole: &whole, operands: &operands, results: &results, rows };
            let devices: u64 = pieces.iter().product();
            let taken = exact(devices) * operation(device, &work).0;
            assert!(bound <= taken * (1.0 + 1e-9), "{name} {op}: {bound} s, {pieces:?} take {taken} s");
            tightest = tightest.min(taken / bound);
        }
    }
    assert!(tightest < 3.0, "{name} {op}: everything takes {tightest} times as much");
}

#[test]
fn no_split_takes_less_than_the_least() {
    let contract = |left: &[u8], right: &[u8], result: &[u8]| {
        let labels = |all: &[u8]| all.iter().map(|&it| Label(it)).collect();
        Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
    };
    let attention = |window: Option<u64>| {
        let (scale, softcap) = (Real(0.1), Real(0.0));
        Op::Attention(Attention {
            scale,
            causal: true,
            softcap,
            window,
            blind: Blind::Zero,
            sinks: false,
            statistics: false,
        })
    };
    for name in ["a100-80g-8x", "h100-80g-8x", "v100-16g-8x", "cpu-2x"] {
        for dtype in [DType::BF16, DType::F32, DType::F8E4M3FN] {
            let product = contract(&[0, 1], &[1, 2], &[0, 2]);
            hold(name, &product, &[&[0, 1], &[1, 2]], &[0, 2], &[6144, 4608, 7680], dtype);
            let batched = contract(&[0, 1, 2], &[0, 2, 3], &[0, 1, 3]);
            hold(name, &batched, &[&[0, 1, 2], &[0, 2, 3]], &[0, 1, 3], &[16, 4096, 1536, 4096], dtype);
            let add = Op::Binary(Binary::Add);
            hold(name, &add, &[&[0, 1], &[0, 1]], &[0, 1], &[3072, 8192], dtype);
            // Batch, heads, queries, keys, size of heads: keys are not split without time steps.
            let of = [&[0, 1, 2, 4][..], &[0, 1, 3, 4], &[0, 1, 3, 4]];
            hold(name, &attention(None), &of, &[0, 1, 2, 4], &[4, 12, 2048, 2048, 128], dtype);
            hold(name, &attention(None), &of, &[0, 1, 2, 4], &[4, 12, 512, 4096, 128], dtype);
            hold(name, &attention(Some(1024)), &of, &[0, 1, 2, 4], &[4, 12, 2048, 2048, 128], dtype);
            // Rows, experts, hidden units and the size of rows.
            let of = [&[0, 3][..], &[0, 1], &[1, 2, 3], &[1, 2, 3], &[1, 3, 2], &[0, 3]];
            let (activation, sizes) = (Unary::Silu, [4096, 8, 1536, 1024]);
            hold(name, &Op::Experts { activation, limit: None, active: 2 }, &of[..5], &[0, 3], &sizes, dtype);
            hold(
                name,
                &Op::ExpertsGradient { activation, limit: None, active: 2, adds: vec![] },
                &of,
                &[0, 3],
                &sizes,
                dtype,
            );
        }
    }
}
