//! Programs on GPUs: the kernels that they need, compiled without a GPU, and what a machine lacks.
//!
//! Nothing here needs a GPU, and nothing of CUDA is linked: libraries are looked for when they are
//! asked for, and one that is missing is an error that says where it was looked for.

mod tasks; // what a program's instructions are on a device
mod library; // shared libraries, found and loaded
mod nvrtc; // kernels compiled
mod usage; // what compiled kernels need of a device
mod missing; // what running on GPUs needs and this machine lacks

pub use library::NotFound;
pub use missing::missing;
pub use nvrtc::{Architecture, CompileError, Compiled, Nvrtc};
pub use tasks::{Task, tasks};
pub use usage::{Usage, usage};
