//! Operations that take shapes as data.

use planner_ir::{DType, Dynamic, Edge, Extreme, Op, Real, Region, Type};

use crate::array::{Array, Tensor, element_count};
use crate::compute::evaluate_tensors;
use crate::error::KernelError;
use crate::movement::pad;
use crate::widen::{converted, floats, integers};

/// The results of an operation, of the shapes that its operands ask for.
pub(crate) fn dynamic(op: &Dynamic, operands: &[Tensor]) -> Result<Vec<Array>, KernelError> {
    let one = |array: Result<Array, KernelError>| Ok(vec![array?]);
    match (op, operands) {
        (Dynamic::Shape, [x]) => one(signed(x.shape).and_then(|it| vector(&it))),
        (Dynamic::NonZero, [x]) => one(non_zero(x)),
        (Dynamic::Reshape { zero_is_zero }, [x, shape]) => one(reshape(x, &integers(shape)?, *zero_is_zero)),
        (Dynamic::Expand, [x, shape]) => one(expand(x, &unsigned(&integers(shape)?)?)),
        (Dynamic::Slice, [x, starts, ends, rest @ ..]) if rest.len() <= 2 => {
            one(slice(x, [starts, ends], rest))
        }
        (Dynamic::Range, [start, limit, step]) => one(range([start, limit, step])),
        (Dynamic::Fill { dtype, value }, [shape]) => {
            let result = Type::new(*dtype, unsigned(&integers(shape)?)?);
            evaluate_tensors(&Op::Fill { result, value: *value }, &[])
        }
        (Dynamic::Split { dim }, [x, counts]) => split(*dim, x, &unsigned(&integers(counts)?)?),
        (Dynamic::TopK { dim, extreme }, [x, k]) => top(*dim, *extreme, x, k),
        (Dynamic::Tile, [x, repeats]) => one(tile(x, &unsigned(&integers(repeats)?)?)),
        (Dynamic::Unsqueeze { dims }, [x]) => one(unsqueeze(x, dims)),
        (Dynamic::Squeeze { dims }, [x]) => one(squeeze(x, dims)),
        (Dynamic::If { yes, no }, [condition, operands @ ..]) => branch([yes, no], condition, operands),
        (Dynamic::Loop { states, body }, [limit, condition, operands @ ..]) => {
            turns(body, *states, [limit, condition], operands)
        }
        _ => Err(KernelError::Count {
            of: "operands",
            found: operands.len(),
            expected: "what the operation takes",
        }),
    }
}

fn vector(numbers: &[i64]) -> Result<Array, KernelError> {
    let length = u64::try_from(numbers.len()).map_err(|_| KernelError::Size)?;
    Array::of([length], numbers)
}

fn signed(shape: &[u64]) -> Result<Vec<i64>, KernelError> {
    shape.iter().map(|&extent| i64::try_from(extent).map_err(|_| KernelError::Size)).collect()
}

fn unsigned(numbers: &[i64]) -> Result<Vec<u64>, KernelError> {
    let extent =
        |&found: &i64| u64::try_from(found).map_err(|_| KernelError::Number { of: "an extent", found });
    numbers.iter().map(extent).collect()
}

fn with_shape(x: &Tensor, shape: Vec<u64>) -> Result<Array, KernelError> {
    if element_count(&shape)? != element_count(x.shape)? {
        return Err(KernelError::Shape { of: "a reshaped value", found: x.shape.to_vec(), expected: shape });
    }
    Array::from_bytes(Type::new(x.dtype, shape), x.bytes)
}

/// The indices of the elements that are not zero.
fn non_zero(x: &Tensor) -> Result<Array, KernelError> {
    let truths = converted(x, DType::Bool)?;
    let found: Vec<u64> =
        (0..).zip(truths.bytes()).filter(|&(_, &truth)| truth != 0).map(|(at, _)| at).collect();
    let mut indices = Vec::with_capacity(found.len() * x.shape.len());
    for dim in 0..x.shape.len() {
        let inner: u64 = x.shape[dim + 1..].iter().product();
        for &at in &found {
            let index = at / inner % x.shape[dim];
            indices.push(i64::try_from(index).map_err(|_| KernelError::Size)?);
        }
    }
    let size = |count: usize| u64::try_from(count).map_err(|_| KernelError::Size);
    Array::of([size(x.shape.len())?, size(found.len())?], &indices)
}

