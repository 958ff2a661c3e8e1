//! Gathers and scatters against their definitions by index.

use arbtest::arbtest;
use planner_ir::{Op, Scatter};

use crate::finite::{check_gradients, check_narrow, smooth};
use crate::naive::{Numbers, arbitrary, arbitrary_indices, check, check_blocks, check_sum, every_index, one};
use crate::{Array, KernelError, evaluate};

fn wrapped(index: f64, extent: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "indices are small")]
    let index = index as i64;
    u64::try_from(if index < 0 { index + i64::try_from(extent).unwrap() } else { index }).unwrap()
}

#[test]
fn indices_replace_a_dimension() {
    arbtest(|u| {
        let data = arbitrary(u, &[2, 4, 3])?;
        for (dim, extent) in [(0, 2), (1, 4), (2, 3)] {
            let index = arbitrary_indices(u, &[2, 2], -extent, extent - 1)?;
            let (numbers, indices) = (Numbers::of(&data), Numbers::of(&index));
            let op = Op::Gather { dim };
            check(&one(&op, &[&data, &index]), |at| {
                let named = wrapped(indices.at(&at[dim..dim + 2]), extent.unsigned_abs());
                numbers.at(&[&at[..dim], &[named], &at[dim + 2..]].concat())
            });
        }
        let op = Op::Gather { dim: 1 };
        let index = arbitrary_indices(u, &[4], -4, 3)?;
        check_blocks(&op, &[(&data, Some(0)), (&index, None)], &[Some(0)], 2);
        check_blocks(&op, &[(&data, None), (&index, Some(0))], &[Some(1)], 2);
        // Each row is in one of the blocks.
        check_sum(&op, &[(&data, Some(1)), (&index, None)], 4);
        Ok(())
    });
}

#[test]
fn an_index_outside_is_an_error() {
    let data = Array::of([3], &[1.0_f32, 2.0, 3.0]).unwrap();
    for found in [3_i64, -4, i64::MAX, i64::MIN] {
        let index = Array::of([1], &[found]).unwrap();
        let update = Array::of([1], &[1.0_f32]).unwrap();
        let tuple = Array::of([1, 1], &[found]).unwrap();
        let expected = Err(KernelError::Index { index: found, extent: 3 });
        assert_eq!(evaluate(&Op::Gather { dim: 0 }, &[&data, &index]), expected);
        assert_eq!(evaluate(&Op::GatherElements { dim: 0 }, &[&data, &index]), expected);
        assert_eq!(evaluate(&Op::GatherNd { batch_dims: 0 }, &[&data, &tuple]), expected);
        let op = Op::ScatterElements { dim: 0, scatter: Scatter::Add };
        assert_eq!(evaluate(&op, &[&data, &index, &update]), expected);
        let op = Op::ScatterNd { scatter: Scatter::Replace };
        assert_eq!(evaluate(&op, &[&data, &tuple, &update]), expected);
    }
}

#[test]
fn elements_are_gathered_and_scattered_where_indices_say() {
    arbtest(|u| {
        let data = arbitrary(u, &[4, 3])?;
        let rows = u.int_in_range(1..=2)? * 2;
        let index = arbitrary_indices(u, &[rows, 2], -4, 3)?;
        let updates = arbitrary(u, &[rows, 2])?;
        let [numbers, indices, changes] = [&data, &index, &updates].map(Numbers::of);
        let gather = Op::GatherElements { dim: 0 };
        check(&one(&gather, &[&data, &index]), |at| numbers.at(&[wrapped(indices.at(at), 4), at[1]]));
        check_sum(&gather, &[(&data, Some(0)), (&index, None)], 4);
        let aligned = arbitrary_indices(u, &[4, 3], -3, 2)?;
        let op = Op::GatherElements { dim: 1 };
        check_blocks(&op, &[(&data, Some(0)), (&aligned, Some(0))], &[Some(0)], 2);

        for scatter in Scatter::ALL {
            let op = Op::ScatterElements { dim: 0, scatter };
            check(&one(&op, &[&data, &index, &updates]), |at| {
                let mut value = numbers.at(at);
                for place in every_index(&[rows, 2]) {
                    if [wrapped(indices.at(&place), 4), place[1]] == at[..] {
                        value = combined(scatter, value, changes.at(&place));
                    }
                }
                value
            });
            check_blocks(&op, &[(&data, Some(0)), (&index, None), (&updates, None)], &[Some(0)], 4);
            // Where data are already it is the same.
            let mut there = data.clone();
            let others = [index.tensor(), updates.tensor()];
            crate::write(&op, &others, &mut there.tensor_mut()).unwrap();
            assert_eq!(there, one(&op, &[&data, &index, &updates]));
        }
        // Indices that repeat.
        let op = Op::ScatterElements { dim: 0, scatter: Scatter::Write };
        let column = arbitrary_indices(u, &[rows, 1], -4, 3)?;
        let all = one(&Op::Expand { shape: vec![rows, 2] }, &[&column]);
        assert_eq!(one(&op, &[&data, &column, &updates]), one(&op, &[&data, &all, &updates]));
        Ok(())
    });
}

