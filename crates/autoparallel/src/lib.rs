//! The whole cluster: which plan is the cheapest for a program, its blocks, its stages and its meshes.
//!
//! A program is [`Prepared`] for a [`Target`]. Each of its blocks is one of several [`Variants`]; a training step
//! may be cut into stages, on meshes that may differ.
//!
//! - [`choice`] — the cheapest plan among variants
//! - [`staged`] — a training step in stages
//! - [`cluster`] — which stages, on which meshes, by which schedule
//! - [`otherwise`] — what other plans would cost
//! - [`limits`] — what another runtime runs
//! - [`serving`] — what a server of a model runs
//! - [`mesh`] — the meshes that are tried
//! - [`parameters`] — which weights of a model are parameters

pub mod choice;
pub mod cluster;
mod keeping; // what keeping less is weighed by
pub mod limits;
pub mod mesh;
pub mod otherwise;
pub mod parameters;
mod pins; // how operations are computed that a user has fixed
pub mod prepared;
mod rows; // whether splitting the rows of norms may gain anything
pub mod serving;
pub mod staged;
pub mod target;
pub mod variants;

pub use prepared::Prepared;
pub use target::Target;
pub use variants::{Training, Variants};
