//! The same elements in other places.
//!
//! Kernels here do not look at elements: they move bytes.

use planner_ir::{Edge, Real, Triangle, Type};

use crate::array::{Array, Tensor, TensorMut, expect_dtype, extents};
use crate::cast::cast;
use crate::error::KernelError;
use crate::nest::{Level, Nest, repeated, row_major};

mod copy;

pub(crate) use copy::{copy, copy_elements};

/// `y = x` row-major, in whatever shape.
pub(crate) fn reshape(x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    if x.bytes.len() != y.bytes.len() {
        return Err(misfit("a reshaped value", y, x.shape));
    }
    y.bytes.copy_from_slice(x.bytes);
    Ok(())
}

/// `y.shape[i] = x.shape[permutation[i]]`.
pub(crate) fn transpose(permutation: &[usize], x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..x.shape.len()) {
        return Err(KernelError::Dimension { dim: permutation.len(), rank: x.shape.len() });
    }
    let expected: Vec<u64> = permutation.iter().map(|&dim| x.shape[dim]).collect();
    if expected != y.shape {
        return Err(misfit("a transposed value", y, &expected));
    }
    let target = extents(y.shape)?;
    let (strides, source) = (row_major(&target), row_major(&extents(x.shape)?));
    let nest = Nest::new(
        permutation
            .iter()
            .enumerate()
            .map(|(place, &dim)| Level { extent: target[place], strides: [strides[place], source[dim]] }),
    );
    copy(&nest, [0, 0], x, y)
}

/// x repeated to the shape of y.
pub(crate) fn expand(x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    let target = extents(y.shape)?;
    let strides = row_major(&target);
    let source = repeated(&extents(x.shape)?, &target)?;
    let nest = Nest::new(
        (0..target.len()).map(|dim| Level { extent: target[dim], strides: [strides[dim], source[dim]] }),
    );
    copy(&nest, [0, 0], x, y)
}

/// The operands one after another along a dimension.
pub(crate) fn concat(dim: usize, operands: &[Tensor], y: &mut TensorMut) -> Result<(), KernelError> {
    let rank = y.shape.len();
    if dim >= rank {
        return Err(KernelError::Dimension { dim, rank });
    }
    let mut total = 0_u64;
    for x in operands {
        expect_dtype(x.dtype, y.dtype)?;
        let fits =
            x.shape.len() == rank && (0..rank).all(|other| other == dim || x.shape[other] == y.shape[other]);
        if !fits {
            return Err(misfit("a concatenated value", y, x.shape));
        }
        total += x.shape[dim];
    }
    if total != y.shape[dim] {
        return Err(misfit("a concatenated value", y, &[total]));
    }
    let runs = crate::array::element_count(&y.shape[..dim])?;
    let mut start = 0;
    let pitch = y.bytes.len().checked_div(runs).unwrap_or(0);
    for x in operands {
        let length = x.bytes.len().checked_div(runs).unwrap_or(0);
        for run in 0..runs {
            let target = run * pitch + start;
            y.bytes[target..target + length].copy_from_slice(&x.bytes[run * length..(run + 1) * length]);
        }
        start += length;
    }
    Ok(())
}

/// `y[i..] = x[starts + i * steps ..]`, for every dimension.
pub(crate) fn slice(starts: &[u64], steps: &[i64], x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    let rank = x.shape.len();
    if starts.len() != rank || steps.len() != rank || y.shape.len() != rank {
        return Err(misfit("a slice", y, x.shape));
    }
    let places = (0..rank)
        .map(|dim| {
            let (from, to) = (x.span(dim), y.span(dim));
            // A block of a value that consists of runs has a part of each run.
            let step = steps[dim].unsigned_abs().max(1);
            let runs = starts[dim] / step * x.shape[dim] / from.extent.max(1);
            let start = i128::from(runs * step + starts[dim] % step);
            let place = |index: u64| {
                let position = start + i128::from(steps[dim]) * i128::from(to.start + index);
                inside(position, from.start, x.shape[dim], from.extent)
            };
            (0..y.shape[dim]).map(place).collect()
        })
        .collect::<Result<Vec<Vec<usize>>, KernelError>>()?;
    let source = row_major(&extents(x.shape)?);
    let target = extents(y.shape)?;
    let strides = row_major(&target);
    // The places along a dimension are an arithmetic series.
    let start = (0..rank).map(|dim| places[dim].first().map_or(0, |&first| first * source[dim]));
    let start = start.sum();
    let nest = Nest::new((0..rank).map(|dim| {
        let step = match places[dim].as_slice() {
            [first, second, ..] => second.wrapping_sub(*first).wrapping_mul(source[dim]),
            _ => 0,
        };
        Level { extent: target[dim], strides: [strides[dim], step] }
    }));
    expect_dtype(x.dtype, y.dtype)?;
    copy(&nest, [0, start], x, y)
}

