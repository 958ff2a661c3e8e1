//! Mixtures of experts: each expert computes the tokens that its gate lets through. And their
//! gradients.

use planner_ir::{Real, Unary};

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::elementwise::activate;
use crate::error::KernelError;
use crate::number::{Float, with_float};
use crate::product::{Extents, Matrix, product};

mod gradient;

pub(crate) use gradient::experts_gradient;

/// `y[t] = sum_e gates[t,e] * (activation(x[t] up[e]) * (x[t] gate[e])) down[e]`.
pub(crate) fn experts(
    activation: Unary,
    limit: Option<Real>,
    operands: &[Tensor],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let operands = Operands::of(operands)?;
    operands.check(&y.tensor())?;
    with_float!(operands.x.dtype, "a mixture of experts", T => {
        Run::<T>::new(activation, limit, operands)?.compute(y.elements_mut()?)
    })
}

/// What experts are given.
#[derive(Clone, Copy)]
struct Operands<'a, 'b> {
    x: &'a Tensor<'b>,
    gates: &'a Tensor<'b>,
    up: &'a Tensor<'b>,
    gate: Option<&'a Tensor<'b>>,
    down: &'a Tensor<'b>,
    biases: Option<[&'a Tensor<'b>; 2]>,
}

impl<'a, 'b> Operands<'a, 'b> {
    fn of(operands: &'a [Tensor<'b>]) -> Result<Self, KernelError> {
        let [x, gates, up, rest @ ..] = operands else {
            return Err(KernelError::Count { of: "operands", found: operands.len(), expected: "4, 5 or 7" });
        };
        let (gate, down, biases) = match rest {
            [down] => (None, down, None),
            [gate, down] => (Some(gate), down, None),
            [gate, down, first, second] => (Some(gate), down, Some([first, second])),
            _ => {
                let found = operands.len();
                return Err(KernelError::Count { of: "operands", found, expected: "4, 5 or 7" });
            }
        };
        Ok(Self { x, gates, up, gate, down, biases })
    }

    /// Refuses what does not fit together, and with the result.
    fn check(self, y: &Tensor) -> Result<(), KernelError> {
        let Self { x, gates, up, gate, down, biases } = self;
        let (&[t, h], &[_, e], &[_, f, _]) = (x.shape, gates.shape, up.shape) else {
            return Err(KernelError::Dimension { dim: 2, rank: x.shape.len() });
        };
        let biases = biases.iter().flatten().map(|&it| ("what is added to products", it, vec![e, f]));
        let given = [
            ("the gates", gates, vec![t, e]),
            ("the first weights", up, vec![e, f, h]),
            ("the gate weights", gate.unwrap_or(up), vec![e, f, h]),
            ("the last weights", down, vec![e, h, f]),
            ("the result", y, vec![t, h]),
        ];
        for (of, operand, expected) in given.into_iter().chain(biases) {
            expect_dtype(operand.dtype, x.dtype)?;
            if operand.shape != expected {
                return Err(KernelError::Shape { of, found: operand.shape.to_vec(), expected });
            }
        }
        Ok(())
    }
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
    /// What is added to both products.
    biases: Option<[&'a [T]; 2]>,
    /// What they are bounded by.
    limit: Option<T>,
}

impl<'a, T: Float + crate::elementwise::Activated> Run<'a, T> {
    fn new(activation: Unary, limit: Option<Real>, operands: Operands<'a, 'a>) -> Result<Self, KernelError> {
        let Operands { x, gates, up, gate, down, biases } = operands;
        let shape = extents(&[x.shape[1], up.shape[1], gates.shape[1]])?;
        Ok(Self {
            activation,
            hidden: shape[0],
            inner: shape[1],
            count: shape[2],
            x: x.elements()?,
            gates: gates.elements()?,
            up: up.elements()?,
            gate: gate.map(Tensor::elements).transpose()?,
            down: down.elements()?,
            biases: match biases {
                Some([first, second]) => Some([first.elements()?, second.elements()?]),
                None => None,
            },
            limit: limit.map(|it| T::of_f64(it.0)),
        })
    }

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
        let [mut before, mut factors] = self.products(&tokens, expert);
        self.bound([&mut before, &mut factors]);
        activate(self.activation, &before, &mut units)?;
        for (unit, factor) in units.iter_mut().zip(factors) {
            *unit = unit.times(factor);
        }
        Ok(self.project(&units, self.down, expert, [self.inner, self.hidden]))
    }

    /// Both products of rows, with what is added to them; the second is empty if units are not gated.
    fn products(&self, x: &[T], expert: usize) -> [Vec<T>; 2] {
        let into = [self.hidden, self.inner];
        let mut made = [Some(self.up), self.gate]
            .map(|weights| weights.map_or_else(Vec::new, |it| self.project(x, it, expert, into)));
        for (made, biases) in made.iter_mut().zip(self.biases.into_iter().flatten()) {
            let bias = &biases[expert * self.inner..(expert + 1) * self.inner];
            for (number, &bias) in made.iter_mut().zip(bias.iter().cycle()) {
                *number = number.plus(bias);
            }
        }
        made
    }

    /// The same within their limit, and 1 added to the second.
    fn bound(&self, [before, factors]: [&mut [T]; 2]) {
        let Some(limit) = self.limit else { return };
        for number in before {
            *number = number.smaller(limit);
        }
        for number in factors {
            *number = number.smaller(limit).larger(T::ZERO.minus(limit)).plus(T::ONE);
        }
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
