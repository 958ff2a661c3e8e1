//! Programs on GPUs: the kernels that they need, compiled without a GPU, and how they run on one.
//!
//! Nothing of CUDA is linked: libraries are looked for when they are asked for, and one that is missing
//! is an error that says where it was looked for.

mod task; // one or more instructions as kernels
mod tasks; // what a program's instructions are on a device
mod places; // where values lie
mod uses; // who reads them
mod order; // where instructions are issued
mod orders; // in which order dimensions lie
mod group; // operations that one kernel computes
mod classifier; // a loss and its gradient as one task
mod squares; // sums of squares of many values as one task
mod error; // why something is not done on a GPU
mod library; // shared libraries, found and loaded
mod nvrtc; // kernels compiled
mod usage; // what compiled kernels need of a device
mod cache; // compiled kernels, kept from run to run
mod gpu; // a GPU by its driver
mod products; // matrix products, by cuBLASLt
mod ready; // the instructions of a program made ready to be issued
mod rank; // a rank on a GPU: its memory, its streams, its instructions
mod exchange; // what happens where ranks meet: what a transport does
mod together; // the transport of ranks that are on one GPU
mod nccl; // the transport of ranks that are processes with a GPU each
mod issue; // in which order ranks' instructions are issued
mod besides; // kernels besides those of tasks
mod moves; // outputs to inputs, within a device
mod report; // what ranks report of a step
mod ranks; // the ranks of a plan, and how their steps are issued
mod settings; // what a device is made with
mod maker; // what makes ranks ready
mod engine; // ranks on GPUs as sessions run them
mod sample; // a time from several
mod single; // an operation on a GPU by itself
mod bench; // what single things take on a GPU, and what they compute
mod missing; // what running on GPUs needs and this machine lacks

pub use bench::{Bench, Issued, Trial};
pub use besides::besides;
pub use engine::Device;
pub use error::DeviceError;
pub use gpu::{Facts, count, known};
pub use library::NotFound;
pub use missing::missing;
pub use nccl::{ENDING, Exchanged, Links, nccl};
pub use nvrtc::{Architecture, CompileError, Compiled, Nvrtc};
pub use orders::orders;
pub use ranks::Issuing;
pub use sample::Sample;
pub use settings::Settings;
pub use task::{Task, named};
pub use tasks::tasks;
pub use usage::{Usage, usage};

#[cfg(test)]
mod emulated;
#[cfg(test)]
#[path = "emulated/planted.rs"]
mod planted;
#[cfg(test)]
mod tests;
