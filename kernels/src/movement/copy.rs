//! Copies between strided places, whatever the elements.

use bytemuck::Pod;

use crate::array::{Tensor, TensorMut, extents};
use crate::error::KernelError;
use crate::nest::{Level, Nest, for_each, row_major};

/// Rows and columns of the blocks that transposition goes by (elements).
const BLOCK: usize = 16;

/// Copies elements of x (place 1) to y (place 0).
pub(crate) fn copy(
    nest: &Nest<2>,
    starts: [usize; 2],
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    match y.dtype.bytes() {
        1 => copy_as::<u8>(nest, starts, x, y),
        2 => copy_as::<u16>(nest, starts, x, y),
        4 => copy_as::<u32>(nest, starts, x, y),
        _ => copy_as::<u64>(nest, starts, x, y),
    }
}

/// Elements of any type; no bytes lie anywhere.
fn elements<T: Pod>(bytes: &[u8]) -> Result<&[T], KernelError> {
    if bytes.is_empty() {
        return Ok(&[]);
    }
    bytemuck::try_cast_slice(bytes).map_err(|_| KernelError::Alignment)
}

/// The same, to be set.
fn elements_mut<T: Pod>(bytes: &mut [u8]) -> Result<&mut [T], KernelError> {
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| KernelError::Alignment)
}

fn copy_as<T: Pod>(
    nest: &Nest<2>,
    starts: [usize; 2],
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let (x, y) = (elements::<T>(x.bytes)?, elements_mut::<T>(y.bytes)?);
    copy_elements(nest, starts, x, y);
    Ok(())
}

/// Copies elements of x (place 1) to y (place 0).
pub(crate) fn copy_elements<T: Copy>(nest: &Nest<2>, starts: [usize; 2], x: &[T], y: &mut [T]) {
    let Level { extent, strides: [y_stride, x_stride] } = nest.row();
    match (y_stride, x_stride) {
        (1, 1) => nest.for_each_row(starts, |[y_start, x_start]| {
            y[y_start..y_start + extent].copy_from_slice(&x[x_start..x_start + extent]);
        }),
        (1, 0) => nest.for_each_row(starts, |[y_start, x_start]| {
            y[y_start..y_start + extent].fill(x[x_start]);
        }),
        _ => {
            if let Some(column) = nest.outer().iter().rposition(|level| level.strides[1] == 1) {
                return transpose(nest, column, starts, x, y);
            }
            nest.for_each_row(starts, |[y_start, x_start]| {
                for index in 0..extent {
                    y[y_start.wrapping_add(index.wrapping_mul(y_stride))] =
                        x[x_start.wrapping_add(index.wrapping_mul(x_stride))];
                }
            });
        }
    }
}

/// Copies where neighbours of x are neighbours along another loop than the innermost: in square
/// blocks, so that the cache lines of both are used whole.
fn transpose<T: Copy>(nest: &Nest<2>, column: usize, starts: [usize; 2], x: &[T], y: &mut [T]) {
    let row = nest.row();
    let mut around = nest.outer().to_vec();
    let column = around.remove(column);
    let [y_row, x_row] = row.strides;
    let y_column = column.strides[0];
    if row.extent == 0 {
        return;
    }
    for_each(&around, starts, &mut |[y_start, x_start]| {
        for first in (0..column.extent).step_by(BLOCK) {
            let columns = first..column.extent.min(first + BLOCK);
            for start in (0..row.extent).step_by(BLOCK) {
                for at in columns.clone() {
                    let y_start = y_start.wrapping_add(at.wrapping_mul(y_column));
                    for index in start..row.extent.min(start + BLOCK) {
                        y[y_start.wrapping_add(index.wrapping_mul(y_row))] =
                            x[(x_start + at).wrapping_add(index.wrapping_mul(x_row))];
                    }
                }
            }
        }
    });
}

/// Copies to each element of y that of x at the places of its indices; leaves it where one is
/// missing.
pub(crate) fn copy_from_places(
    places: &[Vec<Option<usize>>],
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    match y.dtype.bytes() {
        1 => copy_from_places_as::<u8>(places, x, y),
        2 => copy_from_places_as::<u16>(places, x, y),
        4 => copy_from_places_as::<u32>(places, x, y),
        _ => copy_from_places_as::<u64>(places, x, y),
    }
}

fn copy_from_places_as<T: Pod>(
    places: &[Vec<Option<usize>>],
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let (source, target) = (row_major(&extents(x.shape)?), row_major(&extents(y.shape)?));
    let (x, y) = (elements::<T>(x.bytes)?, elements_mut::<T>(y.bytes)?);
    copy_dimension(places, &source, &target, [0, 0], x, y);
    Ok(())
}

/// The copies of one dimension and those inside it.
fn copy_dimension<T: Copy>(
    places: &[Vec<Option<usize>>],
    source: &[usize],
    target: &[usize],
    [y_start, x_start]: [usize; 2],
    x: &[T],
    y: &mut [T],
) {
    let Some((here, inner)) = places.split_first() else {
        y[y_start] = x[x_start];
        return;
    };
    for (index, place) in here.iter().enumerate() {
        let Some(place) = place else { continue };
        let starts = [y_start + index * target[0], x_start + place * source[0]];
        copy_dimension(inner, &source[1..], &target[1..], starts, x, y);
    }
}
