//! Kernels for GPUs, run without one: an interpreter runs the PTX that NVRTC makes of them, and what they
//! compute is held against processors.
//!
//! The interpreter checks every access to memory, see `crates/ptx`. Where NVRTC is not there, what it made of
//! kernels of every kind is run all the same: the files in `cases/ptx`.

mod emulation; // kernels compiled and run
mod trial; // a work with operands, and what it is to make
mod cases; // what `bench gpu` compares
mod plans; // what plans of the corpus launch
mod random; // operands of operations
mod pack; // the files of PTX
mod broken; // kernels broken on purpose
