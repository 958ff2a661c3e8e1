//! Gradients of functions of one element, and of gated units.

use planner_ir::Unary;

use super::unary::{Activated, activate};
use super::{CHUNK, multiply};
use crate::approximate;
use crate::array::{Tensor, TensorMut, element_count, expect_dtype};
use crate::error::KernelError;
use crate::number::{Float, Number, with_float};
use crate::wide::wide;

/// `y[..] = function(x[..])` as one loop, with the function inlined if it is always inlined.
macro_rules! map {
    ($x:expr, $y:expr, $function:expr) => {
        crate::wide::call(
            #[inline(always)]
            |(x, y): (&[T], &mut [T])| {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = $function(x);
                }
            },
            ($x, $y),
        )
    };
}

/// `dx = f'(x) * dy`.
pub(crate) fn unary_gradient(
    function: Unary,
    [x, dy]: [&Tensor; 2],
    dx: &mut TensorMut,
) -> Result<(), KernelError> {
    let count = same(&[x, dy, &dx.tensor()])?;
    with_float!(x.dtype, "a derivative", T => {
        let (x, dy, dx) = (x.elements::<T>()?, dy.elements::<T>()?, dx.elements_mut::<T>()?);
        for start in (0..count).step_by(CHUNK) {
            let range = start..count.min(start + CHUNK);
            let dx = &mut dx[range.clone()];
            derivative(function, &x[range.clone()], dx)?;
            wide!(multiply, (&mut *dx, &dy[range.clone()]));
            if function == Unary::Relu {
                // What is cut off has no gradient, whatever comes back: 0 times infinity is none.
                let cut = dx.iter_mut().zip(&x[range]).filter(|(_, x)| **x <= T::ZERO);
                cut.for_each(|(dx, _)| *dx = T::ZERO);
            }
        }
        Ok(())
    })
}

/// `da = activation'(a) * b * dy`, `db = activation(a) * dy`.
pub(crate) fn gated_gradient(
    activation: Unary,
    [a, b, dy]: [&Tensor; 3],
    [da, db]: [&mut TensorMut; 2],
) -> Result<(), KernelError> {
    let count = same(&[a, b, dy, &da.tensor(), &db.tensor()])?;
    with_float!(a.dtype, "the gradient of a gated unit", T => {
        let (a, b, dy) = (a.elements::<T>()?, b.elements::<T>()?, dy.elements::<T>()?);
        let (da, db) = (da.elements_mut::<T>()?, db.elements_mut::<T>()?);
        for start in (0..count).step_by(CHUNK) {
            let range = start..count.min(start + CHUNK);
            let (a, b, dy) = (&a[range.clone()], &b[range.clone()], &dy[range.clone()]);
            let (da, db) = (&mut da[range.clone()], &mut db[range]);
            derivative(activation, a, da)?;
            activate(activation, a, db)?;
            wide!(multiply, (&mut *da, b));
            wide!(multiply, (da, dy));
            wide!(multiply, (db, dy));
        }
        Ok(())
    })
}

/// How many elements values of one type have.
fn same(values: &[&Tensor]) -> Result<usize, KernelError> {
    for value in values {
        expect_dtype(value.dtype, values[0].dtype)?;
        if value.shape != values[0].shape {
            return Err(KernelError::Shape {
                of: "a gradient",
                found: value.shape.to_vec(),
                expected: values[0].shape.to_vec(),
            });
        }
    }
    element_count(values[0].shape)
}

/// `y[..] = f'(x[..])`.
pub(crate) fn derivative<T: Differentiated>(
    function: Unary,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    match function {
        Unary::Abs => map!(x, y, sign),
        Unary::Cos => map!(x, y, |x: T| T::ZERO.minus(x.sine())),
        Unary::Erf => {
            map!(x, y, |x: T| bell(x, 1.0).times(T::of_f64(std::f64::consts::FRAC_2_SQRT_PI)))
        }
        Unary::Exp => map!(x, y, T::exp),
        Unary::Gelu => map!(x, y, gelu),
        Unary::GeluTanh => map!(x, y, gelu_tanh),
        Unary::GeluQuick => map!(x, y, gelu_quick),
        Unary::Log => map!(x, y, |x| T::ONE.over(x)),
        Unary::Neg => y.fill(T::ZERO.minus(T::ONE)),
        Unary::Reciprocal => map!(x, y, |x: T| T::ZERO.minus(T::ONE.over(x.times(x)))),
        Unary::Relu => map!(x, y, |x| if x > T::ZERO { T::ONE } else { T::ZERO }),
        Unary::Sigmoid => map!(x, y, |x| slope(sigmoid(x))),
        Unary::Silu => map!(x, y, |x: T| {
            let gate = sigmoid(x);
            gate.plus(small(x).times(slope(gate)))
        }),
        Unary::Sin => map!(x, y, T::cosine),
        Unary::Softplus => map!(x, y, sigmoid),
        Unary::Sqrt => map!(x, y, |x: T| T::ONE.over(twice(x.root()))),
        Unary::Tanh => map!(x, y, |x: T| {
            let tanh = x.tanh();
            T::ONE.minus(tanh.times(tanh))
        }),
        Unary::Ceil
        | Unary::Floor
        | Unary::IsInf
        | Unary::IsNan
        | Unary::Not
        | Unary::Round
        | Unary::Sign => {
            return Err(KernelError::Elements { of: "a derivative of a step", found: T::DTYPE });
        }
    }
    Ok(())
}

