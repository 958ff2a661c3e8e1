//! Rows, reductions, movement, places that are data.

use planner_ir::{Binary, DType, Edge, Extreme, Op, Pairing, Real, Recurrence, Reduction, Type};

use super::emulator::{Trial, check};
use super::values::{COVERED, FLOATS, many, numbers, shape, tolerance, whole};
use crate::array::{Array, Span};
use crate::evaluate;

#[test]
fn rows_are_computed() {
    let trials = many(60, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let rank = u.int_in_range(1..=3)?;
        let mut shape = shape(u, rank)?;
        if u.ratio(1, 5)? {
            shape = vec![2, *u.choose(&[1000, 1024, 5000])?];
        }
        let rank = shape.len();
        let dim = if u.ratio(1, 3)? { u.int_in_range(0..=rank - 1)? } else { rank - 1 };
        let dims = if u.ratio(1, 4)? { rank } else { 1 };
        let x = |more: u64| numbers(dtype, &shape, seed + more);
        let scale = |more: u64| numbers(dtype, &shape[rank - dims..], seed + more);
        let epsilon = Real(1e-5);
        let near = 10.0 * tolerance(dtype);
        let trial = |op, operands| Trial::whole(op, operands, near);
        Ok(match u.int_in_range(0..=6)? {
            0 => trial(Op::Softmax { dim }, vec![x(0)]),
            1 => trial(Op::LogSoftmax { dim }, vec![x(0)]),
            2 => trial(Op::SoftmaxGradient { dim }, vec![x(0), x(1)]),
            3 if u.arbitrary()? => trial(Op::LayerNorm { dims, epsilon }, vec![x(0), scale(1), scale(2)]),
            3 => trial(Op::LayerNorm { dims, epsilon }, vec![x(0), numbers(dtype, &[1], 3)]),
            4 => trial(Op::RmsNorm { dims, epsilon }, vec![x(0), scale(1)]),
            5 => trial(Op::LayerNormGradient { dims, epsilon: Real(0.1) }, vec![x(0), scale(1), x(2)]),
            _ => trial(Op::RmsNormGradient { dims, epsilon: Real(0.1) }, vec![x(0), scale(1), x(2)]),
        })
    });
    check(&trials);
}

#[test]
fn cross_entropy_and_its_gradient_are_computed() {
    let trials = many(40, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let rows = shape(u, 1)?;
        let classes = *u.choose(&[3, 32, 100, 1000, 9000])?;
        let mut scores = rows.clone();
        scores.push(classes);
        let labels = whole(DType::I64, &rows, -1, i64::try_from(classes).unwrap(), seed);
        let mut operands = vec![numbers(dtype, &scores, seed), labels];
        if u.arbitrary()? {
            return Ok(Trial::whole(Op::CrossEntropy { ignored: -1 }, operands, 10.0 * tolerance(dtype)));
        }
        operands.push(numbers(dtype, &rows, seed + 1));
        Ok(Trial::whole(Op::CrossEntropyGradient { ignored: -1 }, operands, 10.0 * tolerance(dtype)))
    });
    check(&trials);
}

#[test]
fn instances_are_normalised() {
    let trials = many(6, |u, seed| {
        let shape = [2, 3, *u.choose(&[4, 7])?, *u.choose(&[5, 8])?];
        let scale = |more: u64| numbers(DType::F32, &[3], seed + more);
        let op = Op::InstanceNorm { epsilon: Real(1e-5) };
        Ok(Trial::whole(op, vec![numbers(DType::F32, &shape, seed), scale(1), scale(2)], 1e-4))
    });
    check(&trials);
}

#[test]
fn reductions_are_computed() {
    let reductions = [Reduction::Max, Reduction::Mean, Reduction::Min, Reduction::Product, Reduction::Sum];
    let trials = many(40, |u, seed| {
        let dtype = *u.choose(&COVERED[..12])?;
        let rank = u.int_in_range(1..=4)?;
        let mut shape = shape(u, rank)?;
        if u.ratio(1, 5)? {
            shape = vec![*u.choose(&[5000, 8192])?, *u.choose(&[1, 3, 40])?];
        }
        let dims: Vec<usize> = (0..shape.len()).filter(|_| u.arbitrary().unwrap_or(true)).collect();
        let mut reduction = *u.choose(&reductions)?;
        if reduction == Reduction::Product && shape.iter().product::<u64>() > 60 {
            reduction = Reduction::Sum;
        }
        let given = numbers(dtype, &shape, seed);
        Ok(Trial::whole(Op::Reduce { reduction, dims }, vec![given], 200.0 * tolerance(dtype)))
    });
    check(&trials);
}

