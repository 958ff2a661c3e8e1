//! What a stated training setup takes, and how far that is from what was measured.
//!
//! - [`table`] — a CSV file as rows of named fields, with everything that can be wrong with one
//! - [`device`] — the machine that a row of measurements names
//! - [`rows`] — the kinds of CSV files that can be priced, and what comes of their rows

pub mod table;

pub mod device;

pub mod rows;
