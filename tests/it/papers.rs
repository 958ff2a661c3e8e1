//! Partitions in time against the papers that they come from.

mod figure9; // the kernels of PrimePar's Fig. 9
pub(crate) mod graph; // training steps of the papers' layers
mod layers; // plans of OPT layers, and the ledger of them
mod page; // the page that says how results are met
mod machines; // the papers' machines
mod restricted; // the search over parts of its space
mod rtp; // what the logs of RTP measured
mod space; // PrimePar's space of partitions
