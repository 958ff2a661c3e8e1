//! The tests of the whole project, in one binary.

mod small_world; // the verifier of layouts against arithmetic
