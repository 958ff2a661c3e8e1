//! Resampling, one dimension after the other.

use planner_ir::{Interpolation, Resize, Type};

use crate::array::{Array, Tensor, TensorMut, expect_dtype, extents};
use crate::cast::cast;
use crate::error::KernelError;
use crate::number::{Float, Number, with_float};
use crate::widen::converted;

/// The value resampled to the shape of y.
pub(crate) fn resize(resize: &Resize, x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    let rank = x.shape.len();
    if resize.scales.len() != rank || y.shape.len() != rank {
        return Err(KernelError::Shape {
            of: "a resampled value",
            found: y.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    let kind = if x.dtype.is_float() { x.dtype } else { planner_ir::DType::F64 };
    let mut value = converted(x, kind)?;
    for dim in 0..rank {
        let samples = samples(resize, dim, x, y)?;
        let mut shape = value.shape().to_vec();
        shape[dim] = y.shape[dim];
        let mut next = Array::zeros(Type::new(kind, shape))?;
        with_float!(kind, "resampling", T => {
            resample::<T>(dim, &samples, &value.tensor(), &mut next.tensor_mut())
        })?;
        value = next;
    }
    cast(&value.tensor(), y)
}

/// Two places along a dimension and the weight of the second.
struct Sample {
    places: [usize; 2],
    weight: f64,
}

/// Where each element of y is taken from along a dimension.
fn samples(resize: &Resize, dim: usize, x: &Tensor, y: &TensorMut) -> Result<Vec<Sample>, KernelError> {
    let (from, to) = (x.span(dim), y.span(dim));
    let scale = resize.scales[dim].0;
    let last = from.extent.checked_sub(1).ok_or(KernelError::Index { index: 0, extent: 0 })?;
    let place = |position: f64| {
        let position = u64::of_f64(position).min(last);
        let place = position.checked_sub(from.start).filter(|&place| place < x.shape[dim]);
        let misfit = KernelError::Block { position, start: from.start, extent: x.shape[dim] };
        usize::try_from(place.ok_or(misfit)?).map_err(|_| KernelError::Size)
    };
    let sample = |index: u64| {
        let index = Number::to_f64(to.start + index);
        let position = if resize.half_pixel { (index + 0.5) / scale - 0.5 } else { index / scale };
        let position = position.clamp(0.0, Number::to_f64(last));
        let one = |position: f64| Ok(Sample { places: [place(position)?; 2], weight: 0.0 });
        match resize.interpolation {
            Interpolation::NearestFloor => one(position.floor()),
            Interpolation::NearestPreferFloor => one((position - 0.5).ceil()),
            Interpolation::Linear => {
                let low = position.floor();
                let weight = position - low;
                // A sample at a place of the value does not need the next one.
                let high = if weight > 0.0 { low + 1.0 } else { low };
                Ok(Sample { places: [place(low)?, place(high)?], weight })
            }
        }
    };
    (0..y.shape[dim]).map(sample).collect()
}

fn resample<T: Float>(
    dim: usize,
    samples: &[Sample],
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let shape = extents(x.shape)?;
    let inner: usize = shape[dim + 1..].iter().product();
    let (x, y) = (x.elements::<T>()?, y.elements_mut::<T>()?);
    let length = (samples.len() * inner).max(1);
    for (block, target) in y.chunks_exact_mut(length).enumerate() {
        for (sample, row) in samples.iter().zip(target.chunks_exact_mut(inner.max(1))) {
            let [low, high] = sample.places.map(|place| (block * shape[dim] + place) * inner);
            let (first, second) = (T::of_f64(1.0 - sample.weight), T::of_f64(sample.weight));
            for (index, target) in row.iter_mut().enumerate() {
                *target = if sample.weight > 0.0 {
                    x[low + index].times(first).plus(x[high + index].times(second))
                } else {
                    x[low + index]
                };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
