//! What classes of operations are called, alone and in sums.

use planner_ir::{ElementwiseClass, MovementClass, NormClass, Op, OpClass};

/// The names of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassNames {
    /// One operation of it.
    pub operation: &'static str,
    /// The term of an estimate that the times of all of them are added up in.
    pub term: &'static str,
}

/// What the class of an operation is called.
#[must_use]
pub fn class_names(op: &Op) -> ClassNames {
    let (operation, term) = match op.class() {
        OpClass::MatrixProduct(_) if op.has_scales() => ("narrow product", "narrow products"),
        OpClass::MatrixProduct(_) => ("product", "matrix products"),
        OpClass::Attention(_) => ("attention", "attention"),
        OpClass::Recurrence(_) => ("recurrence", "recurrences"),
        OpClass::Experts(_) => ("experts", "experts"),
        OpClass::Convolution(_) => ("convolution", "convolutions"),
        OpClass::Norm(NormClass::Layer) => ("layer norm", "norms"),
        OpClass::Norm(NormClass::RootMeanSquare) => ("rms norm", "norms"),
        OpClass::Norm(NormClass::Instance) => ("instance norm", "norms"),
        OpClass::Softmax => ("softmax", "norms"),
        OpClass::LogSoftmax => ("softmax", ELEMENTWISE),
        OpClass::CrossEntropy | OpClass::Reduction => ("reduction", ELEMENTWISE),
        OpClass::Gather(_) => ("look-up", "look-ups"),
        OpClass::Quantization => ("quantisation", "quantisation"),
        OpClass::Optimizer => ("optimizer step", "optimizer steps"),
        OpClass::Region => ("region", "regions kept whole"),
        OpClass::Elementwise(ElementwiseClass::Rotary) => ("rotary", ELEMENTWISE),
        OpClass::Elementwise(ElementwiseClass::Gated(_)) => ("gated unit", ELEMENTWISE),
        OpClass::Movement(MovementClass::Reorder | MovementClass::Copy | MovementClass::Slice) => {
            ("movement", ELEMENTWISE)
        }
        OpClass::Movement(MovementClass::Pad)
        | OpClass::Elementwise(
            ElementwiseClass::Unary(_) | ElementwiseClass::Binary(_) | ElementwiseClass::Choice,
        )
        | OpClass::Constant
        | OpClass::Scan
        | OpClass::Scatter
        | OpClass::Resampling
        | OpClass::Dequantization
        | OpClass::Dynamic => (ELEMENTWISE, ELEMENTWISE),
    };
    ClassNames { operation, term }
}

/// The name of all that passes over memory.
const ELEMENTWISE: &str = "element-wise";