fn reshape(x: &Tensor, shape: &[i64], zero_is_zero: bool) -> Result<Array, KernelError> {
    let rank = x.shape.len();
    let mut inferred = None;
    let mut extents = Vec::with_capacity(shape.len());
    for (dim, &extent) in shape.iter().enumerate() {
        extents.push(match extent {
            -1 if inferred.is_none() => {
                inferred = Some(dim);
                1
            }
            0 if !zero_is_zero => *x.shape.get(dim).ok_or(KernelError::Dimension { dim, rank })?,
            found => u64::try_from(found).map_err(|_| KernelError::Number { of: "an extent", found })?,
        });
    }
    if let Some(dim) = inferred {
        let known = element_count(&extents)?;
        let count = element_count(x.shape)?;
        let extent = count.checked_div(known).unwrap_or(0);
        extents[dim] = u64::try_from(extent).map_err(|_| KernelError::Size)?;
    }
    with_shape(x, extents)
}

/// x and the shape broadcast to each other.
fn expand(x: &Tensor, shape: &[u64]) -> Result<Array, KernelError> {
    let rank = x.shape.len().max(shape.len());
    let extent =
        |shape: &[u64], dim: usize| (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim]);
    let shape = (0..rank)
        .map(|dim| match (extent(x.shape, dim), extent(shape, dim)) {
            (own, 1) => own,
            (_, other) => other,
        })
        .collect();
    Ok(evaluate_tensors(&Op::Expand { shape }, &[*x])?.remove(0))
}

fn slice(x: &Tensor, [starts, ends]: [&Tensor; 2], rest: &[Tensor]) -> Result<Array, KernelError> {
    let rank = x.shape.len();
    let (starts, ends) = (integers(starts)?, integers(ends)?);
    let axes = match rest.first() {
        Some(axes) => integers(axes)?,
        None => signed(&(0..).take(starts.len()).collect::<Vec<u64>>())?,
    };
    let steps = match rest.get(1) {
        Some(steps) => integers(steps)?,
        None => vec![1; starts.len()],
    };
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        let found = ends.len();
        return Err(KernelError::Count { of: "ends", found, expected: "as many as starts" });
    }
    let mut op_starts = vec![0; rank];
    let mut op_steps = vec![1; rank];
    let mut sizes = x.shape.to_vec();
    for (index, &axis) in axes.iter().enumerate() {
        let dim = dimension(axis, rank)?;
        let extent = i128::from(x.shape[dim]);
        let step = i128::from(steps[index]);
        if step == 0 {
            return Err(KernelError::Number { of: "a step", found: 0 });
        }
        let bound = |number: i64, low: i128, high: i128| {
            let number = i128::from(number);
            (if number < 0 { number + extent } else { number }).clamp(low, high.max(low))
        };
        let (start, length) = if step > 0 {
            let start = bound(starts[index], 0, extent);
            (start, bound(ends[index], 0, extent) - start)
        } else {
            let start = bound(starts[index], 0, extent - 1);
            // The element at the end is left out, so that the end can be before the first.
            (start, start - bound(ends[index], -1, extent - 1))
        };
        let size = if extent == 0 { 0 } else { (length + step.abs() - 1).max(0) / step.abs() };
        sizes[dim] = u64::try_from(size).map_err(|_| KernelError::Size)?;
        op_starts[dim] = if sizes[dim] == 0 { 0 } else { u64::try_from(start).unwrap_or(0) };
        // A longer step takes one element, as one of the extent does.
        let longest = i64::try_from(x.shape[dim]).unwrap_or(i64::MAX).max(1);
        op_steps[dim] = steps[index].clamp(-longest, longest);
    }
    let op = Op::Slice { starts: op_starts, steps: op_steps, sizes };
    Ok(evaluate_tensors(&op, &[*x])?.remove(0))
}

