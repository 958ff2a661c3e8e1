//! A GPU that is not there: streams, errors, products, kernels kept, graphs.

mod layer; // the driver
mod script; // programs by hand
mod fused; // operations that are one kernel
mod moved; // where they are issued
mod random; // random programs, task by task
mod multiplied; // matrix products
mod stored; // compiled kernels, kept
mod timed; // single things, timed
