//! Values whose dimensions lie in other orders in memory than their shapes have them.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{Attention, Binary, Blind, Contract, DType, Label, Op, Pairing, Real, Reduction};

use super::emulator::{Trial, check_in_orders};
use super::values::{many, numbers, tolerance};
use crate::array::Array;

/// Some order of so many dimensions, of which the last ones stay where they are.
fn order(u: &mut Unstructured, rank: usize, last: usize) -> Result<Vec<usize>> {
    let mut order: Vec<usize> = (0..rank).collect();
    for place in 1..rank - last {
        order.swap(place, u.int_in_range(0..=place)?);
    }
    Ok(order)
}

fn identity(rank: usize) -> Vec<usize> {
    (0..rank).collect()
}

#[test]
fn attention_takes_heads_from_rows() {
    let trials = many(24, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F16])?;
        let (groups, batch) = (u.int_in_range(1..=2)?, u.int_in_range(1..=2)?);
        let heads = groups * u.int_in_range(1..=2)?;
        let (queries, keys) = (*u.choose(&[1, 7, 70])?, *u.choose(&[1, 9, 70])?);
        let (size, value_size) = *u.choose(&[(8, 8), (16, 16), (20, 36), (64, 32)])?;
        let masked = u.ratio(1, 3)?;
        let attention = Attention {
            scale: Real(0.3),
            causal: u.arbitrary()?,
            softcap: Real(0.0),
            window: None,
            blind: if masked { *u.choose(&[Blind::Zero, Blind::Mean])? } else { Blind::Zero },
            sinks: false,
            statistics: true,
        };
        let mut operands = vec![
            numbers(dtype, &[batch, heads, queries, size], seed),
            numbers(dtype, &[batch, groups, keys, size], seed + 1),
            numbers(dtype, &[batch, groups, keys, value_size], seed + 2),
        ];
        if masked {
            operands.push(numbers(DType::Bool, &[queries, keys], seed + 3));
        }
        let mut orders = Vec::new();
        for _ in 0..3 {
            orders.push(order(u, 4, 1)?);
        }
        orders.extend(masked.then(|| identity(2)));
        let of_y = order(u, 4, 1)?;
        if u.arbitrary()? {
            orders.extend([of_y, identity(4)]);
            return Ok((Trial::whole(Op::Attention(attention), operands, 4e-3), orders));
        }
        let given: Vec<&Array> = operands.iter().collect();
        let made = crate::evaluate(&Op::Attention(attention), &given).unwrap();
        let dy = numbers(dtype, made[0].shape(), seed + 4);
        let mask = operands.get(3).cloned();
        let of_mask = orders.split_off(3);
        orders.extend([of_y, identity(4), order(u, 4, 1)?]);
        orders.extend(of_mask);
        for _ in 0..3 {
            orders.push(order(u, 4, 1)?);
        }
        let mut all = operands[..3].to_vec();
        all.extend(made.into_iter().chain([dy]).chain(mask));
        let op = Op::AttentionGradient { attention, mask: false };
        Ok((Trial::whole(op, all, 1e-2), orders))
    });
    check_in_orders(trials);
}

#[test]
fn functions_of_elements_sums_and_rotations_go_along_memory() {
    let trials = many(40, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16])?;
        let shape = [2, *u.choose(&[1, 3])?, *u.choose(&[1, 5])?, *u.choose(&[8, 12])?];
        let x = numbers(dtype, &shape, seed);
        if u.arbitrary()? {
            let own = order(u, 4, 0)?;
            let same = numbers(dtype, &shape, seed + 1);
            return Ok(if u.arbitrary()? {
                let trial = Trial::whole(Op::Binary(Binary::Add), vec![x, same], tolerance(dtype));
                (trial, vec![own.clone(), own.clone(), own])
            } else {
                let of_head = numbers(dtype, &[shape[1], 1, shape[3]], seed + 2);
                let trial = Trial::whole(Op::Binary(Binary::Mul), vec![x, of_head], tolerance(dtype));
                (trial, vec![vec![0, 2, 1, 3], identity(3), vec![0, 2, 1, 3]])
            });
        }
        if u.ratio(1, 3)? {
            let dims = u.choose(&[vec![0, 2], vec![3], vec![0, 1, 2], vec![1, 3]])?.clone();
            let op = Op::Reduce { reduction: *u.choose(&[Reduction::Sum, Reduction::Mean])?, dims };
            let trial = Trial::whole(op, vec![x], 20.0 * tolerance(dtype));
            let own = identity(trial.results[0].0.shape.len());
            return Ok((trial, vec![order(u, 4, 0)?, own]));
        }
        let own = order(u, 4, 1)?;
        let pairing = *u.choose(&[Pairing::Halves, Pairing::Neighbours])?;
        let factor = |seed: u64| numbers(dtype, &[shape[2], shape[3]], seed);
        let op = if u.arbitrary()? { Op::Rotary(pairing) } else { Op::RotaryGradient(pairing) };
        let trial = Trial::whole(op, vec![x, factor(seed + 1), factor(seed + 2)], 10.0 * tolerance(dtype));
        Ok((trial, vec![own.clone(), identity(2), identity(2), own]))
    });
    check_in_orders(trials);
}

#[test]
fn products_are_computed_however_their_values_lie() {
    let label = |text: &str| text.bytes().map(Label).collect::<Vec<_>>();
    // Into heads and out of them, towards inputs and weights; batches; outer products; sums along one line.
    let forms = [
        ("bsd", "dhk", "bhsk"),
        ("bhsk", "dhk", "bsd"),
        ("bsd", "bhsk", "dhk"),
        ("zik", "zkj", "izj"),
        ("ab", "c", "cab"),
        ("abk", "kab", "ba"),
        ("abk", "bak", ""),
    ];
    let trials = many(40, |u, seed| {
        let (left, right, result) = *u.choose(&forms)?;
        let contract = Contract { left: label(left), right: label(right), result: label(result) };
        // Large ones are copied so that they are products of matrices.
        let size = *u.choose(&[1, 2, 5])?;
        let extent = |it: u8| if it == b'd' || it == b's' { 9 * size } else { size + u64::from(it % 3) };
        let shape = |text: &str| text.bytes().map(extent).collect::<Vec<u64>>();
        let dtype = *u.choose(&[DType::F32, DType::BF16])?;
        let operands = vec![numbers(dtype, &shape(left), seed), numbers(dtype, &shape(right), seed + 1)];
        let mut orders = Vec::new();
        for text in [left, right, result] {
            orders.push(if text.is_empty() { vec![] } else { order(u, text.len(), 0)? });
        }
        Ok((Trial::whole(Op::Contract(contract), operands, 50.0 * tolerance(dtype)), orders))
    });
    check_in_orders(trials);
}
