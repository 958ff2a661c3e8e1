//! Elements at places that are data.
//!
//! An index counts positions of the whole value, a negative one from its end. Positions that
//! the block of the data does not have give 0 and take no updates: what the other blocks give
//! and take is added elsewhere.

use bytemuck::Pod;
use planner_ir::{Scatter, advance};

use crate::array::{Span, Tensor, TensorMut, element_count, expect_dtype, extents};
use crate::error::KernelError;
use crate::movement::reshape;
use crate::nest::row_major;
use crate::number::{Number, with_number};
use crate::wide::wide;
use crate::widen::indices;

/// `y[.., i.., ..] = data[.., indices[i..], ..]` along a dimension of data.
pub(crate) fn gather(dim: usize, [data, index]: [&Tensor; 2], y: &mut TensorMut) -> Result<(), KernelError> {
    expect_dtype(data.dtype, y.dtype)?;
    let rank = data.shape.len();
    if dim >= rank {
        return Err(KernelError::Dimension { dim, rank });
    }
    let mut expected = data.shape.to_vec();
    expected.splice(dim..=dim, index.shape.iter().copied());
    if expected != y.shape {
        return Err(misfit("gathered elements", y.shape, &expected));
    }
    let (span, shape) = (data.span(dim), extents(data.shape)?);
    let places = indices(index)?
        .iter()
        .map(|&index| place(index, span, data.shape[dim]))
        .collect::<Result<Vec<_>, _>>()?;
    let outer: usize = shape[..dim].iter().product();
    let run = data.bytes.len() / (outer * shape[dim]).max(1);
    if run == 0 || places.is_empty() {
        y.bytes.fill(0);
        return Ok(());
    }
    let pitch = shape[dim] * run;
    for (outer, block) in y.bytes.chunks_exact_mut(places.len() * run).enumerate() {
        for (target, place) in block.chunks_exact_mut(run).zip(&places) {
            match place {
                Some(place) => {
                    let start = outer * pitch + place * run;
                    target.copy_from_slice(&data.bytes[start..start + run]);
                }
                None => target.fill(0),
            }
        }
    }
    Ok(())
}

/// `ddata[.., j, ..] = sum of dy[.., i.., ..] where indices[i..] = j` along a dimension, in the
/// order of the indices.
pub(crate) fn gather_gradient(
    dim: usize,
    [index, dy]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(dy.dtype, y.dtype)?;
    let rank = y.shape.len();
    if dim >= rank {
        return Err(KernelError::Dimension { dim, rank });
    }
    let mut expected = y.shape.to_vec();
    expected.splice(dim..=dim, index.shape.iter().copied());
    if expected != dy.shape {
        return Err(misfit("the gradient of gathered elements", dy.shape, &expected));
    }
    let (span, shape, length) = (y.span(dim), extents(y.shape)?, y.shape[dim]);
    let places: Vec<Option<usize>> =
        indices(index)?.iter().map(|&index| place(index, span, length)).collect::<Result<_, _>>()?;
    let run: usize = shape[dim + 1..].iter().product();
    with_number!(y.dtype, "the gradient of gathered elements", T => {
        let (dy, y) = (dy.elements::<T>()?, y.elements_mut::<T>()?);
        y.fill(T::ZERO);
        let (block, pitch) = ((places.len() * run).max(1), (shape[dim] * run).max(1));
        for (dy, y) in dy.chunks_exact(block).zip(y.chunks_exact_mut(pitch)) {
            for (dy, place) in dy.chunks_exact(run).zip(&places) {
                let Some(place) = place else { continue };
                wide!(add_row, (&mut y[place * run..(place + 1) * run], dy));
            }
        }
        Ok(())
    })
}

/// `y += x`.
#[inline(always)]
fn add_row<T: Number>((y, x): (&mut [T], &[T])) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = y.plus(x);
    }
}

/// `y[i..] = data[i.. with the dim-th replaced by indices[i..]]`.
pub(crate) fn gather_elements(
    dim: usize,
    [data, index]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    if index.shape != y.shape {
        return Err(misfit("gathered elements", y.shape, index.shape));
    }
    copy_runs(&element_places(dim, data, index, index)?, 1, data, y)
}

