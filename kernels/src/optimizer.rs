//! Steps of optimizers.
//!
//! A step is done in the place of the parameter and its moments, some elements at a time: those
//! that are stored narrower are widened, and rounded once.

use planner_ir::{DType, Optimizer};

use crate::array::{Array, Tensor, TensorMut, byte_count, expect_dtype};
use crate::cast::cast;
use crate::error::KernelError;
use crate::number::{Float, computed_as, with_float};
use crate::wide::wide;

/// How many elements are done at a time, so that they stay in the nearest cache.
const CHUNK: usize = 2048;

/// A parameter and its moments after a step.
pub(crate) fn update(
    optimizer: Optimizer,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let moments = optimizer.moments();
    if operands.len() != 2 + moments + optimizer.numbers() || results.len() != 1 + moments {
        let found = operands.len();
        return Err(KernelError::Count { of: "operands", found, expected: "what the optimizer takes" });
    }
    let kept = operands[..1].iter().chain(&operands[2..2 + moments]);
    for (result, operand) in results.iter_mut().zip(kept) {
        expect_dtype(result.dtype, operand.dtype)?;
        if result.shape != operand.shape {
            return Err(misfit(result.shape, operand.shape));
        }
        result.bytes.copy_from_slice(operand.bytes);
    }
    let others: Vec<Tensor> = operands[1..2].iter().chain(&operands[2 + moments..]).copied().collect();
    update_in_place(optimizer, results, &others)
}

/// The same in the place of the parameter and its moments; the others are its gradient and the
/// numbers scale, rate and, for `AdamW`, the step.
fn update_in_place(
    optimizer: Optimizer,
    changed: &mut [TensorMut],
    others: &[Tensor],
) -> Result<(), KernelError> {
    let [gradient, numbers @ ..] = others else {
        return Err(KernelError::Count { of: "operands", found: 0, expected: "a gradient and numbers" });
    };
    if changed.len() != 1 + optimizer.moments() || numbers.len() != optimizer.numbers() {
        let found = changed.len() + others.len();
        return Err(KernelError::Count { of: "operands", found, expected: "what the optimizer takes" });
    }
    let numbers: Vec<f64> = numbers.iter().map(number).collect::<Result<_, _>>()?;
    let step = Step::new(optimizer, &numbers)?;
    let (shape, dtype) = (changed[0].shape, computed_as(changed[0].dtype));
    let mut others = changed[1..].iter().map(|it| it.shape).chain([gradient.shape]);
    if let Some(found) = others.find(|&found| found != shape) {
        return Err(misfit(found, shape));
    }
    let count = byte_count(DType::U8, shape)?;
    with_float!(dtype, "an optimizer", T => {
        let mut rooms = [const { Vec::<T>::new() }; 4];
        for start in (0..count).step_by(CHUNK) {
            let length = CHUNK.min(count - start);
            for (room, value) in rooms.iter_mut().zip(changed.iter().map(TensorMut::tensor).chain([*gradient])) {
                read(&value, start, length, room)?;
            }
            let [parameter, rest @ ..] = &mut rooms;
            let (moments, rest) = rest.split_at_mut(optimizer.moments());
            step.apply(parameter, moments, &rest[0]);
            for (room, value) in rooms.iter().zip(&mut *changed) {
                write(room, start, value)?;
            }
        }
        Ok(())
    })
}

/// A step with its numbers, ready for elements.
enum Step {
    /// `p -= rate * (scale * g + decay * p)`.
    Plain { scale: f64, rate: f64, decay: f64 },
    /// The same with the moment in the gradient's place.
    Momentum { scale: f64, rate: f64, momentum: f64, decay: f64 },
    AdamW {
        scale: f64,
        /// `1 - rate * decay`.
        shrink: f64,
        /// `1 - beta1`.
        fresh: f64,
        /// beta2 and `1 - beta2`.
        second: [f64; 2],
        /// `rate / (1 - beta1^step)`.
        stride: f64,
        /// `sqrt(1 - beta2^step)`.
        deviation: f64,
        epsilon: f64,
    },
}

impl Step {
    fn new(optimizer: Optimizer, numbers: &[f64]) -> Result<Self, KernelError> {
        match (optimizer, numbers) {
            (Optimizer::Sgd { decay }, &[scale, rate]) => Ok(Self::Plain { scale, rate, decay: decay.0 }),
            (Optimizer::Momentum { momentum, decay }, &[scale, rate]) => {
                Ok(Self::Momentum { scale, rate, momentum: momentum.0, decay: decay.0 })
            }
            (Optimizer::AdamW { beta1, beta2, epsilon, decay }, &[scale, rate, step]) => Ok(Self::AdamW {
                scale,
                shrink: 1.0 - rate * decay.0,
                fresh: 1.0 - beta1.0,
                second: [beta2.0, 1.0 - beta2.0],
                stride: rate / (1.0 - libm::pow(beta1.0, step)),
                deviation: (1.0 - libm::pow(beta2.0, step)).sqrt(),
                epsilon: epsilon.0,
            }),
            _ => Err(KernelError::Count {
                of: "numbers",
                found: numbers.len(),
                expected: "what the optimizer takes",
            }),
        }
    }

