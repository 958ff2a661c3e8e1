//! Decoders with their caches: tokens step by step against whole sequences from scratch.

mod cases; // the models, planned and grown
mod made; // weights for configurations
mod scratch; // what comes next, without a cache
mod whole; // tokens and logits against those
pub(crate) mod gpu; // the same on a GPU that is not there
mod files; // plans of generation as files, and with faults
mod wrong; // what users do wrong, and what works by the command line
mod fitted; // both steps in little memory
mod windows; // layers that see a window
mod ring; // steps that write in place against those that move up
