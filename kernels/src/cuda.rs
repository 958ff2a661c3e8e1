//! Kernels for GPUs: their sources, made for an operation and the blocks that it is given.
//!
//! A source is freestanding CUDA C++ that is C too: it needs no header of CUDA, and calls a
//! closed set of primitives that are defined twice, for a device and for a host. On a host the
//! same text is compiled by a C compiler and run with fibers as threads, which is how its numbers
//! are checked where there is no GPU.
//!
//! Extents and strides are arguments of a kernel; element types, functions and what else decides
//! how fast it is stand in its source. Its name ends in a hash of that, so that sources of one
//! name are the same.

mod text; // sources from templates, their names and hashes
mod number; // element types in C
mod vectors; // elements that are loaded and stored at once
mod functions; // functions of elements in C
mod program; // kernels with their primitives: for a device, for a host
mod strides; // loops over strided memory as arguments
mod launch; // kernels, how they are launched, what they are given
mod choose; // which kernels compute an operation
mod pointwise; // chains of functions of elements
mod chain; // operations that one kernel computes together
mod single; // chains as kernels, and operations that are chains of one
mod copying; // the same elements in other places
mod movement; // operations that leave elements as they are
mod indexing; // elements at places that are data
mod reduce; // many elements to one
mod rows; // softmax, cross entropy, and their gradients
mod norm; // normalisations and their gradients, with what is around them
mod order; // running sums and extremes
mod recurrence; // states that go from token to token
mod rotary; // rotary embedding and its gradient
mod attention; // attention and its gradients
mod conv; // convolution and its gradients
mod places; // elements and slices that indices name: gathered, mirrored, scattered
mod resample; // resampling
mod experts; // mixtures of experts and their gradients
mod contract; // sums of products: which a library computes, and the others
mod squares; // the squares of many values, summed
mod sum; // sums over ranks

pub use chain::{Chain, Input, Step, is_pointwise};
pub use choose::{copied, kernels, takes_orders, write};
pub use contract::{orders, product};
pub use copying::Copying;
pub use launch::{
    Argument, FAMILIES, Kernel, Launch, Matrix, MatrixProduct, Multiplied, Parameter, Piece, Uncovered, Work,
};
pub use norm::is_norm;
pub use program::{device_program, host_program};
pub use rows::classified;
pub use single::chained;
pub use squares::squares;
pub use sum::summed;

#[cfg(test)]
mod tests;