    fn apply<T: Float>(&self, p: &mut [T], moments: &mut [Vec<T>], g: &[T]) {
        match (self, moments) {
            (&Self::Plain { scale, rate, decay }, _) => {
                wide!(plain, ([scale, rate, decay].map(T::of_f64), p, g));
            }
            (&Self::Momentum { scale, rate, momentum, decay }, [m, ..]) => {
                wide!(with_momentum, ([scale, rate, momentum, decay].map(T::of_f64), p, m.as_mut_slice(), g));
            }
            (&Self::AdamW { scale, shrink, fresh, second, stride, deviation, epsilon }, [m, v, ..]) => {
                let numbers = [scale, shrink, fresh, second[0], second[1], stride, deviation, epsilon];
                wide!(adam, (numbers.map(T::of_f64), [p, m.as_mut_slice(), v.as_mut_slice()], g));
            }
            _ => {}
        }
    }
}

#[inline(always)]
fn plain<T: Float>(([scale, rate, decay], p, g): ([T; 3], &mut [T], &[T])) {
    for (p, &g) in p.iter_mut().zip(g) {
        let g = g.times(scale).plus(p.times(decay));
        *p = p.minus(g.times(rate));
    }
}

#[inline(always)]
fn with_momentum<T: Float>(([scale, rate, momentum, decay], p, m, g): ([T; 4], &mut [T], &mut [T], &[T])) {
    for ((p, m), &g) in p.iter_mut().zip(m).zip(g) {
        let g = g.times(scale).plus(p.times(decay));
        *m = m.times(momentum).plus(g);
        *p = p.minus(m.times(rate));
    }
}

#[inline(always)]
fn adam<T: Float>((numbers, [p, m, v], g): ([T; 8], [&mut [T]; 3], &[T])) {
    let [scale, shrink, fresh, beta2, fresh2, stride, deviation, epsilon] = numbers;
    for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
        let g = g.times(scale);
        *m = m.plus(g.minus(*m).times(fresh));
        *v = v.times(beta2).plus(g.times(g).times(fresh2));
        let spread = v.root().over(deviation).plus(epsilon);
        *p = p.times(shrink).minus(m.over(spread).times(stride));
    }
}

/// Some elements, widened.
fn read<T: Float>(x: &Tensor, start: usize, length: usize, room: &mut Vec<T>) -> Result<(), KernelError> {
    room.resize(length, T::ZERO);
    if x.dtype == T::DTYPE {
        room.copy_from_slice(&x.elements::<T>()?[start..start + length]);
        return Ok(());
    }
    let shape = [u64::try_from(length).map_err(|_| KernelError::Size)?];
    let size = byte_count(x.dtype, &[1])?;
    let bytes = &x.bytes[start * size..(start + length) * size];
    let source = Tensor { dtype: x.dtype, shape: &shape, bytes, spans: &[] };
    let bytes = bytemuck::cast_slice_mut(room.as_mut_slice());
    cast(&source, &mut TensorMut { dtype: T::DTYPE, shape: &shape, bytes, spans: &[] })
}

/// Puts elements back where they were read, rounded.
fn write<T: Float>(room: &[T], start: usize, y: &mut TensorMut) -> Result<(), KernelError> {
    if y.dtype == T::DTYPE {
        y.elements_mut::<T>()?[start..start + room.len()].copy_from_slice(room);
        return Ok(());
    }
    let shape = [u64::try_from(room.len()).map_err(|_| KernelError::Size)?];
    let size = byte_count(y.dtype, &[1])?;
    let bytes = &mut y.bytes[start * size..(start + room.len()) * size];
    let source = Tensor { dtype: T::DTYPE, shape: &shape, bytes: bytemuck::cast_slice(room), spans: &[] };
    cast(&source, &mut TensorMut { dtype: y.dtype, shape: &shape, bytes, spans: &[] })
}

/// The one number of a value.
fn number(x: &Tensor) -> Result<f64, KernelError> {
    let mut one = Array::zeros(planner_ir::Type::new(DType::F64, x.shape))?;
    cast(x, &mut one.tensor_mut())?;
    match one.elements::<f64>()? {
        &[number] => Ok(number),
        _ => Err(misfit(x.shape, &[])),
    }
}

fn misfit(found: &[u64], expected: &[u64]) -> KernelError {
    KernelError::Shape { of: "a step's operand", found: found.to_vec(), expected: expected.to_vec() }
}

#[cfg(test)]
mod tests;