/// `y[b.., i.., r..] = data[b.., indices[b.., i.., :], r..]`.
pub(crate) fn gather_nd(
    batch_dims: usize,
    [data, index]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let (places, run) = slice_places(batch_dims, data, index)?;
    copy_runs(&places, run, data, y)
}

/// data with elements replaced by, or combined with, those of updates.
pub(crate) fn scatter_elements(
    dim: usize,
    scatter: Scatter,
    [data, index, updates]: [&Tensor; 3],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    reshape(data, y)?;
    write_elements(dim, scatter, [index, updates], y)
}

/// The same where data are already.
pub(crate) fn write_elements(
    dim: usize,
    scatter: Scatter,
    [index, updates]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let repeats = |(&index, &own): (&u64, &u64)| index == own || index == 1;
    let fits = index.shape.len() == updates.shape.len();
    if !fits || !index.shape.iter().zip(updates.shape).all(repeats) {
        return Err(misfit("updates", updates.shape, index.shape));
    }
    let places = element_places(dim, &y.there(), index, updates)?;
    update(scatter, &places, 1, updates, y)
}

/// data with slices replaced by, or combined with, those of updates.
pub(crate) fn scatter_nd(
    scatter: Scatter,
    [data, index, updates]: [&Tensor; 3],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    reshape(data, y)?;
    write_nd(scatter, [index, updates], y)
}

/// The same where data are already.
pub(crate) fn write_nd(
    scatter: Scatter,
    [index, updates]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let (places, run) = slice_places(0, &y.there(), index)?;
    update(scatter, &places, run, updates, y)
}

/// The place in the block of data that an index names, if the block has it.
fn place(index: i64, span: Span, length: u64) -> Result<Option<usize>, KernelError> {
    let outside = KernelError::Index { index, extent: span.extent };
    let position = if index < 0 {
        span.extent.checked_sub(index.unsigned_abs()).ok_or(outside)?
    } else {
        let position = index.unsigned_abs();
        if position >= span.extent {
            return Err(outside);
        }
        position
    };
    Ok(local(position, span, length))
}

/// The place in the block of a position, if the block has it.
fn local(position: u64, span: Span, length: u64) -> Option<usize> {
    let place = position.checked_sub(span.start).filter(|&place| place < length)?;
    usize::try_from(place).ok()
}

/// For each element of a block, which element of data its index and its own place name. Indices are as many, or
/// repeat along dimensions of extent 1.
fn element_places(
    dim: usize,
    data: &Tensor,
    index: &Tensor,
    of: &Tensor,
) -> Result<Vec<Option<usize>>, KernelError> {
    let rank = data.shape.len();
    if dim >= rank {
        return Err(KernelError::Dimension { dim, rank });
    }
    if index.shape.len() != rank {
        return Err(misfit("indices", index.shape, data.shape));
    }
    let strides = row_major(&extents(data.shape)?);
    let spans: Vec<Span> = (0..rank).map(|dim| data.span(dim)).collect();
    let starts: Vec<u64> = (0..rank).map(|dim| of.span(dim).start).collect();
    let own = row_major(&extents(index.shape)?);
    let pitches: Vec<usize> = (0..rank).map(|it| if index.shape[it] == 1 { 0 } else { own[it] }).collect();
    let numbers = indices(index)?;
    let mut at = vec![0_u64; rank];
    let count = element_count(of.shape)?;
    let mut places = Vec::with_capacity(count);
    for _ in 0..count {
        let step = |(&at, &pitch): (&u64, &usize)| usize::try_from(at).map_or(usize::MAX, |at| at * pitch);
        let asked: usize = at.iter().zip(&pitches).map(step).sum();
        let number = *numbers.get(asked).ok_or(KernelError::Size)?;
        let mut offset = Some(0);
        for other in 0..rank {
            let here = if other == dim {
                place(number, spans[dim], data.shape[dim])?
            } else {
                let position = starts[other] + at[other];
                if position >= spans[other].extent {
                    return Err(misfit("indices", index.shape, data.shape));
                }
                local(position, spans[other], data.shape[other])
            };
            offset = offset.zip(here).map(|(offset, here)| offset + here * strides[other]);
        }
        places.push(offset);
        advance(&mut at, of.shape);
    }
    Ok(places)
}

