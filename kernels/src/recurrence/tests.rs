//! Recurrences beside plain loops over single numbers.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use planner_ir::{DType, Op, Recurrence, Type, TypeError};

use crate::array::Array;
use crate::compute::evaluate;

/// Extents: batches, tokens, key heads, heads of each, rows, columns.
struct Case {
    it: Recurrence,
    sizes: [usize; 6],
    decays: usize,
    operands: Vec<Vec<f64>>,
    shapes: Vec<Vec<u64>>,
}

fn case(u: &mut Unstructured) -> Result<Case> {
    let it = *u.choose(&[Recurrence::SelectiveScan, Recurrence::GatedDelta])?;
    let mut sizes = [0; 6];
    for (size, most) in sizes.iter_mut().zip([2, 9, 3, 3, 5, 6]) {
        *size = u.int_in_range(1..=most)?;
    }
    let [b, s, n, r, d, e] = sizes;
    let decays = *u.choose(&[1, d])?;
    let mut shapes =
        vec![vec![b, s, n, d], vec![b, s, n, d], vec![b, s, n * r, e], vec![b, s, n * r, decays]];
    if it.replaces() {
        shapes.push(vec![b, s, n * r]);
    }
    shapes.push(vec![b, n * r, d, e]);
    let mut operands = Vec::new();
    for (index, shape) in shapes.iter().enumerate() {
        let number = |u: &mut Unstructured| {
            let number = f64::from(u.int_in_range(-32_i8..=32)?) / 32.0;
            // States fade, as they do in models.
            Ok(if index == 3 { -number.abs() } else { number })
        };
        operands.push((0..shape.iter().product()).map(|_| number(u)).collect::<Result<Vec<_>>>()?);
    }
    let shapes = shapes.iter().map(|shape| shape.iter().map(|&it| u64::try_from(it).unwrap()).collect());
    Ok(Case { it, sizes, decays, operands, shapes: shapes.collect() })
}

/// Results and the last state, number by number.
fn plainly(case: &Case) -> [Vec<f64>; 2] {
    let [b, s, n, r, d, e] = case.sizes;
    let heads = n * r;
    let [q, k, v, g] = [0, 1, 2, 3].map(|it: usize| &case.operands[it]);
    let mut state = case.operands[case.operands.len() - 1].clone();
    let mut y = vec![0.0; b * s * heads * e];
    for batch in 0..b {
        for head in 0..heads {
            let at = |row: usize, column: usize| ((batch * heads + head) * d + row) * e + column;
            for token in 0..s {
                let own = (batch * s + token) * heads + head;
                let key = |row: usize| ((batch * s + token) * n + head / r) * d + row;
                for row in 0..d {
                    for column in 0..e {
                        state[at(row, column)] *= g[own * case.decays + row.min(case.decays - 1)].exp();
                    }
                }
                for column in 0..e {
                    let found: f64 = (0..d).map(|row| k[key(row)] * state[at(row, column)]).sum();
                    let value = v[own * e + column];
                    let new =
                        if case.it.replaces() { case.operands[4][own] * (value - found) } else { value };
                    for row in 0..d {
                        state[at(row, column)] += k[key(row)] * new;
                    }
                    y[own * e + column] = (0..d).map(|row| q[key(row)] * state[at(row, column)]).sum();
                }
            }
        }
    }
    [y, state]
}

fn arrays(case: &Case, dtype: impl Fn(usize) -> DType) -> Vec<Array> {
    let one = |(index, numbers): (usize, &Vec<f64>)| {
        let whole = Array::of(case.shapes[index].clone(), numbers).unwrap();
        evaluate(&Op::Cast(dtype(index)), &[&whole]).unwrap().remove(0)
    };
    case.operands.iter().enumerate().map(one).collect()
}

fn near(found: &Array, expected: &[f64], tolerance: f64, what: &str) {
    let found = found.to_floats().unwrap();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let apart = (found - expected).abs();
        assert!(apart <= tolerance * expected.abs().max(1.0), "{what}: {found}, expected {expected}");
    }
}

