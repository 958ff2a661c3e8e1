//! Convolution: windows laid out as the columns of a matrix, and one product for each sample
//! and group.

use planner_ir::Conv;

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::number::{Number, with_number};
use crate::product::{Extents, Matrix, product};

/// `x: [n, c, spatial..]` with windows `w: [m, c / groups, window..]`, plus a bias `[m]`.
///
/// How many groups there are follows from the channels of the blocks.
pub(crate) fn conv(
    conv: &Conv,
    [x, w]: [&Tensor; 2],
    bias: Option<&Tensor>,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(w.dtype, x.dtype)?;
    let geometry = Geometry::new(conv, [x, w], y)?;
    with_number!(x.dtype, "a convolution", T => {
        let bias = bias.map(Tensor::elements::<T>).transpose()?;
        if bias.is_some_and(|bias| bias.len() != geometry.results) {
            return Err(misfit("a bias", y.shape, w.shape));
        }
        let y = y.elements_mut::<T>()?;
        geometry.compute(x.elements::<T>()?, w.elements::<T>()?, y);
        if let Some(bias) = bias {
            let length = geometry.points.max(1);
            for (row, y) in y.chunks_exact_mut(length).enumerate() {
                let bias = bias[row % geometry.results];
                y.iter_mut().for_each(|y| *y = y.plus(bias));
            }
        }
        Ok(())
    })
}

/// The extents of a convolution.
struct Geometry {
    samples: usize,
    groups: usize,
    /// The channels of x in a group, and of y altogether.
    channels: usize,
    results: usize,
    /// The elements of a channel of x, of a window's channel, and of a channel of y.
    pixels: usize,
    taps: usize,
    points: usize,
    spatial: Vec<Spatial>,
}

/// One spatial dimension.
struct Spatial {
    input: usize,
    window: usize,
    output: usize,
    stride: usize,
    dilation: usize,
    before: usize,
}

impl Geometry {
    fn new(conv: &Conv, [x, w]: [&Tensor; 2], y: &TensorMut) -> Result<Self, KernelError> {
        let rank = x.shape.len();
        let attributes = [&conv.strides, &conv.dilations, &conv.before];
        let fits = rank >= 2
            && w.shape.len() == rank
            && y.shape.len() == rank
            && attributes.iter().all(|attribute| attribute.len() == rank - 2);
        if !fits {
            return Err(misfit("a convolution", y.shape, w.shape));
        }
        let (input, window, output) = (extents(x.shape)?, extents(w.shape)?, extents(y.shape)?);
        let [strides, dilations, before] = attributes.map(|attribute| extents(attribute));
        let (strides, dilations, before) = (strides?, dilations?, before?);
        let spatial: Vec<Spatial> = (2..rank)
            .map(|dim| Spatial {
                input: input[dim],
                window: window[dim],
                output: output[dim],
                stride: strides[dim - 2],
                dilation: dilations[dim - 2],
                before: before[dim - 2],
            })
            .collect();
        let groups = input[1].checked_div(window[1]).unwrap_or(0);
        let fits = groups > 0
            && groups * window[1] == input[1]
            && window[0] == output[1]
            && window[0].is_multiple_of(groups)
            && input[0] == output[0];
        if !fits {
            return Err(misfit("a convolution", y.shape, w.shape));
        }
        Ok(Self {
            samples: input[0],
            groups,
            channels: window[1],
            results: output[1],
            pixels: input[2..].iter().product(),
            taps: window[2..].iter().product(),
            points: output[2..].iter().product(),
            spatial,
        })
    }

    fn compute<T: Number>(&self, x: &[T], w: &[T], y: &mut [T]) {
        let summed = self.channels * self.taps;
        let rows = self.results / self.groups;
        let mut columns = vec![T::ZERO; summed * self.points];
        for sample in 0..self.samples {
            for group in 0..self.groups {
                let first = (sample * self.groups + group) * self.channels;
                let channels = x[first * self.pixels..].chunks(self.pixels.max(1));
                let room = columns.chunks_exact_mut((self.taps * self.points).max(1));
                for (channel, room) in channels.zip(room) {
                    self.lay_out(channel, room);
                }
                let matrix = |start: usize, row_stride: usize| Matrix {
                    start: start * row_stride,
                    row_stride,
                    column_stride: 1,
                };
                product(
                    Extents { rows, columns: self.points, summed },
                    T::ONE,
                    (w, matrix(group * rows, summed)),
                    (&columns, matrix(0, self.points)),
                    (y, matrix(sample * self.results + group * rows, self.points)),
                );
            }
        }
    }

    /// For each tap of the window, what it meets at each point.
    fn lay_out<T: Number>(&self, channel: &[T], room: &mut [T]) {
        let taps = self.positions(|spatial| (spatial.window, spatial.dilation));
        let points = self.positions(|spatial| (spatial.output, spatial.stride));
        for (tap, row) in taps.iter().zip(room.chunks_exact_mut(self.points.max(1))) {
            for (point, target) in points.iter().zip(row) {
                *target = self.pixel(tap, point).map_or(T::ZERO, |pixel| channel[pixel]);
            }
        }
    }

    /// The places, along each dimension, of every combination of indices.
    fn positions(&self, axis: impl Fn(&Spatial) -> (usize, usize)) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for spatial in &self.spatial {
            let (extent, step) = axis(spatial);
            all = all
                .into_iter()
                .flat_map(|at: Vec<usize>| (0..extent).map(move |i| [&at[..], &[i * step]].concat()))
                .collect();
        }
        all
    }

    /// Where in a channel a tap meets a point, unless it is outside.
    fn pixel(&self, tap: &[usize], point: &[usize]) -> Option<usize> {
        self.spatial.iter().zip(tap.iter().zip(point)).try_fold(0, |pixel, (spatial, at)| {
            let place = (at.0 + at.1).checked_sub(spatial.before)?;
            (place < spatial.input).then_some(pixel * spatial.input + place)
        })
    }
}

fn misfit(of: &'static str, found: &[u64], expected: &[u64]) -> KernelError {
    KernelError::Shape { of, found: found.to_vec(), expected: expected.to_vec() }
}

#[cfg(test)]
mod tests;
