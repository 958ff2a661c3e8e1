//! Models that benchmarks and tests write for themselves, of any size, with weights from a seed.
//!
//! - [`folder`] — a model that is written to a folder
//! - [`gpt2`], [`llama`], [`unet`] — architectures

pub mod folder;
pub mod gpt2;
pub mod llama;
pub mod unet;
