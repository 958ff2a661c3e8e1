//! Gradients by finite differences, for the tests to compare with.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{DType, Op};

use crate::array::Array;
use crate::compute::evaluate;

/// A value of numbers (f64) of both signs, none of them near 0, where some functions bend.
pub(crate) fn smooth(u: &mut Unstructured, shape: &[u64]) -> Result<Array> {
    let count: u64 = shape.iter().product();
    let number = |_| Ok((f64::from(u.int_in_range(-800_i16..=800)?) + 0.5) / 500.0);
    let numbers: Vec<f64> = (0..count).map(number).collect::<Result<_>>()?;
    Ok(Array::of(shape, &numbers).unwrap())
}

/// A value with other elements.
pub(crate) fn cast(x: &Array, dtype: DType) -> Array {
    evaluate(&Op::Cast(dtype), &[x]).unwrap().remove(0)
}

/// Whether gradients of operands are those of `sum(dy * first result)`, by central differences in
/// f64; for each, which operand's it is.
pub(crate) fn check_gradients(forward: &Op, operands: &[&Array], dy: &Array, found: &[(usize, &Array)]) {
    const STEP: f64 = 1e-4;
    let dy = dy.to_floats().unwrap();
    let loss = |changed: usize, numbers: &[f64]| -> f64 {
        let changed_operand = Array::of(operands[changed].shape(), numbers).unwrap();
        let mut operands = operands.to_vec();
        operands[changed] = &changed_operand;
        let y = evaluate(forward, &operands).unwrap()[0].to_floats().unwrap();
        y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
    };
    for &(operand, gradient) in found {
        assert_eq!(gradient.type_(), operands[operand].type_(), "{forward}");
        let numbers = operands[operand].to_floats().unwrap();
        let expected: Vec<f64> = (0..numbers.len())
            .map(|at| {
                let shifted = |by: f64| {
                    let mut numbers = numbers.clone();
                    numbers[at] += by;
                    loss(operand, &numbers)
                };
                (shifted(STEP) - shifted(-STEP)) / (2.0 * STEP)
            })
            .collect();
        let what = format!("{forward}, operand {operand}");
        check_near(&gradient.to_floats().unwrap(), &expected, 1e-6, &what);
    }
}

/// Whether an operation gives of f32 and of bf16 nearly what it gives of the same numbers in f64.
pub(crate) fn check_narrow(op: &Op, operands: &[&Array]) {
    check_narrow_beside(op, operands, &[]);
}

/// The same of an operation that takes these operands in f32 where the others are narrower.
pub(crate) fn check_narrow_beside(op: &Op, operands: &[&Array], wide: &[usize]) {
    for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::BF16, 5e-3)] {
        let with = |dtype: DType, x: &Array| if x.dtype().is_float() { cast(x, dtype) } else { x.clone() };
        let narrowed =
            |(index, x): (usize, &&Array)| with(if wide.contains(&index) { DType::F32 } else { dtype }, x);
        let narrow: Vec<Array> = operands.iter().enumerate().map(narrowed).collect();
        let widened = |(x, given): (&Array, &&Array)| with(given.dtype(), x);
        let wide: Vec<Array> = narrow.iter().zip(operands).map(widened).collect();
        let found = evaluate(op, &narrow.iter().collect::<Vec<_>>()).unwrap();
        let expected = evaluate(op, &wide.iter().collect::<Vec<_>>()).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            let (found, expected) = (found.to_floats().unwrap(), expected.to_floats().unwrap());
            check_near(&found, &expected, tolerance, &format!("{op} of {dtype}"));
        }
    }
}

/// Whether numbers differ by little, relative to the largest of them or to 1.
pub(crate) fn check_near(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().fold(1.0_f64, |size, it| size.max(it.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = (found - expected).abs() <= tolerance * size;
        assert!(near, "{what}: {found} at {at}, expected {expected}");
    }
}