#[test]
fn orders_and_running_sums_are_computed() {
    let trials = many(50, |u, seed| {
        let dtype = *u.choose(&COVERED[..12])?;
        let rank = u.int_in_range(1..=3)?;
        let shape = shape(u, rank)?;
        let dim = u.int_in_range(0..=rank - 1)?;
        let mut given = numbers(dtype, &shape, seed);
        let extreme = if u.arbitrary()? { Extreme::Largest } else { Extreme::Smallest };
        if dtype == DType::F32 {
            let count: u64 = shape.iter().product();
            let mut with_gaps = given.elements::<f32>().unwrap().to_vec();
            with_gaps[usize::try_from(count / 2).unwrap()] = f32::NAN;
            given = Array::of(shape.clone(), &with_gaps).unwrap();
        }
        Ok(match u.int_in_range(0..=2)? {
            0 => Trial::whole(Op::ArgExtreme { extreme, dim }, vec![given], 0.0),
            1 => {
                let k = u.int_in_range(1..=shape[dim].min(5))?;
                Trial::whole(Op::TopK { dim, k, extreme }, vec![given], 0.0)
            }
            _ => {
                let op = Op::CumSum { dim, exclusive: u.arbitrary()?, reverse: u.arbitrary()? };
                Trial::whole(op, vec![numbers(dtype, &shape, seed)], 10.0 * tolerance(dtype))
            }
        })
    });
    check(&trials);
}

#[test]
fn states_go_from_token_to_token() {
    let trials = many(40, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let wide = dtype.accumulated();
        let it = *u.choose(&[Recurrence::SelectiveScan, Recurrence::GatedDelta])?;
        let mut sizes = [0; 6];
        for (size, most) in sizes.iter_mut().zip([2, 9, 3, 3, 7, 70]) {
            *size = u.int_in_range(1..=most)?;
        }
        let [b, s, n, r, d, e] = sizes;
        let (keys, heads) = ([b, s, n, d], n * r);
        let decays = if u.arbitrary()? { d } else { 1 };
        let mut number = seed;
        let mut array = |dtype: DType, shape: &[u64]| {
            number += 1;
            // Small, so that states do not grow.
            let half = Array::of([], &[0.4_f64]).unwrap();
            let half = evaluate(&Op::Cast(dtype), &[&half]).unwrap().remove(0);
            evaluate(&Op::Binary(Binary::Mul), &[&numbers(dtype, shape, number), &half]).unwrap().remove(0)
        };
        let of_heads = if u.arbitrary()? { wide } else { dtype };
        let mut operands = vec![array(dtype, &keys), array(dtype, &keys), array(dtype, &[b, s, heads, e])];
        operands.push(array(of_heads, &[b, s, heads, decays]));
        if it.replaces() {
            operands.push(array(of_heads, &[b, s, heads]));
        }
        operands.push(array(wide, &[b, heads, d, e]));
        Ok(Trial::whole(Op::Recurrence(it), operands, 10.0 * tolerance(dtype)))
    });
    check(&trials);
}

#[test]
fn pairs_are_rotated() {
    let trials = many(50, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let rank = u.int_in_range(1..=3)?;
        let mut shape = shape(u, rank)?;
        shape.push(*u.choose(&[2, 6, 8, 12, 64])?);
        let last = shape.len() - 1;
        let factor = super::values::smaller(u, &shape[..last])?;
        let factor: Vec<u64> = factor.into_iter().chain([shape[last]]).collect();
        let operands = vec![
            numbers(dtype, &shape, seed),
            numbers(dtype, &factor, seed + 1),
            numbers(dtype, &shape[last..], seed + 2),
        ];
        let pairing = if u.arbitrary()? { Pairing::Halves } else { Pairing::Neighbours };
        let op = if u.arbitrary()? { Op::Rotary(pairing) } else { Op::RotaryGradient(pairing) };
        Ok(Trial::whole(op, operands, tolerance(dtype)))
    });
    check(&trials);
}

#[test]
fn elements_are_moved() {
    let trials = many(80, |u, seed| {
        let dtype = *u.choose(&COVERED)?;
        let rank = u.int_in_range(1..=4)?;
        let mut shape = shape(u, rank)?;
        if u.ratio(1, 6)? {
            shape = vec![2, 37, 70];
        }
        let rank = shape.len();
        let x = numbers(dtype, &shape, seed);
        Ok(match u.int_in_range(0..=4)? {
            0 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                for at in 0..rank {
                    permutation.swap(at, u.int_in_range(at..=rank - 1)?);
                }
                Trial::whole(Op::Transpose { permutation }, vec![x], 0.0)
            }
            1 => {
                let mut larger = shape.clone();
                larger.iter_mut().filter(|it| **it == 1).for_each(|it| *it = 3);
                larger.insert(0, 2);
                Trial::whole(Op::Expand { shape: larger }, vec![x], 0.0)
            }
            2 => {
                let dim = u.int_in_range(0..=rank - 1)?;
                let mut other = shape.clone();
                other[dim] = u.int_in_range(1..=9)?;
                Trial::whole(Op::Concat { dim }, vec![x, numbers(dtype, &other, seed + 1)], 0.0)
            }
            3 => {
                let (mut starts, mut steps, mut sizes) = (vec![], vec![], vec![]);
                for &extent in &shape {
                    let step = u.int_in_range(1..=3_i64)?;
                    let size = u.int_in_range(1..=extent.div_ceil(step.unsigned_abs()))?;
                    let reach = (size - 1) * step.unsigned_abs();
                    let first = u.int_in_range(0..=extent - 1 - reach)?;
                    let back = u.ratio(1, 4)?;
                    starts.push(if back { first + reach } else { first });
                    steps.push(if back { -step } else { step });
                    sizes.push(size);
                }
                Trial::whole(Op::Slice { starts, steps, sizes }, vec![x], 0.0)
            }
            _ => {
                let some = |u: &mut arbtest::arbitrary::Unstructured, extent: u64| {
                    let most = i64::try_from(extent).unwrap_or(0) / 3;
                    u.int_in_range(-most..=4)
                };
                let before = shape.iter().map(|&it| some(u, it)).collect::<Result<_, _>>()?;
                let after = shape.iter().map(|&it| some(u, it)).collect::<Result<_, _>>()?;
                Trial::whole(Op::Pad { before, after, edge: Edge::Constant(Real(2.0)) }, vec![x], 0.0)
            }
        })
    });
    check(&trials);
}

