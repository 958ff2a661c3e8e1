//! Files: models, arrays, plans, machines and checkpoints on disk, and what is wrong with them.
//!
//! Files are opened, written and mapped in one place each: what is no file is refused, and what is written is
//! there whole or not at all. Whatever goes wrong is a [`Failure`], which has an exit code.
//!
//! - [`model_file`] — a model and its weights, where they lie
//! - [`arrays`] — arrays by name: `.npz` and `.safetensors`
//! - [`given`] — inputs that are given, checked against what is expected
//! - [`inputs`] — inputs made from a seed
//! - [`plan_file`] — plans, checked when they are read
//! - [`machine`] — the machine that an argument names
//! - [`checkpoint`] — what a training run goes on from
//! - [`weights`] — what was trained
//! - [`readable`], [`written`], [`mapped`] — files themselves
//! - [`folder`] — folders that go away
//! - [`doing`] — what is being done, for who waits
//! - [`interrupt`] — work that is ended before it is done
//! - [`impossible`] — what no weights and no inputs can make right

pub mod arrays;
pub mod checkpoint;
pub mod doing;
mod failure;
pub mod folder;
pub mod given;
pub mod impossible;
pub mod inputs;
pub mod interrupt;
pub mod machine;
pub mod mapped;
pub mod model_file;
pub mod plan_file;
pub mod readable;
pub mod weights;
pub mod written;

pub use doing::{Doing, Of, Say};
pub use failure::Failure;