#[test]
fn recurrences_are_plain_loops() {
    arbtest(|u| {
        let case = case(u)?;
        let (op, expected) = (Op::Recurrence(case.it), plainly(&case));
        for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-4)] {
            let operands = arrays(&case, |_| dtype);
            let made = evaluate(&op, &operands.iter().collect::<Vec<_>>()).unwrap();
            for (made, expected) in made.iter().zip(&expected) {
                near(made, expected, tolerance, &format!("{op} of {dtype}"));
            }
        }
        Ok(())
    });
}

/// Narrow values with a wide state, and decays of either.
#[test]
fn narrow_values_have_wide_states() {
    arbtest(|u| {
        let case = case(u)?;
        let (op, last) = (Op::Recurrence(case.it), case.operands.len() - 1);
        let wide_decay: bool = u.arbitrary()?;
        let of = |index: usize| {
            let wide = index == last || (index > 2 && wide_decay);
            if wide { DType::F32 } else { DType::BF16 }
        };
        // What bf16 can say of the operands.
        let operands = arrays(&case, of);
        let rounded = operands.iter().map(|it| it.to_floats().unwrap()).collect();
        let expected = plainly(&Case { operands: rounded, shapes: case.shapes.clone(), ..case });
        let made = evaluate(&op, &operands.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!([made[0].dtype(), made[1].dtype()], [DType::BF16, DType::F32]);
        near(&made[0], &expected[0], 1e-2, "results");
        near(&made[1], &expected[1], 1e-4, "the state");
        Ok(())
    });
}

/// A sequence in two parts is the sequence, bit for bit.
#[test]
fn a_state_carries_a_sequence_on() {
    arbtest(|u| {
        let case = case(u)?;
        let op = Op::Recurrence(case.it);
        let tokens = u64::try_from(case.sizes[1]).unwrap();
        let cut = u.int_in_range(0..=tokens)?;
        let whole = arrays(&case, |_| DType::F32);
        let last = whole.len() - 1;
        let of = |operands: &[Array]| evaluate(&op, &operands.iter().collect::<Vec<_>>()).unwrap();
        let part = |start: u64, count: u64, state: &Array| {
            let taken = |x: &Array| {
                let mut starts = vec![0; x.shape().len()];
                let mut sizes = x.shape().to_vec();
                (starts[1], sizes[1]) = (start, count);
                let steps = vec![1; sizes.len()];
                evaluate(&Op::Slice { starts, steps, sizes }, &[x]).unwrap().remove(0)
            };
            let mut operands: Vec<Array> = whole[..last].iter().map(taken).collect();
            operands.push(state.clone());
            of(&operands)
        };
        let first = part(0, cut, &whole[last]);
        let second = part(cut, tokens - cut, &first[1]);
        let joined = evaluate(&Op::Concat { dim: 1 }, &[&first[0], &second[0]]).unwrap().remove(0);
        let all = of(&whole);
        assert_eq!((&joined, &second[1]), (&all[0], &all[1]));
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let of = |shape: &[u64]| Type::new(DType::F32, shape);
    let keys = of(&[1, 3, 2, 4]);
    let fits = [keys.clone(), keys, of(&[1, 3, 4, 5]), of(&[1, 3, 4, 1]), of(&[1, 4, 4, 5])];
    let op = Op::Recurrence(Recurrence::SelectiveScan);
    assert!(op.infer(&fits).is_ok());
    for (index, shape) in [(1, &[1, 3, 2, 3][..]), (2, &[1, 3, 3, 5]), (3, &[1, 3, 4, 2]), (4, &[1, 2, 4, 5])]
    {
        let mut operands = fits.clone();
        operands[index] = of(shape);
        let error = op.infer(&operands).unwrap_err();
        assert!(matches!(error, TypeError::Operand(it, ..) if it == index), "{error}");
    }
}
