//! From a model to a plan, from a plan to programs, from programs to tokens: the compiler as a library.
//!
//! A plan of a model for two threads of this host:
//!
//! ```
//! use driver::compile::{self, Bound, Use, Wanted};
//! use driver::{Nobody, machine, pipeline};
//!
//! # fn main() -> Result<(), driver::Failure> {
//! let model = ("../../tests/models/gpt2-eager-legacy2.9-op17-static/model.onnx".as_ref(), Use::Forward);
//! let imported = compile::imported(model, &Bound::default(), None, &mut |_, _| {}, &Nobody)?;
//! let prepared = pipeline::prepare(&imported.graph, &mut |_, _| {})?;
//! let machine = machine::named("cpu-2x", None)?;
//! let (wanted, observe) = (Wanted::default(), &mut |_, _: &dyn std::fmt::Display| {});
//! let chosen = compile::planned(&prepared, &imported, &machine, &wanted, observe, &Nobody)?;
//! assert!(chosen.plan.seconds() > 0.0);
//! println!("{}", plan::json::write(&chosen.plan));
//!
//! // And what the two compute of inputs from a seed.
//! let programs = pipeline::lower(&chosen.plan, &mut |_, _| {})?;
//! let session = run::Session::new(programs, &imported.file);
//! let inputs = files::inputs::made(&chosen.plan.graph, 0);
//! let outputs = session.and_then(|mut it| it.step(&inputs)).expect("two threads").outputs;
//! assert_eq!(outputs["logits"].shape(), [2, 16, 211]);
//! # Ok(())
//! # }
//! ```
//!
//! - [`pipeline`] — the stages in order, each verified: import, raise, train, plan, lower
//! - [`compile`] — a model file and sizes to a plan, on the best of several meshes
//! - [`derived`] — how the program of a plan comes about: from its model again
//! - [`evaluated`] — what a plan computes, on its ranks, on one rank, and as its model says
//! - [`expected`] — outputs beside those that the file of the inputs has
//! - [`generation`] — decoders that make tokens
//! - [`pinned`] — a plan that is what a strategy says
//! - [`projected`] — what a plan costs as another runtime runs it
//! - [`stated`] — a stated setup as a pinned plan
//! - [`ways`] — the meshes that are tried for a plan
//! - [`training`] — a plan and data to trained weights
//!
//! Whatever goes wrong is a [`Failure`].

pub mod compile;
pub mod derived;
pub mod evaluated;
pub mod expected;
pub mod generation;
pub mod pinned;
pub mod pipeline;
pub mod projected;
pub mod stated;
pub mod training;
pub mod ways;

pub use files::{Failure, machine};
pub use launch::{Listener, Nobody};
