//! Steps computed on one device, operation by operation: against PyTorch, and small rules.

mod device; // a step computed on one device
mod oracles; // what PyTorch computed
