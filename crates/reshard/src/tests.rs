//! Tests of the way from end to end.

mod world; // random sides, and what their devices hold
mod brought; // what is received is what is needed