/// One number, repeated.
pub(crate) fn fill(number: Real, y: &mut TensorMut) -> Result<(), KernelError> {
    let one = Array::of(Vec::new(), &[number.0])?;
    let mut element = Array::zeros(Type::new(y.dtype, Vec::new()))?;
    cast(&one.tensor(), &mut element.tensor_mut())?;
    for bytes in y.bytes.chunks_exact_mut(element.bytes().len()) {
        bytes.copy_from_slice(element.bytes());
    }
    Ok(())
}

/// More elements around x, or fewer.
pub(crate) fn pad(before: &[i64], edge: Edge, x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    let rank = x.shape.len();
    if before.len() != rank || y.shape.len() != rank {
        return Err(misfit("a padded value", y, x.shape));
    }
    if let Edge::Constant(number) = edge {
        fill(number, y)?;
    }
    let places = (0..rank)
        .map(|dim| {
            let (from, to) = (x.span(dim), y.span(dim));
            let place = |index: u64| {
                let position = i128::from(to.start + index) - i128::from(before[dim]);
                match reflected(position, from.extent, edge) {
                    None => Ok(None),
                    Some(position) => inside(position, from.start, x.shape[dim], from.extent).map(Some),
                }
            };
            (0..y.shape[dim]).map(place).collect()
        })
        .collect::<Result<Vec<Vec<Option<usize>>>, KernelError>>()?;
    copy::copy_from_places(&places, x, y)
}

/// Where the element at a position of the padded value stands in the value, if in it at all.
fn reflected(position: i128, extent: u64, edge: Edge) -> Option<i128> {
    let extent = i128::from(extent);
    match edge {
        _ if (0..extent).contains(&position) => Some(position),
        Edge::Constant(_) => None,
        // There is nothing to repeat: the position is refused as an index.
        _ if extent == 0 => Some(position),
        Edge::Repeat => Some(position.clamp(0, extent - 1)),
        Edge::Wrap => Some(position.rem_euclid(extent)),
        Edge::Reflect if extent == 1 => Some(0),
        Edge::Reflect => {
            let period = 2 * (extent - 1);
            let turned = position.rem_euclid(period);
            Some(if turned < extent { turned } else { period - turned })
        }
    }
}

/// The place in the block of a position in the value.
fn inside(position: i128, start: u64, length: u64, extent: u64) -> Result<usize, KernelError> {
    let outside = || KernelError::Index { index: i64::try_from(position).unwrap_or(i64::MAX), extent };
    let position = u64::try_from(position).map_err(|_| outside())?;
    if position >= extent {
        return Err(outside());
    }
    if position < start || position - start >= length {
        return Err(KernelError::Block { position, start, extent: length });
    }
    usize::try_from(position - start).map_err(|_| KernelError::Size)
}

/// The elements of the last two dimensions on one side of a diagonal, zero elsewhere.
pub(crate) fn triangle(
    side: Triangle,
    diagonal: i64,
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    reshape(x, y)?;
    let rank = y.shape.len();
    if rank < 2 {
        return Err(KernelError::Dimension { dim: rank, rank });
    }
    let first_row = i128::from(y.span(rank - 2).start) + i128::from(diagonal);
    let first_column = i128::from(y.span(rank - 1).start);
    let (rows, columns) = (extents(y.shape)?[rank - 2], extents(y.shape)?[rank - 1]);
    let size = usize::try_from(y.dtype.bytes()).map_err(|_| KernelError::Size)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    for (row, elements) in y.bytes.chunks_exact_mut(columns * size).enumerate() {
        let row = i128::try_from(row % rows).map_err(|_| KernelError::Size)?;
        // The diagonal's place among the columns of the block, and one past it.
        let at = first_row + row - first_column;
        let column = |place: i128| usize::try_from(place.max(0)).unwrap_or(columns).min(columns);
        match side {
            Triangle::Upper => elements[..column(at) * size].fill(0),
            Triangle::Lower => elements[column(at + 1) * size..].fill(0),
        }
    }
    Ok(())
}

fn misfit(of: &'static str, y: &TensorMut, expected: &[u64]) -> KernelError {
    KernelError::Shape { of, found: y.shape.to_vec(), expected: expected.to_vec() }
}

#[cfg(test)]
mod tests;
