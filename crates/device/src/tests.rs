//! A GPU that is not there: streams, errors, products, kernels kept, graphs.

mod layer; // the driver
mod multiplied; // matrix products
mod stored; // compiled kernels, kept
mod timed; // single things, timed
