//! Mixtures of experts: each expert computes the tokens that its gate lets through. And their
//! gradients.

use planner_ir::Unary;

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::elementwise::activate;
use crate::error::KernelError;
use crate::number::{Float, with_float};
use crate::product::{Extents, Matrix, product};

mod gradient;

pub(crate) use gradient::experts_gradient;

/// `y[t] = sum_e gates[t,e] * (activation(x[t] up[e]) * (x[t] gate[e])) down[e]`.
pub(crate) fn experts(activation: Unary, operands: &[Tensor], y: &mut TensorMut) -> Result<(), KernelError> {
    let (x, gates, up, gate, down) = match operands {
        [x, gates, up, down] => (x, gates, up, None, down),
        [x, gates, up, gate, down] => (x, gates, up, Some(gate), down),
        _ => {
            let found = operands.len();
            return Err(KernelError::Count { of: "operands", found, expected: "4 or 5" });
        }
    };
    let [hidden, inner, count] = check([x, gates, up, gate.unwrap_or(up), down, &y.tensor()])?;
    with_float!(x.dtype, "a mixture of experts", T => {
        let run = Run {
            activation,
            hidden,
            inner,
            count,
            x: x.elements::<T>()?,
            gates: gates.elements()?,
            up: up.elements()?,
            gate: gate.map(Tensor::elements).transpose()?,
            down: down.elements()?,
        };
        run.compute(y.elements_mut()?)
    })
}

/// The extents h, f and e of operands x, gates, up, gate, down and of the result, if they fit.
fn check([x, gates, up, gate, down, y]: [&Tensor; 6]) -> Result<[usize; 3], KernelError> {
    let (&[t, h], &[_, e], &[_, f, _]) = (x.shape, gates.shape, up.shape) else {
        return Err(KernelError::Dimension { dim: 2, rank: x.shape.len() });
    };
    for (of, operand, expected) in [
        ("the gates", gates, &[t, e][..]),
        ("the first weights", up, &[e, f, h]),
        ("the gate weights", gate, &[e, f, h]),
        ("the last weights", down, &[e, h, f]),
        ("the result", y, &[t, h]),
    ] {
        expect_dtype(operand.dtype, x.dtype)?;
        if operand.shape != expected {
            let (found, expected) = (operand.shape.to_vec(), expected.to_vec());
            return Err(KernelError::Shape { of, found, expected });
        }
    }
    let shape = extents(&[h, f, e])?;
    Ok([shape[0], shape[1], shape[2]])
}

/// What one computation needs throughout.
struct Run<'a, T> {
    activation: Unary,
    hidden: usize,
    inner: usize,
    count: usize,
    x: &'a [T],
    gates: &'a [T],
    up: &'a [T],
    gate: Option<&'a [T]>,
    down: &'a [T],
}

impl<T: Float + crate::elementwise::Activated> Run<'_, T> {
    fn compute(&self, y: &mut [T]) -> Result<(), KernelError> {
        y.fill(T::ZERO);
        if self.hidden == 0 || self.count == 0 {
            return Ok(());
        }
        for expert in 0..self.count {
            let chosen = self.chosen(expert);
            if chosen.is_empty() {
                continue;
            }
            let out = self.apply(expert, &chosen)?;
            for (&(token, gate), out) in chosen.iter().zip(out.chunks_exact(self.hidden)) {
                let target = &mut y[token * self.hidden..(token + 1) * self.hidden];
                for (y, &out) in target.iter_mut().zip(out) {
                    *y = y.plus(gate.times(out));
                }
            }
        }
        Ok(())
    }

    /// The tokens that an expert's gate lets through, with their gates.
    fn chosen(&self, expert: usize) -> Vec<(usize, T)> {
        let gates = self.gates.chunks_exact(self.count).map(|gates| gates[expert]);
        gates.enumerate().filter(|&(_, gate)| gate != T::ZERO).collect()
    }

    /// The rows of x, or of a value like it, of the tokens that are chosen.
    fn rows(&self, x: &[T], chosen: &[(usize, T)]) -> Vec<T> {
        let mut rows = Vec::with_capacity(chosen.len() * self.hidden);
        for &(token, _) in chosen {
            rows.extend_from_slice(&x[token * self.hidden..(token + 1) * self.hidden]);
        }
        rows
    }

    /// What an expert makes of the tokens that are chosen.
    fn apply(&self, expert: usize, chosen: &[(usize, T)]) -> Result<Vec<T>, KernelError> {
        let tokens = self.rows(self.x, chosen);
        let rows = chosen.len();
        let mut units = vec![T::ZERO; rows * self.inner];
        let before = self.project(&tokens, self.up, expert, [self.hidden, self.inner]);
        activate(self.activation, &before, &mut units)?;
        if let Some(gate) = self.gate {
            let factors = self.project(&tokens, gate, expert, [self.hidden, self.inner]);
            for (unit, factor) in units.iter_mut().zip(factors) {
                *unit = unit.times(factor);
            }
        }
        Ok(self.project(&units, self.down, expert, [self.inner, self.hidden]))
    }

    /// `x w[expert]^T`, with `w: [e, to, from]`.
    fn project(&self, x: &[T], w: &[T], expert: usize, [from, to]: [usize; 2]) -> Vec<T> {
        let rows = x.len().checked_div(from).unwrap_or(0);
        let mut y = vec![T::ZERO; rows * to];
        let matrix = |row_stride: usize| Matrix { start: 0, row_stride, column_stride: 1 };
        product(
            Extents { rows, columns: to, summed: from },
            T::ONE,
            (x, matrix(from)),
            (w, Matrix { start: expert * from * to, row_stride: 1, column_stride: from }),
            (&mut y, matrix(to)),
        );
        y
    }
}

#[cfg(test)]
mod tests;
