//! The code that devices run: what each operation means on a processor.
//!
//! A kernel computes a *block*: the shapes are those of the operands and results that it is
//! given, and their spans say where the blocks lie in the whole values. Numbers narrower than
//! 32 bits are computed in f32, and integers in 64 bits, and rounded or cut once.

mod array; // values in memory
mod error; // why an operation could not be computed
mod compute; // which kernel computes an operation, on blocks and on whole values
mod number; // the numbers that kernels compute with
mod widen; // stored elements to such numbers and back
mod pieces; // a result computed a few rows at a time
mod wide; // loops compiled for the widest vectors of the processor
mod nest; // nested loops over strided memory
mod approximate; // exp, tanh, erf and what is made of them, for vectors
mod cast; // conversion of elements
mod float8; // floating-point numbers of 8 bits
mod elementwise; // functions of one, two and three elements
mod movement; // the same elements in other places
mod indexing; // elements at places that are data
mod generate; // values made of nothing, and by chance: constants, ranges, random masks, random rounding
mod reduce; // many elements to one
mod order; // which elements are the largest or smallest
mod norm; // rows made comparable: softmax and the normalisations
mod product; // the one matrix product
mod contract; // sums of products in index notation
mod attention; // scaled dot-product attention, rotary embedding
mod recurrence; // states that go from token to token
mod conv; // convolution
mod resize; // resampling
mod loss; // cross entropy
mod experts; // mixtures of experts
mod optimizer; // steps of optimizers
mod narrow; // numbers of 8 bits with scales
mod quantised; // block-quantised weights
pub mod cuda; // kernels for GPUs, as sources
pub mod random; // numbers that look random, and are the same everywhere

pub use array::{Array, Element, Span, Tensor, TensorMut};
pub use compute::{add, compute, evaluate, write};
pub use error::KernelError;

#[cfg(test)]
mod finite; // gradients by differences that tests compare with
#[cfg(test)]
mod naive; // plain definitions that tests compare with