/// The dimension that a number, perhaps counted from the end, names.
fn dimension(axis: i64, rank: usize) -> Result<usize, KernelError> {
    let count = i64::try_from(rank).map_err(|_| KernelError::Size)?;
    let dim = if axis < 0 { axis.saturating_add(count) } else { axis };
    let dim = usize::try_from(dim).ok().filter(|&dim| dim < rank);
    dim.ok_or(KernelError::Number { of: "a dimension", found: axis })
}

fn range(operands: [&Tensor; 3]) -> Result<Array, KernelError> {
    let dtype = operands[0].dtype;
    let mut numbers = [0.0; 3];
    for (number, operand) in numbers.iter_mut().zip(operands) {
        *number = match floats(operand)?.as_slice() {
            [number] => *number,
            other => {
                let found = other.len();
                return Err(KernelError::Count { of: "numbers", found, expected: "1" });
            }
        };
    }
    let [start, limit, step] = numbers;
    if step == 0.0 {
        return Err(KernelError::Number { of: "a step", found: 0 });
    }
    let length = crate::number::Number::of_f64(((limit - start) / step).ceil());
    let op = Op::Iota { dtype, length, start: Real(start), step: Real(step) };
    Ok(evaluate_tensors(&op, &[])?.remove(0))
}

fn split(dim: usize, x: &Tensor, counts: &[u64]) -> Result<Vec<Array>, KernelError> {
    let rank = x.shape.len();
    let extent = *x.shape.get(dim).ok_or(KernelError::Dimension { dim, rank })?;
    if counts.iter().try_fold(0_u64, |sum, &count| sum.checked_add(count)) != Some(extent) {
        return Err(KernelError::Shape {
            of: "the parts of a dimension",
            found: counts.to_vec(),
            expected: vec![extent],
        });
    }
    let mut start = 0;
    let mut parts = Vec::with_capacity(counts.len());
    for &count in counts {
        let (mut starts, mut sizes) = (vec![0; rank], x.shape.to_vec());
        starts[dim] = start;
        sizes[dim] = count;
        let op = Op::Slice { starts, steps: vec![1; rank], sizes };
        parts.extend(evaluate_tensors(&op, &[*x])?);
        start += count;
    }
    Ok(parts)
}

fn top(dim: usize, extreme: Extreme, x: &Tensor, k: &Tensor) -> Result<Vec<Array>, KernelError> {
    let k = unsigned(&integers(k)?)?;
    let [k] = k.as_slice() else {
        return Err(KernelError::Count { of: "numbers", found: k.len(), expected: "1" });
    };
    evaluate_tensors(&Op::TopK { dim, k: *k, extreme }, &[*x])
}

fn tile(x: &Tensor, repeats: &[u64]) -> Result<Array, KernelError> {
    if repeats.len() != x.shape.len() {
        let found = repeats.len();
        return Err(KernelError::Count { of: "repeats", found, expected: "one a dimension" });
    }
    let shape = x.shape.iter().zip(repeats).map(|(&extent, &count)| extent.checked_mul(count));
    let shape: Option<Vec<u64>> = shape.collect();
    let mut y = Array::zeros(Type::new(x.dtype, shape.ok_or(KernelError::Size)?))?;
    pad(&vec![0; x.shape.len()], Edge::Wrap, x, &mut y.tensor_mut())?;
    Ok(y)
}

fn unsqueeze(x: &Tensor, dims: &[usize]) -> Result<Array, KernelError> {
    let mut shape = x.shape.to_vec();
    for &dim in dims {
        if dim > shape.len() {
            return Err(KernelError::Dimension { dim, rank: shape.len() });
        }
        shape.insert(dim, 1);
    }
    with_shape(x, shape)
}

