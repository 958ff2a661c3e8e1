//! Where ranks run: on threads of this process, as processes that a launcher has started, on GPUs.
//!
//! - [`arguments`] — what commands are told of it
//! - [`contract`], [`nodes`] — what launchers say in the environment, of a process and of a host
//! - [`cluster`] — the processes of all ranks, which start together or not at all
//! - [`gpu`] — sessions of programs, on threads, on processes and on GPUs
//! - [`start`] — the ranks of this host, started and started again
//! - [`listener`] — who is told what is being done

pub mod arguments;
mod children; // processes that were started, until all have ended
pub mod cluster;
pub mod contract;
pub mod gpu;
mod hosts; // lists of hosts as Slurm writes them
mod leash; // the end of a process whose launcher has ended
pub mod listener;
pub mod nodes;
pub mod start;
mod token; // what only the ranks of a job know

pub use listener::{Listener, Nobody};
