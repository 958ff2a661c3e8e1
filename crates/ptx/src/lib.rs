//! An interpreter of PTX: the programs that NVRTC makes of generated kernels, run on a processor.
//!
//! It is for tests. A grid of blocks is run block after block; the warps of a block run from barrier to
//! barrier, and the lanes of a warp in lock step: where they diverge, those at the lowest place go on, until
//! they meet again. Every access is checked: it lies within one buffer, is aligned, reads bytes that were
//! written, and is ordered by a barrier against what other threads do to the same bytes.
//!
//! It has the instructions that the kernels of this project have; any other is refused with its line.
//! Source of all semantics: NVIDIA's "Parallel Thread Execution ISA", version 9.0.

mod bits; // numbers as the bits of registers
mod numbers; // arithmetic of floating-point numbers as a GPU rounds it
mod functions; // what instructions without memory compute, by name
mod comparisons; // what `setp` compares, by name
mod conversions; // what `cvt` computes, by name
mod instruction; // decoded instructions
mod parse; // text to statements
mod decode; // statements to instructions
mod fault; // what a kernel does wrong
mod cells; // who wrote and read a byte
mod memory; // buffers of a device, shared memory of a block
mod copies; // copies on their way to shared memory
mod tensor; // products of matrices that a warp computes together
mod grid; // how a kernel is started, what a warp runs in
mod warp; // 32 lanes in lock step
mod step; // one instruction of a warp
mod launch; // grids of blocks

pub use decode::{Kernel, Module};
pub use fault::{Fault, What};
pub use grid::Grid;
pub use launch::{Counts, launch};
pub use memory::{Access, Memory};
pub use parse::ParseError;

#[cfg(test)]
mod tests;