/// The numbers with the functions that derivatives are made of.
pub(crate) trait Differentiated: Float + Activated {
    /// The sine.
    fn sine(self) -> Self;
    /// The cosine.
    fn cosine(self) -> Self;
    /// The probability that a normal number is below.
    fn normal(self) -> Self;
}

impl Differentiated for f32 {
    fn sine(self) -> Self {
        libm::sinf(self)
    }

    fn cosine(self) -> Self {
        libm::cosf(self)
    }

    #[inline(always)]
    fn normal(self) -> Self {
        0.5 + 0.5 * approximate::erf(self * std::f32::consts::FRAC_1_SQRT_2)
    }
}

impl Differentiated for f64 {
    fn sine(self) -> Self {
        libm::sin(self)
    }

    fn cosine(self) -> Self {
        libm::cos(self)
    }

    fn normal(self) -> Self {
        0.5 * libm::erfc(-self * std::f64::consts::FRAC_1_SQRT_2)
    }
}

#[inline(always)]
fn twice<T: Number>(x: T) -> T {
    x.plus(x)
}

#[inline(always)]
fn sign<T: Number>(x: T) -> T {
    if x > T::ZERO {
        T::ONE
    } else if x < T::ZERO {
        T::ZERO.minus(T::ONE)
    } else {
        T::ZERO
    }
}

#[inline(always)]
fn sigmoid<T: Float>(x: T) -> T {
    T::ONE.over(T::ONE.plus(T::ZERO.minus(x).exp()))
}

/// The derivative of the sigmoid that has this value.
#[inline(always)]
fn slope<T: Number>(sigmoid: T) -> T {
    sigmoid.times(T::ONE.minus(sigmoid))
}

/// `e ^ (-factor x²)`.
#[inline(always)]
fn bell<T: Float>(x: T, factor: f64) -> T {
    x.times(x).times(T::of_f64(-factor)).exp()
}

/// x, or the nearest number beyond which what it is multiplied with is 0.
#[inline(always)]
fn small<T: Number>(x: T) -> T {
    /// Here a sigmoid differs from 0 or 1 by nothing that counts.
    const FAR: f64 = 1000.0;
    let (low, high) = (T::of_f64(-FAR), T::of_f64(FAR));
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// `Φ(x) + x φ(x)`.
#[inline(always)]
fn gelu<T: Differentiated>(x: T) -> T {
    /// `1 / sqrt(2 π)`.
    const HEIGHT: f64 = 0.398_942_280_401_432_7;
    let density = bell(x, 0.5).times(T::of_f64(HEIGHT));
    x.normal().plus(small(x).times(density))
}

/// The derivative of `x sigmoid(2 u)`, `u = √(2/π) (x + 0.044715 x³)`.
#[inline(always)]
fn gelu_tanh<T: Float>(x: T) -> T {
    /// `√(2/π)`.
    const SLOPE: f64 = 0.797_884_560_802_865_4;
    const CUBE: f64 = 0.044_715;
    let x = small(x);
    let square = x.times(x);
    let bend = T::ONE.plus(square.times(T::of_f64(CUBE)));
    let gate = sigmoid(twice(x.times(bend).times(T::of_f64(SLOPE))));
    let inner = T::ONE.plus(square.times(T::of_f64(3.0 * CUBE))).times(T::of_f64(2.0 * SLOPE));
    gate.plus(x.times(slope(gate)).times(inner))
}

/// The derivative of `x sigmoid(1.702 x)`.
#[inline(always)]
fn gelu_quick<T: Float>(x: T) -> T {
    const SLOPE: f64 = 1.702;
    let x = small(x);
    let gate = sigmoid(x.times(T::of_f64(SLOPE)));
    gate.plus(x.times(slope(gate)).times(T::of_f64(SLOPE)))
}

#[cfg(test)]
mod tests;
