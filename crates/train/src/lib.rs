//! From a model to its training step.
//!
//! ```text
//! raised graph ──forward──► loss and count ──rewrite::blocks──► Blocks ──step──► one training step
//! ```
//!
//! [`forward`] makes the loss the graph's result, as a sum and the count that it is divided by,
//! and lets the model compute in the precision asked for. [`step()`] adds what trains: the backward
//! pass by the rules that each operation declares, gradients summed over micro-batches, the
//! optimizer. The step is a program like any other; that it can be run data-, tensor- or
//! ZeRO-parallel follows from its loops.

mod roles; // which weights are parameters
mod ends; // outputs, and what states become
mod tie; // parameters that an exporter wrote twice, made one again
mod forward; // the loss as a sum and a count
mod loss; // where the loss is a quotient
mod wide; // a model as if its file were in f32
mod precision; // a model that computes in bf16
mod full; // parameters that are kept in f32 alone
mod dropout; // other randomness in each step
mod derived; // what a training step is
mod step; // how it is derived
mod narrow; // products of linear layers in 8 and 4 bits
mod late; // conversions where they are read
mod tape; // the forward program again, and its gradients backward
mod tiles; // gradients of parameters that are used in slices
mod recompute; // which operations are done again
mod keep; // what is worth keeping, at each price of memory
mod cut; // minimum cuts
mod update; // the optimizer
mod rounding; // other randomness in each step, for each parameter
mod prune; // what nothing needs
mod stages; // a step cut into the stages of a pipeline

use std::fmt;

use plan::Precision;
use planner_ir::{DType, NoGradient};

pub use derived::Step;
pub use forward::forward;
pub use keep::{Costs, Keeping, keepings};
pub use roles::{Because, Declared, Found, Known, Trained, may_be_parameter, roles};
pub use stages::{Crossing, Stages, stage, stages};
pub use step::step;
pub use tie::tied;

/// The input of a training step that is the learning rate: f32, no dimensions.
pub const RATE: &str = "training.rate";

/// The input that is the number of the step, from 1: f32, no dimensions. Only of some optimizers.
pub const STEP: &str = "training.step";

/// The input that makes each micro-batch's dropout its own: i64, no dimensions. Only if there is
/// dropout.
pub const SEED: &str = "training.seed";

/// The input that makes each step's rounding of parameters its own: i64, no dimensions. Only if
/// parameters are in bf16 alone.
pub const ROUNDING: &str = "training.rounding";

/// The output of a training step that is its mean loss: f32, no dimensions.
pub const LOSS: &str = "loss";

/// The output that is the norm of all gradients together, before clipping: f32, no dimensions.
/// Only if the norm is bounded.
pub const NORM: &str = "gradient_norm";

/// Why a model cannot be trained as was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrainError {
    /// There is no output of that name; those that there are.
    Output(String, Vec<String>),
    /// The loss is not one number of floating point; its name, its type.
    Loss(String, String),
    /// The scores of classes are not what a cross-entropy takes; their name, their type.
    Scores(String, String),
    /// An input has a name that the step needs for its own.
    Reserved(String),
    /// An operation on the way from parameters to the loss; its name in the model file, why.
    Gradient(String, NoGradient),
    /// Nothing that can be trained leads to the loss.
    Nothing,
    /// A pattern that no parameter's name matches; what it is for.
    Pattern(String, &'static str),
    /// A weight that was asked to be trained and is quantised; its name, the type of its elements.
    Quantised(String, DType),
    /// A weight that is said to be a copy and cannot be one; its name, that of the original.
    Tie(String, String),
    /// As many decisions about blocks as there are blocks; found, expected.
    Blocks(usize, usize),
    /// The first blocks of stages are not 0 and ascending numbers of blocks; they, how many blocks
    /// there are.
    Stages(Vec<usize>, usize),
    /// What is kept of a block are not operations of it in ascending order; the block's number, its
    /// operations.
    Kept(usize, usize),
    /// No product can be as narrow as is asked for.
    Wide(Precision),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(name, others) => {
                write!(
                    f,
                    "there is no output `{name}`, there are {}; `--loss` names one that is a number, or \
                     `cross-entropy:LOGITS,LABELS`",
                    others.join(", ")
                )
            }
            Self::Wide(precision) => write!(
                f,
                "`--precision {precision}`: no product of a linear layer before the last can be narrow: its rows, \
                 its columns and what it sums over have to be multiples of 16, and in blocks of 32 for mxfp8; other \
                 sizes of the batch or the sequence would help, or `--precision bf16`"
            ),
            Self::Loss(name, found) => {
                write!(
                    f,
                    "the loss `{name}` is {found}, expected one number of floating point: `--loss` names one, or \
                     `cross-entropy:LOGITS,LABELS`"
                )
            }
            Self::Scores(name, found) => {
                write!(
                    f,
                    "the scores `{name}` are {found}, expected floating point and a dimension of classes"
                )
            }
            Self::Reserved(name) => {
                write!(f, "the model has an input `{name}`, which training needs for its own")
            }
            Self::Gradient(origin, error) => {
                write!(f, "`{origin}` stands between parameters and the loss: {error}")
            }
            Self::Nothing => f.write_str("no parameter that is not frozen leads to the loss"),
            Self::Pattern(pattern, what) => write!(f, "no parameter matches `{pattern}` ({what})"),
            Self::Quantised(name, dtype) => write!(
                f,
                "`{name}` is of {dtype}, expected f32, f64, f16 or bf16: the numbers of a quantised weight have \
                 no gradient (`--train`); train what is added to it, or the model before it was quantised"
            ),
            Self::Tie(copy, original) => write!(
                f,
                "weight `{copy}` is said to be a copy of `{original}`, expected two weights of one type, or of \
                 rows and columns exchanged, the second no copy itself"
            ),
            Self::Blocks(found, expected) => {
                write!(f, "decisions about {found} blocks, expected {expected}, as many as there are")
            }
            Self::Stages(first, blocks) => write!(
                f,
                "stages start at blocks {first:?}, expected block 0 and then ascending ones of the \
                 {blocks} that there are: give fewer stages"
            ),
            Self::Kept(block, count) => write!(
                f,
                "what is kept of block {block} is not a list of its operations, expected numbers below \
                 {count}, ascending"
            ),
        }
    }
}

impl std::error::Error for TrainError {}

#[cfg(test)]
mod tests;
