//! Contractions and index arithmetic written down plainly, for the tests to compare with.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{Op, Type};

use crate::array::{Array, Span, Tensor, TensorMut};
use crate::compute::{compute, evaluate};

/// Every index of a shape, row-major.
pub(crate) fn every_index(shape: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for &extent in shape {
        all = all
            .into_iter()
            .flat_map(|index: Vec<u64>| (0..extent).map(move |at| [&index[..], &[at]].concat()))
            .collect();
    }
    all
}

/// The place of an index that broadcasts to a shape.
pub(crate) fn place(shape: &[u64], index: &[u64]) -> usize {
    let missing = index.len() - shape.len();
    let place = shape
        .iter()
        .zip(&index[missing..])
        .fold(0, |place, (&extent, &at)| place * extent + if extent == 1 { 0 } else { at });
    usize::try_from(place).unwrap()
}

/// A value as numbers that can be asked for by index.
pub(crate) struct Numbers {
    shape: Vec<u64>,
    numbers: Vec<f64>,
}

impl Numbers {
    pub(crate) fn of(array: &Array) -> Self {
        Self { shape: array.shape().to_vec(), numbers: array.to_floats().unwrap() }
    }

    pub(crate) fn at(&self, index: &[u64]) -> f64 {
        self.numbers[place(&self.shape, index)]
    }
}

/// A value of small multiples of a half, exact in every type.
pub(crate) fn arbitrary(u: &mut Unstructured, shape: &[u64]) -> Result<Array> {
    let count: u64 = shape.iter().product();
    let number = |_| Ok(f32::from(u.int_in_range(-8_i8..=8)?) / 2.0);
    let numbers: Vec<f32> = (0..count).map(number).collect::<Result<_>>()?;
    Ok(Array::of(shape, &numbers).unwrap())
}

/// Indices from `low` to `high`.
pub(crate) fn arbitrary_indices(u: &mut Unstructured, shape: &[u64], low: i64, high: i64) -> Result<Array> {
    let count: u64 = shape.iter().product();
    let numbers: Vec<i64> = (0..count).map(|_| u.int_in_range(low..=high)).collect::<Result<_>>()?;
    Ok(Array::of(shape, &numbers).unwrap())
}

/// The one result of an operation.
pub(crate) fn one(op: &Op, operands: &[&Array]) -> Array {
    let mut results = evaluate(op, operands).unwrap();
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Whether every number is near what a function of its index says.
pub(crate) fn check(found: &Array, expected: impl Fn(&[u64]) -> f64) {
    let numbers = Numbers::of(found);
    for index in every_index(found.shape()) {
        let (found, expected) = (numbers.at(&index), expected(&index));
        let is_near = (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
        let is_same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(is_near || is_same, "{found}, expected {expected}, at {index:?}");
    }
}

/// One of `parts` equal blocks of a value along a dimension, and where it lies.
pub(crate) fn block(whole: &Array, dim: usize, parts: u64, part: u64) -> (Array, Vec<Span>) {
    let rank = whole.shape().len();
    let extent = whole.shape()[dim] / parts;
    let (mut starts, mut sizes) = (vec![0; rank], whole.shape().to_vec());
    starts[dim] = part * extent;
    sizes[dim] = extent;
    let spans = (0..rank).map(|dim| Span::contiguous(whole.shape()[dim], starts[dim])).collect();
    let op = Op::Slice { starts, steps: vec![1; rank], sizes };
    (one(&op, &[whole]), spans)
}

/// Every so many elements of a value along a dimension, from one on, and where they lie.
pub(crate) fn stripes(whole: &Array, dim: usize, parts: u64, part: u64) -> (Array, Vec<Span>) {
    let rank = whole.shape().len();
    let (mut starts, mut steps, mut sizes) = (vec![0; rank], vec![1; rank], whole.shape().to_vec());
    (starts[dim], sizes[dim]) = (part, whole.shape()[dim] / parts);
    steps[dim] = i64::try_from(parts).unwrap();
    let mut spans: Vec<Span> = whole.shape().iter().map(|&extent| Span::contiguous(extent, 0)).collect();
    spans[dim] = Span { start: part, stride: parts, ..spans[dim] };
    (one(&Op::Slice { starts, steps, sizes }, &[whole]), spans)
}

/// The results of an operation on blocks: each operand is cut along its dimension, and the
/// results are the blocks along theirs; `None` is whole.
pub(crate) fn compute_blocks(
    op: &Op,
    operands: &[(&Array, Option<usize>)],
    results: &[(&Type, Option<usize>)],
    parts: u64,
    part: u64,
) -> Vec<Array> {
    let cut: Vec<(Array, Vec<Span>)> = operands
        .iter()
        .map(|&(whole, dim)| match dim {
            Some(dim) => block(whole, dim, parts, part),
            None => (whole.clone(), Vec::new()),
        })
        .collect();
    let inputs: Vec<Tensor> = cut.iter().map(|(array, spans)| Tensor { spans, ..array.tensor() }).collect();
    let mut outputs: Vec<(Array, Vec<Span>)> = results
        .iter()
        .map(|&(type_, dim)| {
            let (mut shape, mut starts) = (type_.shape.clone(), vec![0; type_.rank()]);
            if let Some(dim) = dim {
                shape[dim] /= parts;
                starts[dim] = part * shape[dim];
            }
            let spans = starts.iter().zip(&type_.shape);
            let spans = spans.map(|(&start, &extent)| Span::contiguous(extent, start)).collect();
            let mut array = Array::zeros(Type::new(type_.dtype, shape)).unwrap();
            // Whatever stood there before must not matter.
            array.bytes_mut().fill(0x5a);
            (array, spans)
        })
        .collect();
    let mut targets: Vec<TensorMut> =
        outputs.iter_mut().map(|(array, spans)| TensorMut { spans, ..array.tensor_mut() }).collect();
    compute(op, &inputs, &mut targets).unwrap();
    outputs.into_iter().map(|(array, _)| array).collect()
}

/// Whether the blocks of an operation's results, one after another, are its whole results.
pub(crate) fn check_blocks(
    op: &Op,
    operands: &[(&Array, Option<usize>)],
    results: &[Option<usize>],
    parts: u64,
) {
    let wholes: Vec<&Array> = operands.iter().map(|&(whole, _)| whole).collect();
    let expected = evaluate(op, &wholes).unwrap();
    let types: Vec<(&Type, Option<usize>)> =
        expected.iter().zip(results).map(|(array, &dim)| (array.type_(), dim)).collect();
    for part in 0..parts {
        let found = compute_blocks(op, operands, &types, parts, part);
        for ((found, expected), &dim) in found.iter().zip(&expected).zip(results) {
            let expected = match dim {
                Some(dim) => block(expected, dim, parts, part).0,
                None => expected.clone(),
            };
            let expected = Numbers::of(&expected);
            check(found, |index| expected.at(index));
        }
    }
}

/// Whether the sum of an operation's results on blocks is its whole result.
pub(crate) fn check_sum(op: &Op, operands: &[(&Array, Option<usize>)], parts: u64) {
    let wholes: Vec<&Array> = operands.iter().map(|&(whole, _)| whole).collect();
    let expected = one(op, &wholes);
    let addends: Vec<Numbers> = (0..parts)
        .map(|part| {
            let found = compute_blocks(op, operands, &[(expected.type_(), None)], parts, part);
            Numbers::of(&found[0])
        })
        .collect();
    check(&expected, |index| addends.iter().map(|addend| addend.at(index)).sum());
}