fn combined(scatter: Scatter, value: f64, update: f64) -> f64 {
    match scatter {
        Scatter::Replace | Scatter::Write => update,
        Scatter::Add => value + update,
        Scatter::Mul => value * update,
        Scatter::Max => value.max(update),
        Scatter::Min => value.min(update),
    }
}

#[test]
fn slices_are_gathered_and_scattered_where_tuples_say() {
    arbtest(|u| {
        let data = arbitrary(u, &[2, 4, 3])?;
        let numbers = Numbers::of(&data);
        let index = arbitrary_indices(u, &[2, 3, 1], -4, 3)?;
        let indices = Numbers::of(&index);
        let op = Op::GatherNd { batch_dims: 1 };
        check(&one(&op, &[&data, &index]), |at| {
            numbers.at(&[at[0], wrapped(indices.at(&[at[0], at[1], 0]), 4), at[2]])
        });
        check_blocks(&op, &[(&data, Some(0)), (&index, Some(0))], &[Some(0)], 2);
        check_sum(&op, &[(&data, Some(1)), (&index, None)], 2);

        let index = arbitrary_indices(u, &[3, 2], -2, 1)?;
        let updates = arbitrary(u, &[3, 3])?;
        let [indices, changes] = [&index, &updates].map(Numbers::of);
        let op = Op::ScatterNd { scatter: Scatter::Add };
        check(&one(&op, &[&data, &index, &updates]), |at| {
            let hits = (0..3).filter(|&row| {
                [wrapped(indices.at(&[row, 0]), 2), wrapped(indices.at(&[row, 1]), 4)] == at[..2]
            });
            numbers.at(at) + hits.map(|row| changes.at(&[row, at[2]])).sum::<f64>()
        });
        let mut there = data.clone();
        crate::write(&op, &[index.tensor(), updates.tensor()], &mut there.tensor_mut()).unwrap();
        assert_eq!(there, one(&op, &[&data, &index, &updates]));
        for dim in [0, 1] {
            let operands = [(&data, Some(dim)), (&index, None), (&updates, None)];
            check_blocks(&op, &operands, &[Some(dim)], 2);
        }
        let operands = [(&data, Some(2)), (&index, None), (&updates, Some(1))];
        check_blocks(&op, &operands, &[Some(2)], 3);
        Ok(())
    });
}

#[test]
fn what_was_gathered_gives_its_gradient_back() {
    arbtest(|u| {
        let shape = [u.int_in_range(1..=2)?, 2 * u.int_in_range(1..=3)?, u.int_in_range(1..=2)?];
        let dim = u.int_in_range(0..=2)?;
        let extent = shape[dim];
        let data = smooth(u, &shape)?;
        let high = i64::try_from(extent).unwrap();
        let index = arbitrary_indices(u, &[2, 3], -high, high - 1)?;
        let forward = Op::Gather { dim };
        let dy = smooth(u, one(&forward, &[&data, &index]).shape())?;
        let op = Op::GatherGradient { dim, extent };
        let found = one(&op, &[&index, &dy]);
        check_gradients(&forward, &[&data, &index], &dy, &[(0, &found)]);
        check_narrow(&op, &[&index, &dy]);
        if extent.is_multiple_of(2) {
            check_blocks(&op, &[(&index, None), (&dy, None)], &[Some(dim)], 2);
        }
        Ok(())
    });
}