fn squeeze(x: &Tensor, dims: &[usize]) -> Result<Array, KernelError> {
    let rank = x.shape.len();
    if let Some(&dim) = dims.iter().find(|&&dim| dim >= rank) {
        return Err(KernelError::Dimension { dim, rank });
    }
    let kept = x.shape.iter().enumerate().filter(|(dim, _)| !dims.contains(dim));
    with_shape(x, kept.map(|(_, &extent)| extent).collect())
}

/// The results of one of two branches, whose operands follow each other.
/// The only element of a condition.
fn is_true(condition: &Tensor) -> Result<bool, KernelError> {
    match converted(condition, DType::Bool)?.bytes() {
        [truth] => Ok(*truth != 0),
        other => Err(KernelError::Count { of: "conditions", found: other.len(), expected: "1" }),
    }
}

fn branch(
    [yes, no]: [&Region; 2],
    condition: &Tensor,
    operands: &[Tensor],
) -> Result<Vec<Array>, KernelError> {
    let is_true = is_true(condition)?;
    if yes.operands + no.operands != operands.len() {
        let found = operands.len();
        return Err(KernelError::Count { of: "operands", found, expected: "the branches'" });
    }
    let (first, second) = operands.split_at(yes.operands);
    let (region, operands) = if is_true { (yes, first) } else { (no, second) };
    super::interpret(region, operands)
}

/// More turns than that of a loop that has no count are no end of it.
const MOST_TURNS: i64 = 1 << 20;

/// The last states of a loop, and its lists.
fn turns(
    body: &Region,
    states: usize,
    [limit, condition]: [&Tensor; 2],
    operands: &[Tensor],
) -> Result<Vec<Array>, KernelError> {
    let lists = body.results.len().checked_sub(1 + states);
    let (Some(lists), Some((first, rest))) = (lists, operands.split_at_checked(states)) else {
        return Err(KernelError::Count { of: "operands", found: operands.len(), expected: "the states" });
    };
    let limit = match integers(limit)?.as_slice() {
        [limit] => *limit,
        other => return Err(KernelError::Count { of: "counts", found: other.len(), expected: "1" }),
    };
    let copied = |x: &Tensor| Array::from_bytes(Type::new(x.dtype, x.shape), x.bytes);
    let mut state: Vec<Array> = first.iter().map(copied).collect::<Result<_, _>>()?;
    let mut elements: Vec<Vec<Array>> = vec![Vec::new(); lists];
    let mut condition = copied(condition)?;
    let mut number = 0;
    while number < limit && is_true(&condition.tensor())? {
        if limit == i64::MAX && number == MOST_TURNS {
            return Err(KernelError::Number { of: "the turns of a loop without a count", found: number });
        }
        let turn = Array::of(Vec::new(), &[number])?;
        let given: Vec<Tensor> = [&turn, &condition].into_iter().chain(&state).map(Array::tensor).collect();
        let mut made = super::interpret(body, &[&given, rest].concat())?.into_iter();
        drop(given);
        condition = made.next().ok_or(KernelError::Count { of: "results", found: 0, expected: "more" })?;
        state = made.by_ref().take(states).collect();
        for (list, element) in elements.iter_mut().zip(made) {
            list.push(element);
        }
        number += 1;
    }
    for (list, type_) in elements.iter().zip(&body.types[1 + states..]) {
        state.push(stacked(list, type_)?);
    }
    Ok(state)
}

/// Values along a new first dimension; of that type if there are none.
fn stacked(list: &[Array], type_: &Type) -> Result<Array, KernelError> {
    let count = u64::try_from(list.len()).map_err(|_| KernelError::Size)?;
    let type_ = list.first().map_or(type_, Array::type_);
    let mut bytes = Vec::new();
    for element in list {
        if element.type_() != type_ {
            let (found, expected) = (element.shape().to_vec(), type_.shape.clone());
            return Err(KernelError::Shape { of: "an element of a list", found, expected });
        }
        bytes.extend_from_slice(element.bytes());
    }
    Array::from_bytes(Type::new(type_.dtype, [&[count], type_.shape.as_slice()].concat()), &bytes)
}
