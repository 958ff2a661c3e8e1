//! What operations that touch each element a few times take where memory is not what limits them.
//!
//! A GPU computes any function of an element while the next one is on its way from memory. A
//! thread does not: there, every kind of operation has its own pace, which `calibrate` measures.

use std::collections::BTreeMap;

use planner_ir::{Binary, ElementwiseClass, Unary};

use crate::known::Known;
use crate::units::Seconds;

/// Kinds of operations by what they do to an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Sums, products, comparisons and choices.
    Sum,
    /// Quotients and roots.
    Quotient,
    /// Exponentials, logarithms, and functions made of one.
    Exponential,
    /// Functions made of `erf`.
    Erf,
    /// Functions made of `tanh`.
    Tanh,
    /// Softmax along rows.
    Softmax,
    /// What attention does with the scores of a query besides products.
    Score,
    /// Layer norms and their like.
    Norm,
    /// Sums along dimensions.
    Reduce,
    /// Elements put in another order.
    Transpose,
    /// Rows and blocks copied.
    Copy,
}

/// What a pass takes: `t = start + elements · element`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// Time however few elements there are (seconds).
    pub start: Known<Seconds>,
    /// Time of an element (seconds).
    pub element: Known<Seconds>,
}

/// The paces of a device; none at all where memory is what limits.
pub type Passes = BTreeMap<Pass, Pace>;

impl Pass {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Sum,
        Self::Quotient,
        Self::Exponential,
        Self::Erf,
        Self::Tanh,
        Self::Softmax,
        Self::Score,
        Self::Norm,
        Self::Reduce,
        Self::Transpose,
        Self::Copy,
    ];

    /// Its name in machine files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Quotient => "quotient",
            Self::Exponential => "exponential",
            Self::Erf => "erf",
            Self::Tanh => "tanh",
            Self::Softmax => "softmax",
            Self::Score => "score",
            Self::Norm => "norm",
            Self::Reduce => "reduce",
            Self::Transpose => "transpose",
            Self::Copy => "copy",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The kind of an operation on elements.
    #[must_use]
    pub fn of_elements(class: ElementwiseClass) -> Self {
        match class {
            ElementwiseClass::Unary(function) | ElementwiseClass::Gated(function) => {
                Self::of_function(function)
            }
            ElementwiseClass::Binary(Binary::Div | Binary::Mod) => Self::Quotient,
            ElementwiseClass::Binary(Binary::Pow) => Self::Exponential,
            ElementwiseClass::Binary(
                Binary::Add
                | Binary::And
                | Binary::Equal
                | Binary::Greater
                | Binary::GreaterOrEqual
                | Binary::Less
                | Binary::LessOrEqual
                | Binary::Max
                | Binary::Min
                | Binary::Fmod
                | Binary::Mul
                | Binary::Or
                | Binary::Sub
                | Binary::Xor,
            )
            | ElementwiseClass::Rotary
            | ElementwiseClass::Choice => Self::Sum,
        }
    }

    fn of_function(function: Unary) -> Self {
        match function {
            Unary::Erf | Unary::Gelu => Self::Erf,
            Unary::GeluTanh | Unary::Tanh => Self::Tanh,
            Unary::Exp
            | Unary::GeluQuick
            | Unary::Log
            | Unary::Sigmoid
            | Unary::Silu
            | Unary::Softplus
            | Unary::Cos
            | Unary::Sin => Self::Exponential,
            Unary::Sqrt | Unary::Reciprocal => Self::Quotient,
            Unary::Abs
            | Unary::Ceil
            | Unary::Floor
            | Unary::IsInf
            | Unary::IsNan
            | Unary::Neg
            | Unary::Not
            | Unary::Relu
            | Unary::Round
            | Unary::Sign => Self::Sum,
        }
    }
}
