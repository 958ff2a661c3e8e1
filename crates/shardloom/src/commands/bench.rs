//! `bench`: what the program takes, measured.

use ::bench::Benchmark;
use files::Failure;

use super::{Context, Said};

/// Measures.
pub(crate) fn bench(benchmark: &Benchmark, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let report = ::bench::run(benchmark, &|what| context.progress.say(what))?;
    Ok(Said { text: report.text, json: report.lines.into() })
}

#[cfg(test)]
mod tests;
