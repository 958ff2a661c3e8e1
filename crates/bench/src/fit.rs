//! `bench fit`: the fitted numbers of machines and frameworks, fitted again to published rows.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use files::readable;
use files::{Failure, Say};
use predict::fit::constants::{self, FITS, Refit};
use predict::fit::{self, Half, Measured};
use predict::rows::case::Case;
use predict::table::Table;
use serde_json::{Value, json};

use super::Report;

/// `bench fit`.
#[derive(Args, Clone, Debug)]
pub struct Fit {
    /// The folder of CSV files
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Append what is found to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// The rows of training steps.
const STEPS: &str = "training_throughput.csv";

/// Fits, and says what became of the numbers. The files that state them stay as they are.
pub(crate) fn measure(options: &Fit, say: &Say<'_>) -> Result<Report, Failure> {
    let mut text = String::new();
    let mut lines = Vec::new();
    for fit in &FITS {
        let Some(table) = table(&options.data, fit.what.file())? else { continue };
        say(format!("{} of {}", fit.what.name(), fit.machine).into());
        if let Some(refit) = constants::refit(fit, &table) {
            let what = format!("{} of {}", fit.what.name(), fit.machine);
            text.push_str(&shown(&what, &refit));
            lines.push(line(&what, fit.sources, &refit));
        }
    }
    if let Some(table) = table(&options.data, STEPS)? {
        say("figures of frameworks".into());
        let refit = frameworks(&table);
        let what = "figures of frameworks";
        text.push_str(&shown(what, &refit));
        lines.push(line(what, &[STEPS], &refit));
    }
    if lines.is_empty() {
        return Err(Failure::file(&options.data, "no rows that numbers were fitted to"));
    }
    Ok(Report { text, lines })
}

/// A file of the folder, if it is there.
fn table(folder: &Path, name: &str) -> Result<Option<Table>, Failure> {
    let path = folder.join(name);
    let text = match readable::text_if_there(&path)? {
        Some(text) => text,
        None if folder.is_dir() => return Ok(None),
        None => return Err(Failure::file(folder, "cannot be read: is no folder")),
    };
    let table = Table::read(name, &text, &[]).map_err(|error| Failure::Input(error.to_string()))?;
    Ok(Some(table))
}

/// The figures of frameworks, fitted to training steps.
fn frameworks(table: &Table) -> Refit {
    let mut halves = [Vec::new(), Vec::new()];
    for row in table.rows() {
        let time = row.number("step_time_s").ok().flatten().filter(|it| it.is_finite() && *it > 0.0);
        if let (Some(time), Some(weight), Ok(case)) = (time, fit::weight(&row), Case::of(&row)) {
            let half = usize::from(fit::half(row.text("row_id")) == Half::Judging);
            halves[half].push(Measured { case, time, weight });
        }
    }
    let (figures, _) = fit::fit(&halves[0]);
    let stated = [0, 1].map(|half: usize| fit::mean_error(&halves[half], &[]));
    let found = [0, 1].map(|half: usize| fit::mean_error(&halves[half], &figures));
    let numbers =
        figures.into_iter().map(|it| (format!("{}.{}", it.file, it.figure.name()), it.before, it.after));
    Refit { rows: [halves[0].len(), halves[1].len()], numbers: numbers.collect(), stated, found }
}

fn shown(what: &str, refit: &Refit) -> String {
    let Refit { rows, numbers, stated, found } = refit;
    let part = |errors: &[f64; 2]| format!("{:.1} % and {:.1} %", 100.0 * errors[0], 100.0 * errors[1]);
    let mut text = format!(
        "{what}: {} numbers on {} rows, judged on {}; off by {} as stated, {} as found now\n",
        numbers.len(),
        rows[0],
        rows[1],
        part(stated),
        part(found)
    );
    for (name, before, after) in numbers {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<40} {before:>12.4e} -> {after:>12.4e}");
    }
    text
}

fn line(what: &str, sources: &[&str], refit: &Refit) -> Value {
    let numbers = refit
        .numbers
        .iter()
        .map(|(name, stated, found)| json!({ "name": name, "stated": stated, "found": found }));
    json!({
        "benchmark": "fit",
        "what": what,
        "sources": sources,
        "rows": { "fitted": refit.rows[0], "others": refit.rows[1] },
        "mean_absolute_error": {
            "stated": { "fitted": refit.stated[0], "others": refit.stated[1] },
            "found": { "fitted": refit.found[0], "others": refit.found[1] },
        },
        "numbers": numbers.collect::<Vec<Value>>(),
    })
}
