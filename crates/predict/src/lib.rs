//! What a stated training setup takes, and how far that is from what was measured.
//!
//! - [`model`] — the shape of a transformer
//! - [`setup`] — a training run as somebody states it
//! - [`framework`] — what training frameworks add to a machine's prices
//! - [`chip`] — what is stated of a device in place of its data sheet
//! - [`cluster`] — the machine that a setup runs on, and the groups of ranks in it
//! - [`pieces`] — times of what layers are made of
//! - [`attention`] — the core of attention
//! - [`experts`] — tokens and traffic of a layer's experts
//! - [`graphs`] — what runs as graphs of kernels, and what a host still starts one by one
//! - [`layer`] — the time of a layer and of the ends of a model
//! - [`schedule`] — the pipelines of setups, as schedules that have names
//! - [`step`] — the time of a step, as a sum of named terms
//! - [`memory`] — what a rank holds
//! - [`kinds`] — time and memory of a setup on several kinds of nodes
//! - [`inference`] — the time to answer
//! - [`shapes`] — shapes of published models
//! - [`config`] — a setup as a configuration file states it
//! - [`table`] — a CSV file as rows of named fields, with everything that can be wrong with one
//! - [`device`] — the machine that a row of measurements names
//! - [`stated`] — what a row states, as a setup
//! - [`rows`] — the kinds of CSV files that can be priced, and what comes of their rows
//! - [`fit`] — figures of frameworks, fitted to measured steps
//! - [`errors`] — how far predictions are from measurements
//! - [`bands`] — the same of what ranks exchange, by its size

pub mod model;

pub mod setup;

pub mod framework;

pub mod chip;

pub mod cluster;

pub mod pieces;

pub mod attention;

pub mod experts;

pub mod graphs;

pub mod layer;

pub mod schedule;

pub mod step;

pub mod memory;

pub mod kinds;

pub mod inference;

pub mod shapes;

pub mod config;

pub mod table;

pub mod device;

pub mod stated;

pub mod rows;

pub mod fit;

pub mod errors;

pub mod bands;
