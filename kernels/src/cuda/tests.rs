//! Kernels run on the host, against what operations mean.

mod emulator; // generated C, compiled and run
mod values; // random values for operations
mod elements; // functions of elements
mod places; // padded, resampled, scattered
mod classifier; // a loss with its gradient
mod orders; // other orders of dimensions in memory
mod norms; // norms in chains
mod families; // rows, reductions, movement, places that are data
mod experts; // mixtures of experts
mod squares; // squares of many values
mod products; // attention and its gradients, sums of products
