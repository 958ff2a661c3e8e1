//! A GPU that is not there: streams, errors, products, kernels kept, graphs.

mod layer; // the driver
mod fused; // operations that are one kernel
mod multiplied; // matrix products
mod stored; // compiled kernels, kept
mod timed; // single things, timed
