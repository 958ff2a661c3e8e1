//! The gradients of mixtures of experts: each expert's tokens and their gradients are gathered,
//! its hidden units are recomputed, and what follows is added where the tokens are.

use planner_ir::{Real, Unary};

use super::{Operands, Run};
use crate::array::{Tensor, TensorMut, expect_dtype};
use crate::elementwise::{Differentiated, activate, derivative};
use crate::error::KernelError;
use crate::norm::dot;
use crate::number::{Number, with_float};
use crate::product::{Extents, Matrix, add_product, product};

/// The gradients towards what experts are given; operands the same and dy.
pub(crate) fn experts_gradient(
    activation: Unary,
    limit: Option<Real>,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let Some((dy, given)) = operands.split_last() else {
        return Err(KernelError::Count { of: "operands", found: 0, expected: "5, 6 or 8" });
    };
    let operands = Operands::of(given)?;
    if results.len() != given.len() {
        let found = results.len();
        return Err(KernelError::Count { of: "results", found, expected: "one for each operand but dy" });
    }
    operands.check(dy)?;
    for (result, operand) in results.iter().zip(given) {
        expect_dtype(result.dtype, operand.dtype)?;
        if result.shape != operand.shape {
            let (found, expected) = (result.shape.to_vec(), operand.shape.to_vec());
            return Err(KernelError::Shape { of: "a gradient of experts", found, expected });
        }
    }
    with_float!(operands.x.dtype, "the gradient of experts", T => {
        let run = Run::<T>::new(activation, limit, operands)?;
        let mut made = results.iter_mut().map(TensorMut::elements_mut).collect::<Result<Vec<_>, _>>()?;
        for made in &mut made {
            made.fill(T::ZERO);
        }
        let (made, others) = made.split_at_mut(3);
        let [x, gates, up] = made else { return Ok(()) };
        let (gate, down, biases) = match others {
            [down] => (None, down, None),
            [gate, down] => (Some(&mut **gate), down, None),
            [gate, down, first, second] => (Some(&mut **gate), down, Some([&mut **first, &mut **second])),
            _ => return Ok(()),
        };
        run.gradient(dy.elements()?, Gradients { x, gates, up, gate, down, biases })
    })
}

/// What is computed.
struct Gradients<'a, T> {
    x: &'a mut [T],
    gates: &'a mut [T],
    up: &'a mut [T],
    gate: Option<&'a mut [T]>,
    down: &'a mut [T],
    biases: Option<[&'a mut [T]; 2]>,
}

impl<T: Differentiated> Run<'_, T> {
    fn gradient(&self, dy: &[T], mut made: Gradients<T>) -> Result<(), KernelError> {
        if self.hidden == 0 || self.inner == 0 {
            return Ok(());
        }
        for expert in 0..self.count {
            let chosen = self.chosen(expert);
            if !chosen.is_empty() {
                self.expert(expert, &chosen, &self.rows(dy, &chosen), &mut made)?;
            }
        }
        Ok(())
    }

    /// What follows from the tokens of one expert.
    fn expert(
        &self,
        expert: usize,
        chosen: &[(usize, T)],
        dy: &[T],
        made: &mut Gradients<T>,
    ) -> Result<(), KernelError> {
        let (rows, hidden, inner) = (chosen.len(), self.hidden, self.inner);
        let x = self.rows(self.x, chosen);
        let made_of = self.products(&x, expert);
        let [mut before, mut factors] = made_of.clone();
        self.bound([&mut before, &mut factors]);
        let mut active = vec![T::ZERO; rows * inner];
        activate(self.activation, &before, &mut active)?;
        let mut units = active.clone();
        multiply(&mut units, &factors);
        // The gradient of the units, but for the gate.
        let mut gradient = vec![T::ZERO; rows * inner];
        let of_expert =
            |row_stride: usize| Matrix { start: expert * hidden * inner, row_stride, column_stride: 1 };
        product(
            Extents { rows, columns: inner, summed: hidden },
            T::ONE,
            (dy, plain(hidden)),
            (self.down, of_expert(inner)),
            (&mut gradient, plain(inner)),
        );
        let mut gated = dy.to_vec();
        for (row, &(token, gate)) in chosen.iter().enumerate() {
            let own = row * inner..(row + 1) * inner;
            made.gates[token * self.count + expert] = dot((&units[own.clone()], &gradient[own.clone()]));
            scale(&mut gradient[own], gate);
            scale(&mut gated[row * hidden..(row + 1) * hidden], gate);
        }
        let added = |from: &[T], width: usize, by: &[T], columns: usize, to: &mut [T]| {
            product(
                Extents { rows: width, columns, summed: rows },
                T::ONE,
                (from, Matrix { start: 0, row_stride: 1, column_stride: width }),
                (by, plain(columns)),
                (to, of_expert(columns)),
            );
        };
        added(&gated, hidden, &units, inner, made.down);
        let mut dx = vec![T::ZERO; rows * hidden];
        let back = |from: &[T], w: &[T], dx: &mut [T]| {
            add_product(
                Extents { rows, columns: hidden, summed: inner },
                T::ONE,
                (from, plain(inner)),
                (w, of_expert(hidden)),
                (dx, plain(hidden)),
            );
        };
        // What is beyond a limit does not follow what it is made of.
        let beyond = |made_of: &[T], least: T, gradient: &mut [T]| {
            let Some(limit) = self.limit else { return };
            for (gradient, &from) in gradient.iter_mut().zip(made_of) {
                if from > limit || from < least {
                    *gradient = T::ZERO;
                }
            }
        };
        let added_to = |gradient: &[T], to: &mut [T]| {
            for row in gradient.chunks_exact(inner) {
                for (to, &it) in to[expert * inner..(expert + 1) * inner].iter_mut().zip(row) {
                    *to = to.plus(it);
                }
            }
        };
        if let (Some(gate), Some(to)) = (self.gate, &mut made.gate) {
            multiply(&mut active, &gradient);
            beyond(&made_of[1], T::ZERO.minus(self.limit.unwrap_or(T::ZERO)), &mut active);
            added(&active, inner, &x, hidden, to);
            back(&active, gate, &mut dx);
            if let Some([_, to]) = &mut made.biases {
                added_to(&active, to);
            }
        }
        multiply(&mut gradient, &factors);
        let mut slopes = active;
        derivative(self.activation, &before, &mut slopes)?;
        multiply(&mut gradient, &slopes);
        beyond(&made_of[0], T::LOWEST, &mut gradient);
        if let Some([to, _]) = &mut made.biases {
            added_to(&gradient, to);
        }
        added(&gradient, inner, &x, hidden, made.up);
        back(&gradient, self.up, &mut dx);
        for (&(token, _), dx) in chosen.iter().zip(dx.chunks_exact(hidden)) {
            let target = &mut made.x[token * hidden..(token + 1) * hidden];
            for (target, &dx) in target.iter_mut().zip(dx) {
                *target = target.plus(dx);
            }
        }
        Ok(())
    }
}

/// Rows of that length.
fn plain(length: usize) -> Matrix {
    Matrix { start: 0, row_stride: length, column_stride: 1 }
}

fn multiply<T: Differentiated>(x: &mut [T], factors: &[T]) {
    for (x, &factor) in x.iter_mut().zip(factors) {
        *x = x.times(factor);
    }
}

fn scale<T: Differentiated>(x: &mut [T], factor: T) {
    for x in x {
        *x = x.times(factor);
    }
}

#[cfg(test)]
mod tests;
