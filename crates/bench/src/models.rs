//! The models that benchmarks write are understood, and computed.

mod llama; // as a sequence, and token by token
mod unet; // in stages, on ranks
