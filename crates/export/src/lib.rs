//! Plans for other runtimes: what they are called there, and what cannot be said there.
//!
//! A plan is read as a [`Strategy`], how a model is split in the words of those who split models by hand:
//! degrees of data, tensor, context, expert and pipeline parallelism, the same in all stages. A target is
//! given as much of it as it has words for. What is lost on the way is said, each time.
//!
//! - [`job`] — a plan or a pipeline as a job of stages
//! - [`model`] — the sizes of a model, read off its program
//! - [`strategy`] — degrees of parallelism, read off partitions
//! - [`serving`] — degrees of parallelism of a server
//! - [`target`] — what runs plans, and what of a strategy it runs
//! - [`placements`] — where each parameter lies, for each axis of a mesh

pub mod job;
pub mod model;
pub mod placements;
pub mod serving;
pub mod strategy;
pub mod target;

mod error; // why there is no export
mod file; // what a target reads
mod range; // what a target runs of what there is to choose
mod layers; // which layers stages have
mod modules; // how modules of transformers are split
mod specs; // over which axes values are split
mod roles; // what the axes of a mesh are for
mod server; // what the scripts of all servers have in common
mod autoparallel; // placements of AutoParallel
mod bridge; // a configuration of Megatron-Bridge
mod deepspeed; // a configuration of DeepSpeed
mod dtensor; // placements of DTensor, and a Python module that applies them
mod dynamo; // a deployment of Dynamo
mod hf; // Python modules for transformers
mod jax; // partition specs of JAX
mod megatron; // arguments of Megatron-LM
mod sglang; // a command of SGLang
mod shardy; // shardings of Shardy
pub mod torchtitan; // a configuration of torchtitan
mod trtllm; // a command of TensorRT-LLM and its configuration
mod vllm; // a command of vLLM

pub use error::ExportError;
pub use file::File;
pub use job::{Device, Job};
pub use range::{Cuts, Range, ServingRange};
pub use serving::Serving;
pub use strategy::Strategy;
pub use target::{Exported, Runs, Target, export};
