//! Convolution: windows laid out as the columns of a matrix, and one product for each sample
//! and group; and its gradients, which are made of the same columns.

use planner_ir::Conv;

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::number::{Number, with_number};
use crate::product::{Extents, Matrix, add_product, product};

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
    let geometry = Geometry::new(conv, x.shape, w.shape, y.shape)?;
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

/// The gradient of a convolution towards its input, by the weights and the gradient of its result.
pub(crate) fn conv_input_gradient(
    conv: &Conv,
    [w, dy]: [&Tensor; 2],
    dx: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(w.dtype, dy.dtype)?;
    let geometry = Geometry::new(conv, dx.shape, w.shape, dy.shape)?;
    with_number!(dy.dtype, "the gradient of a convolution", T => {
        geometry.input_gradient(w.elements::<T>()?, dy.elements::<T>()?, dx.elements_mut::<T>()?);
        Ok(())
    })
}

/// The gradient of a convolution towards its weights, by its input and the gradient of its result.
pub(crate) fn conv_weight_gradient(
    conv: &Conv,
    [x, dy]: [&Tensor; 2],
    dw: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(x.dtype, dy.dtype)?;
    let geometry = Geometry::new(conv, x.shape, dw.shape, dy.shape)?;
    with_number!(dy.dtype, "the gradient of a convolution", T => {
        geometry.weight_gradient(x.elements::<T>()?, dy.elements::<T>()?, dw.elements_mut::<T>()?);
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
    fn new(conv: &Conv, x: &[u64], w: &[u64], y: &[u64]) -> Result<Self, KernelError> {
        let rank = x.len();
        let attributes = [&conv.strides, &conv.dilations, &conv.before];
        let fits = rank >= 2
            && w.len() == rank
            && y.len() == rank
            && attributes.iter().all(|attribute| attribute.len() == rank - 2);
        if !fits {
            return Err(misfit("a convolution", y, w));
        }
        let (input, window, output) = (extents(x)?, extents(w)?, extents(y)?);
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
            return Err(misfit("a convolution", y, w));
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
        let (rows, summed) = (self.rows(), self.summed());
        let mut columns = vec![T::ZERO; summed * self.points];
        for (sample, group) in self.products() {
            self.lay_out(x, sample, group, &mut columns);
            product(
                Extents { rows, columns: self.points, summed },
                T::ONE,
                (w, matrix(group * rows, summed)),
                (&columns, matrix(0, self.points)),
                (y, matrix(sample * self.results + group * rows, self.points)),
            );
        }
    }

    fn input_gradient<T: Number>(&self, w: &[T], dy: &[T], dx: &mut [T]) {
        let (rows, summed) = (self.rows(), self.summed());
        let mut columns = vec![T::ZERO; summed * self.points];
        dx.fill(T::ZERO);
        for (sample, group) in self.products() {
            let w_at = matrix(group * rows, summed);
            product(
                Extents { rows: summed, columns: self.points, summed: rows },
                T::ONE,
                (w, Matrix { row_stride: 1, column_stride: summed, ..w_at }),
                (dy, matrix(sample * self.results + group * rows, self.points)),
                (&mut columns, matrix(0, self.points)),
            );
            let first = (sample * self.groups + group) * self.channels;
            let channels = dx[first * self.pixels..].chunks_mut(self.pixels.max(1));
            let laid_out = columns.chunks_exact((self.taps * self.points).max(1));
            for (channel, laid_out) in channels.zip(laid_out) {
                self.for_each_pixel(|place, pixel| channel[pixel] = channel[pixel].plus(laid_out[place]));
            }
        }
    }

    fn weight_gradient<T: Number>(&self, x: &[T], dy: &[T], dw: &mut [T]) {
        let (rows, summed) = (self.rows(), self.summed());
        let mut columns = vec![T::ZERO; summed * self.points];
        dw.fill(T::ZERO);
        for (sample, group) in self.products() {
            self.lay_out(x, sample, group, &mut columns);
            add_product(
                Extents { rows, columns: summed, summed: self.points },
                T::ONE,
                (dy, matrix(sample * self.results + group * rows, self.points)),
                (&columns, Matrix { start: 0, row_stride: 1, column_stride: self.points }),
                (dw, matrix(group * rows, summed)),
            );
        }
    }

    /// How many channels of y a group has.
    fn rows(&self) -> usize {
        self.results / self.groups
    }

    /// How many elements a window has.
    fn summed(&self) -> usize {
        self.channels * self.taps
    }

    /// Each sample with each group.
    fn products(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let groups = self.groups;
        (0..self.samples).flat_map(move |sample| (0..groups).map(move |group| (sample, group)))
    }

    /// For each channel of a group and each tap of the window, what it meets at each point.
    fn lay_out<T: Number>(&self, x: &[T], sample: usize, group: usize, columns: &mut [T]) {
        let first = (sample * self.groups + group) * self.channels;
        let channels = x[first * self.pixels..].chunks(self.pixels.max(1));
        let room = columns.chunks_exact_mut((self.taps * self.points).max(1));
        for (channel, room) in channels.zip(room) {
            room.fill(T::ZERO);
            self.for_each_pixel(|place, pixel| room[place] = channel[pixel]);
        }
    }

    /// Calls, for each tap and point that meet a pixel, with their place in a channel's columns and
    /// with the pixel's in the channel.
    fn for_each_pixel(&self, mut met: impl FnMut(usize, usize)) {
        let taps = self.positions(|spatial| (spatial.window, spatial.dilation));
        let points = self.positions(|spatial| (spatial.output, spatial.stride));
        for (row, tap) in taps.iter().enumerate() {
            for (column, point) in points.iter().enumerate() {
                if let Some(pixel) = self.pixel(tap, point) {
                    met(row * self.points + column, pixel);
                }
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

/// Rows of that length from one on.
fn matrix(first: usize, length: usize) -> Matrix {
    Matrix { start: first * length, row_stride: length, column_stride: 1 }
}

fn misfit(of: &'static str, found: &[u64], expected: &[u64]) -> KernelError {
    KernelError::Shape { of, found: found.to_vec(), expected: expected.to_vec() }
}

#[cfg(test)]
mod tests;