/// For each tuple of indices, where the slice of data begins that it names, and how long slices
/// are (elements).
fn slice_places(
    batch_dims: usize,
    data: &Tensor,
    index: &Tensor,
) -> Result<(Vec<Option<usize>>, usize), KernelError> {
    let misfits = || misfit("indices", index.shape, data.shape);
    let (&width, around) = index.shape.split_last().ok_or_else(misfits)?;
    let width = usize::try_from(width).map_err(|_| KernelError::Size)?;
    let indexed = batch_dims..batch_dims.checked_add(width).ok_or_else(misfits)?;
    let fits = batch_dims <= around.len()
        && indexed.end <= data.shape.len()
        && data.shape[..batch_dims] == around[..batch_dims];
    if !fits {
        return Err(misfits());
    }
    let shape = extents(data.shape)?;
    let strides = row_major(&shape);
    let run = shape[indexed.end..].iter().product();
    let batches: usize = shape[..batch_dims].iter().product();
    let batch: usize = shape[batch_dims..].iter().product();
    let each = element_count(&around[batch_dims..])?;
    let numbers = indices(index)?;
    let mut places = Vec::with_capacity(batches * each);
    for tuple in 0..batches * each {
        let mut offset = Some(tuple / each * batch);
        for (&number, dim) in numbers[tuple * width..].iter().zip(indexed.clone()) {
            let here = place(number, data.span(dim), data.shape[dim])?;
            offset = offset.zip(here).map(|(offset, here)| offset + here * strides[dim]);
        }
        places.push(offset);
    }
    Ok((places, run))
}

/// The runs of data that begin at the places, one after another.
fn copy_runs(
    places: &[Option<usize>],
    run: usize,
    data: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(data.dtype, y.dtype)?;
    if element_count(y.shape)? != places.len() * run {
        return Err(misfit("gathered elements", y.shape, data.shape));
    }
    let run = run * usize::try_from(y.dtype.bytes()).map_err(|_| KernelError::Size)?;
    let size = usize::try_from(y.dtype.bytes()).map_err(|_| KernelError::Size)?;
    if run == 0 {
        return Ok(());
    }
    for (target, place) in y.bytes.chunks_exact_mut(run).zip(places) {
        match place {
            Some(place) => {
                target.copy_from_slice(&data.bytes[place * size..place * size + run]);
            }
            None => target.fill(0),
        }
    }
    Ok(())
}

/// Puts runs of updates at places of y.
fn update(
    scatter: Scatter,
    places: &[Option<usize>],
    run: usize,
    updates: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(updates.dtype, y.dtype)?;
    if element_count(updates.shape)? != places.len() * run {
        return Err(misfit("updates", updates.shape, y.shape));
    }
    if scatter.replaces() {
        return match y.dtype.bytes() {
            1 => replace::<u8>(places, run, updates, y),
            2 => replace::<u16>(places, run, updates, y),
            4 => replace::<u32>(places, run, updates, y),
            _ => replace::<u64>(places, run, updates, y),
        };
    }
    with_number!(y.dtype, "combining updates", T => {
        let (updates, y) = (updates.elements::<T>()?, y.elements_mut::<T>()?);
        let combine = match scatter {
            Scatter::Replace | Scatter::Write | Scatter::Add => T::plus,
            Scatter::Mul => T::times,
            Scatter::Max => T::larger,
            Scatter::Min => T::smaller,
        };
        apply(places, run, updates, y, combine);
        Ok(())
    })
}

fn replace<T: Pod>(
    places: &[Option<usize>],
    run: usize,
    updates: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let updates = updates.units()?;
    let y = y.units_mut()?;
    apply(places, run, updates, y, |_: T, update: T| update);
    Ok(())
}

fn apply<T: Copy>(
    places: &[Option<usize>],
    run: usize,
    updates: &[T],
    y: &mut [T],
    combine: impl Fn(T, T) -> T,
) {
    if run == 0 {
        return;
    }
    for (updates, place) in updates.chunks_exact(run).zip(places) {
        let Some(place) = *place else { continue };
        for (y, &update) in y[place..place + run].iter_mut().zip(updates) {
            *y = combine(*y, update);
        }
    }
}

fn misfit(of: &'static str, found: &[u64], expected: &[u64]) -> KernelError {
    KernelError::Shape { of, found: found.to_vec(), expected: expected.to_vec() }
}

#[cfg(test)]
mod tests;
