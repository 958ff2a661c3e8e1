//! Tests of arguments.

mod pages; // what the pages about launchers have
mod words; // what `--help` says
