//! The kinds of CSV files that can be priced, and what comes of their rows.
//!
//! A kind of file is a file name, the columns that it must have, and a function from a row to a
//! price. Every row of a file has one outcome: a prediction beside what was measured, both in the
//! row's own unit, or why there is none.

/// A row as setups on a cluster.
pub mod case;

/// Times of training steps.
pub mod training;

/// Peaks of memory.
pub mod memory;

/// Bubbles of pipelines.
pub mod bubbles;

/// Times of layers.
pub mod layers;

/// Times of answers.
pub mod inference;

/// Times of matrix products.
pub mod products;

/// Times of collective operations.
pub mod collectives;

use crate::table::{Row, Table, TableError};

/// A kind of CSV file.
pub trait Kind {
    /// The name of the file.
    fn file(&self) -> &'static str;

    /// The columns without which it is not of this kind.
    fn columns(&self) -> &'static [&'static str];

    /// What a row says and what we say; an error if a field is not what its column holds.
    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError>;
}

/// What comes of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It has a price.
    Priced(Priced),
    /// A run that did not end for want of memory; what we say it needs.
    Failed(Failed),
    /// It has none, and why.
    Skipped(String),
}

/// A run for which there was not enough memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// What a rank needs, in the unit of the row's file.
    pub predicted: f64,
    /// Whether we say that it fits all the same.
    pub fits: bool,
    /// The same in words.
    pub why: String,
}

/// A price beside a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// What we say, in the unit of what was measured.
    pub predicted: f64,
    /// What was measured.
    pub measured: f64,
    /// Whether we say that what ranks hold fits their memory; `None` where nothing says.
    pub fits: Option<bool>,
    /// The sweep that it is part of: rows that differ in configuration only.
    pub sweep: Option<String>,
    /// Why it is reported apart and counts for no goal; `None` if it counts.
    pub apart: Option<String>,
    /// What is exchanged, of rows of collective operations.
    pub exchange: Option<Exchange>,
}

/// What ranks exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The size by which it is priced (bytes).
    pub bytes: u64,
    /// Besides the size, everything that decides its time: the machine, the operation, who takes part.
    /// `None` where no time was measured, but a rate.
    pub curve: Option<String>,
}

/// What comes of a row, and which row it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The file.
    pub file: String,
    /// Its id, or `line N` if its file has none.
    pub row_id: String,
    /// Who published it.
    pub source: String,
    /// What comes of it.
    pub answer: Answer,
}

impl Priced {
    /// A price that counts, in no sweep.
    #[must_use]
    pub fn new(predicted: f64, measured: f64) -> Self {
        Self { predicted, measured, fits: None, sweep: None, apart: None, exchange: None }
    }

    /// The error, relative to what was measured.
    #[must_use]
    pub fn error(&self) -> f64 {
        if self.predicted.total_cmp(&self.measured).is_eq() {
            return 0.0;
        }
        (self.predicted - self.measured).abs() / self.measured.abs()
    }
}

/// Every kind, in the order in which they are reported.
#[must_use]
pub fn kinds() -> Vec<Box<dyn Kind>> {
    vec![
        Box::new(training::Training),
        Box::new(memory::MemoryRows),
        Box::new(bubbles::Bubbles),
        Box::new(layers::Layers),
        Box::new(inference::Inference),
        Box::new(products::Products),
        Box::new(collectives::Collectives),
    ]
}

/// What comes of every row of a file of a kind, in order.
pub fn outcomes(kind: &dyn Kind, text: &str) -> Result<Vec<Outcome>, TableError> {
    let table = Table::read(kind.file(), text, kind.columns())?;
    let outcome = |row: Row<'_>| {
        let id = row.text("row_id");
        let row_id = if id.is_empty() { format!("line {}", row.line()) } else { id.to_owned() };
        let source = row.text("source");
        let source = if source.is_empty() { row.text("table") } else { source };
        // A field that is not what it should be costs its row alone.
        let answer = kind.price(&row).unwrap_or_else(|error| Answer::Skipped(error.to_string()));
        let answer = comparable(answer);
        Ok(Outcome { file: kind.file().to_owned(), row_id, source: source.to_owned(), answer })
    };
    table.rows().map(outcome).collect()
}

/// The same where numbers can be held against each other: a row may state that nothing is done, or
/// that it took nothing.
fn comparable(answer: Answer) -> Answer {
    let Answer::Priced(Priced { predicted, measured, .. }) = answer else { return answer };
    let is_nothing = |number: f64| !number.is_finite() || number <= 0.0;
    match (is_nothing(predicted), is_nothing(measured)) {
        // A pipeline of one stage has no bubble.
        (true, true) if predicted.total_cmp(&measured).is_eq() => answer,
        (_, true) => Answer::Skipped(format!("{measured} was measured, expected more than nothing")),
        (true, _) => Answer::Skipped(format!("the price of what is stated is {predicted}")),
        (false, false) => answer,
    }
}

#[cfg(test)]
mod tests;
