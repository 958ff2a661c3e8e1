//! Tests of the way from end to end.

#[path = "../../../tests/outside.rs"]
#[expect(dead_code, reason = "models are for other packages")]
mod outside; // what may lie outside the repository
mod world; // random sides, and what their devices hold
mod brought; // what is received is what is needed
mod once; // what enters nodes, and how often
mod adapters; // nodes that have several adapters
mod schedules; // schedules against every order and every choice
mod clock; // what messages take
mod published; // the cases of the paper's artifact
mod refusals; // what is refused
