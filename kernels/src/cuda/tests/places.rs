//! Elements at places that data or edges name: padded, resampled, scattered.

use planner_ir::{DType, Edge, Interpolation, Op, Real, Resize, Scatter, Type};

use super::emulator::{Trial, check};
use super::values::{COVERED, many, numbers, shape, tolerance, whole};
use crate::array::Span;

#[test]
fn values_are_padded_by_their_own_elements() {
    let trials = many(24, |u, seed| {
        let dtype = *u.choose(&COVERED)?;
        let rank = u.int_in_range(1..=3)?;
        let shape = shape(u, rank)?;
        let edge = *u.choose(&[Edge::Reflect, Edge::Repeat, Edge::Wrap])?;
        let mut around = || shape.iter().map(|_| u.int_in_range(0..=5)).collect::<Result<Vec<i64>, _>>();
        let (before, after) = (around()?, around()?);
        Ok(Trial::whole(Op::Pad { before, after, edge }, vec![numbers(dtype, &shape, seed)], 0.0))
    });
    check(&trials);
}

#[test]
fn a_block_of_a_mirrored_value_is_made() {
    let op = Op::Pad { before: vec![0, 3], after: vec![0, 5], edge: Edge::Reflect };
    let held = vec![Span::contiguous(4, 0), Span::contiguous(20, 10)];
    let made = vec![Span::contiguous(4, 0), Span::contiguous(28, 18)];
    let trial = Trial {
        op,
        operands: vec![(numbers(DType::F32, &[4, 10], 1), held)],
        results: vec![(Type::new(DType::F32, vec![4, 10]), made)],
        tolerance: 0.0,
        in_place: vec![None],
        chain: None,
    };
    check(&[trial]);
}

#[test]
fn values_are_resampled() {
    let trials = many(24, |u, seed| {
        let dtype = *u.choose(&[DType::F64, DType::F32, DType::BF16, DType::F16, DType::I32, DType::U8])?;
        let shape = [*u.choose(&[1, 2])?, *u.choose(&[1, 3])?, *u.choose(&[3, 8])?, *u.choose(&[1, 5, 7])?];
        let mut factor =
            |stays: bool| if stays { Ok(1.0) } else { u.choose(&[0.5, 1.0, 1.5, 2.0, 3.0]).copied() };
        let scales: Vec<f64> = vec![factor(true)?, factor(true)?, factor(false)?, factor(false)?];
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small positive numbers"
        )]
        let extents: Vec<u64> =
            shape.iter().zip(&scales).map(|(&it, scale)| (it as f64 * scale).floor() as u64).collect();
        let interpolation = *u.choose(&[
            Interpolation::Linear,
            Interpolation::Linear,
            Interpolation::NearestFloor,
            Interpolation::NearestPreferFloor,
        ])?;
        let op = Op::Resize(Resize {
            shape: extents,
            scales: scales.into_iter().map(Real).collect(),
            half_pixel: u.arbitrary()?,
            interpolation,
        });
        // The processor rounds narrow numbers after each dimension.
        let near = if matches!(dtype, DType::BF16 | DType::F16) { 0.02 } else { tolerance(dtype) };
        Ok(Trial::whole(op, vec![numbers(dtype, &shape, seed)], near))
    });
    check(&trials);
}

#[test]
fn elements_are_scattered() {
    let trials = many(24, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::I64, DType::I32, DType::U8])?;
        let rank = u.int_in_range(1..=3)?;
        let shape = shape(u, rank)?;
        let dim = u.int_in_range(0..=rank - 1)?;
        let mut given = shape.iter().map(|&it| u.int_in_range(1..=it)).collect::<Result<Vec<u64>, _>>()?;
        given[dim] = u.int_in_range(1..=9)?;
        let extent = i64::try_from(shape[dim]).unwrap();
        let scatter = *u.choose(&Scatter::ALL)?;
        let mut asked = given.clone();
        if scatter == Scatter::Write && u.arbitrary()? {
            // They repeat.
            (0..rank).filter(|it| *it != dim).for_each(|it| asked[it] = 1);
        }
        let indices = whole(*u.choose(&[DType::I64, DType::I32])?, &asked, -extent, extent, seed);
        let operands = vec![numbers(dtype, &shape, seed), indices, numbers(dtype, &given, seed + 1)];
        let mut trial = Trial::whole(Op::ScatterElements { dim, scatter }, operands, 0.0);
        trial.in_place[0] = trial.op.written().filter(|_| u.arbitrary().unwrap_or(true));
        Ok(trial)
    });
    check(&trials);
}

/// Of a block of the rows that are indexed, what lies in it is changed.
#[test]
fn slices_are_scattered() {
    let trials = many(24, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::I64, DType::Bool])?;
        let width = u.int_in_range(1..=2_usize)?;
        let extents = [*u.choose(&[2, 6])?, *u.choose(&[1, 4])?, *u.choose(&[1, 7])?];
        let tuples = *u.choose(&[1, 5, 300])?;
        let least = i64::try_from(*extents[..width].iter().min().unwrap()).unwrap();
        let indices = whole(DType::I64, &[tuples, u64::try_from(width).unwrap()], -least, least, seed);
        let mut given = vec![tuples];
        given.extend(&extents[width..]);
        let scatter = if dtype == DType::Bool { Scatter::Replace } else { *u.choose(&Scatter::ALL)? };
        let updates = numbers(dtype, &given, seed + 1);
        let (mut block, mut held) = (extents.to_vec(), vec![]);
        if extents[0] == 6 && u.arbitrary()? {
            block[0] = 3;
            held = extents.iter().map(|&it| Span::contiguous(it, 0)).collect();
            held[0].start = 3;
        }
        let in_place = (scatter == Scatter::Write && u.arbitrary()?).then_some(0);
        Ok(Trial {
            op: Op::ScatterNd { scatter },
            operands: vec![
                (numbers(dtype, &block, seed), held.clone()),
                (indices, vec![]),
                (updates, vec![]),
            ],
            results: vec![(Type::new(dtype, block), held)],
            tolerance: 0.0,
            in_place: vec![in_place],
            chain: None,
        })
    });
    check(&trials);
}
