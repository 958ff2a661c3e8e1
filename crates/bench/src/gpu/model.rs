//! A model that is trained.

use model_zoo::{gpt2, llama};

/// What is trained.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) size: Size,
    pub(super) batch: u64,
    pub(super) sequence: u64,
}

/// What kind of model it is, and how large.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Gpt2(gpt2::Size),
    Llama(llama::Size),
}

impl Model {
    /// The numbers that are trained.
    pub(super) fn parameters(&self) -> u64 {
        match self.size {
            Size::Gpt2(size) => size.parameters(),
            Size::Llama(size) => size.parameters(),
        }
    }
}
