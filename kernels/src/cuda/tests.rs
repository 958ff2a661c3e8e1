//! Kernels run on the host, against what operations mean.

mod emulator; // generated C, compiled and run
mod values; // random values for operations
mod elements; // functions of elements
mod families; // rows, reductions, movement, places that are data
mod products; // attention and its gradients, sums of products