#[test]
fn blocks_of_slices_and_padded_values_are_made() {
    let x = numbers(DType::F32, &[4, 10], 1);
    let held = [Span::contiguous(4, 0), Span::contiguous(20, 10)];
    let slice = Op::Slice { starts: vec![0, 3], steps: vec![1, 2], sizes: vec![4, 8] };
    let slice = Trial {
        op: slice,
        operands: vec![(numbers(DType::F32, &[4, 20], 1), vec![])],
        results: vec![(Type::new(DType::F32, vec![4, 4]), [held[0], Span::contiguous(8, 4)].into())],
        tolerance: 0.0,
        in_place: vec![None],
        chain: None,
    };
    let pad = Op::Pad { before: vec![0, 3], after: vec![0, 5], edge: Edge::Constant(Real(-1.0)) };
    let pad = Trial {
        op: pad,
        operands: vec![(x, held.to_vec())],
        results: vec![(Type::new(DType::F32, vec![4, 10]), [held[0], Span::contiguous(28, 13)].into())],
        tolerance: 0.0,
        in_place: vec![None],
        chain: None,
    };
    check(&[slice, pad]);
}

#[test]
fn elements_are_gathered_and_their_gradients_summed() {
    let trials = many(40, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F64, DType::I64])?;
        let rank = u.int_in_range(1..=3)?;
        let shape = shape(u, rank)?;
        let dim = u.int_in_range(0..=rank - 1)?;
        let extent = i64::try_from(shape[dim]).unwrap();
        let picked = [3, *u.choose(&[1, 5, 150])?];
        let indices = whole(*u.choose(&[DType::I64, DType::I32])?, &picked, -extent, extent, seed);
        let mut held: Vec<Span> = shape.iter().map(|&it| Span::contiguous(it, 0)).collect();
        // A block of half of what is indexed, or all of it.
        let split = shape[dim] > 1 && u.arbitrary()?;
        let mut block = shape.clone();
        if split {
            block[dim] = shape[dim] / 2;
            held[dim].start = u.int_in_range(0..=shape[dim] - block[dim])?;
        }
        let mut long = block.clone();
        long.splice(dim..=dim, picked);
        let near = 20.0 * tolerance(dtype);
        Ok(if u.arbitrary()? {
            Trial {
                op: Op::Gather { dim },
                operands: vec![(numbers(dtype, &block, seed), held), (indices, vec![])],
                results: vec![(Type::new(dtype, long), vec![])],
                tolerance: 0.0,
                in_place: vec![None],
                chain: None,
            }
        } else {
            Trial {
                op: Op::GatherGradient { dim, extent: shape[dim] },
                operands: vec![(indices, vec![]), (numbers(dtype, &long, seed), vec![])],
                results: vec![(Type::new(dtype, block), held)],
                tolerance: near,
                in_place: vec![None],
                chain: None,
            }
        })
    });
    check(&trials);
}

#[test]
fn elements_and_slices_are_gathered_by_their_places() {
    let trials = many(30, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::I64])?;
        let shape = [*u.choose(&[2, 3])?, *u.choose(&[4, 5])?, *u.choose(&[1, 6])?];
        let data = numbers(dtype, &shape, seed);
        if u.arbitrary()? {
            let dim = u.int_in_range(0..=2)?;
            let mut picked = shape;
            picked[dim] = 7;
            let extent = i64::try_from(shape[dim]).unwrap();
            let indices = whole(DType::I64, &picked, -extent, extent, seed);
            return Ok(Trial::whole(Op::GatherElements { dim }, vec![data, indices], 0.0));
        }
        let batch_dims = u.int_in_range(0..=1)?;
        let width = u.int_in_range(1..=2)?;
        let mut picked = shape[..batch_dims].to_vec();
        picked.extend([6, width]);
        let indices = whole(DType::I64, &picked, 0, 1, seed);
        let indices =
            if width == 1 && batch_dims == 1 { whole(DType::I64, &picked, -4, 4, seed) } else { indices };
        Ok(Trial::whole(Op::GatherNd { batch_dims }, vec![data, indices], 0.0))
    });
    check(&trials);
}
