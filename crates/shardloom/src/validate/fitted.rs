//! Figures of frameworks, fitted to half of the training rows; errors of both halves.

use std::fmt::Write as _;
use std::path::PathBuf;

use predict::fit::{self, Half, Measured};
use predict::rows::case::Case;
use predict::table::Table;
use serde_json::json;

use crate::commands::Said;
use crate::failure::Failure;

/// Fits, and says what became of the figures: those that are to be written into their files.
pub(crate) fn fitted(files: &[PathBuf]) -> Result<Said, Failure> {
    const FILE: &str = "training_throughput.csv";
    let path = files.iter().find(|path| path.ends_with(FILE));
    let path =
        path.ok_or_else(|| Failure::Usage(format!("no {FILE} in the folder, expected one to fit to")))?;
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::file(path, format!("cannot be read: {error}")))?;
    let table = Table::read(FILE, &text, &[]).map_err(|error| Failure::Input(error.to_string()))?;
    let mut rows = Vec::new();
    for row in table.rows().filter(|row| fit::half(row.text("row_id")) == Half::Fitted) {
        let time = row.number("step_time_s").ok().flatten().filter(|it| it.is_finite() && *it > 0.0);
        let weight = fit::weight(&row);
        if let (Some(time), Some(weight), Ok(case)) = (time, weight, Case::of(&row)) {
            rows.push(Measured { case, time, weight });
        }
    }
    let (figures, [before, after]) = fit::fit(&rows);
    let mut text = format!("{} rows: mean |ln(predicted/measured)| {before:.4} -> {after:.4}\n", rows.len());
    for it in &figures {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  {:<14} {:<20} {:.4e} -> {:.4e}",
            it.file,
            it.figure.name(),
            it.before,
            it.after
        );
    }
    let list = figures.iter().map(
        |it| json!({ "file": it.file, "figure": it.figure.name(), "before": it.before, "after": it.after }),
    );
    let json = json!([{ "rows": rows.len(), "before": before, "after": after, "figures": list.collect::<Vec<_>>() }]);
    Ok(Said { text, json })
}
