//! Tests of the way from end to end.

mod world; // random sides, and what their devices hold
mod brought; // what is received is what is needed
mod once; // what enters nodes, and how often
mod adapters; // nodes that have several adapters
mod schedules; // schedules against every order and every choice
mod clock; // what messages take
mod published; // the cases of the paper's artifact
mod refusals; // what is refused
