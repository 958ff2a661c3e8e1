//! Tests of raising.

mod evaluate; // graphs computed with the kernels
mod models; // real models
