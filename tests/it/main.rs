//! The tests of the whole project, in one binary.
//!
//! Modules are marked as tests, so that what serves tests may panic.

#[cfg(test)]
mod bench; // the benchmarks, small
#[cfg(test)]
mod cli; // the command line
#[cfg(test)]
mod corpus; // real models, planned and run
#[cfg(test)]
mod cuda; // the kernels that plans need on GPUs
#[cfg(test)]
#[path = "../../crates/device/src/emulated.rs"]
mod emulated; // a GPU that is not there
#[cfg(test)]
mod export; // plans in the words of other runtimes
#[cfg(test)]
mod generation; // decoders with their caches
#[cfg(test)]
mod gradients; // gradients of operations against differences
#[cfg(test)]
mod laws; // what holds of all plans
#[cfg(test)]
mod models; // configurations as models
#[cfg(test)]
#[path = "../outside.rs"]
mod outside; // what may lie outside the repository
#[cfg(test)]
mod papers; // partitions in time against the papers that they come from
#[cfg(test)]
mod pages; // pages that cannot rot
#[cfg(test)]
mod ptx; // kernels for GPUs, run by an interpreter of what they are compiled to
#[cfg(test)]
#[path = "../../crates/lower/src/tests/sketch.rs"]
#[expect(dead_code, reason = "much of it serves tests of other packages")]
mod sketch; // plans made by hand
#[cfg(test)]
mod small_world; // the verifier of layouts against arithmetic
#[cfg(test)]
mod simulated; // what plans take by the clock
#[cfg(test)]
mod one_number; // what plan, explain and simulate say of a step
#[cfg(test)]
mod simgrid; // programs in another simulator
#[cfg(test)]
mod training; // training steps of real models
#[cfg(test)]
mod tidy; // the rules that the repository itself obeys
#[cfg(test)]
mod tier; // which tests run

/// As the program has it: searches make and leave many small tables.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
