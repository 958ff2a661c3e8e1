//! Decoders that make tokens: what their inputs and outputs are, plans of their steps, and the steps.

pub mod roles; // which inputs and outputs of a model are what
mod windows; // how many places of its cache a step sees
pub mod ring; // single tokens written where they stay
pub mod turned; // what they find and leave, as the model has it
pub mod bound; // the steps as programs of fixed sizes
pub mod planned; // both steps planned, over one cache
mod places; // which dimension of a cache has places
pub(crate) mod written; // entries written where the cache is
mod wanted; // what they are planned for, and the layouts of their cache
mod fitted; // both steps in one memory
pub mod together; // what a device holds of both
pub mod choose; // the next token
pub mod sequences; // tokens step by step
#[cfg(test)]
mod numbered; // graphs of tests
