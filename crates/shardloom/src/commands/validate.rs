//! `validate`: prices beside published measurements.

mod ops; // measured operations
mod plans; // stated setups as pinned plans

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use files::Failure;
use files::{readable, written};
use predict::errors::{self, Errors, Source};
use predict::rows::{self, Answer, Kind, Outcome};
use predict::table::TableError;
use serde_json::{Value, json};
use validate::page::skipped;
use validate::{goals, page};

use super::{Context, Said};
use crate::arguments::ValidateArguments;

/// How many of the worst rows are shown.
const WORST: usize = 10;

/// Prices every row of every file.
pub(crate) fn validate(
    arguments: &ValidateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    if let Some(report) = &arguments.report {
        written::possible(report)?;
    }
    if arguments.local {
        let ValidateArguments { machine, ledger, steps, rounds, .. } = arguments.clone();
        let report = bench::local(&bench::Local { machine, ledger, steps, rounds }, &|what| {
            context.progress.say(what)
        })?;
        return Ok(Said { text: report.text, json: Value::Array(report.lines) });
    }
    if let Some(folder) = &arguments.ops {
        return ops::ops(folder, arguments, context);
    }
    if arguments.plans {
        return plans::plans(arguments, context);
    }
    let files = files(&arguments.data)?;
    let (kinds, mut outcomes, mut unknown) = (rows::kinds(), Vec::new(), Vec::new());
    for path in &files {
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let Some(kind) = kinds.iter().find(|kind| kind.file() == name) else {
            unknown.push(name.to_owned());
            continue;
        };
        context.progress.say(format!("pricing {name}"));
        outcomes.extend(priced(kind.as_ref(), path)?);
    }
    if let Some(report) = &arguments.report {
        written_page(report, &outcomes)?;
    }
    let mut lines: Vec<Value> = outcomes.iter().map(line).collect();
    lines.extend(unknown.iter().map(|name| json!({ "file": name, "skipped": UNKNOWN })));
    let mut text = shown(&outcomes);
    for name in &unknown {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {UNKNOWN}");
    }
    Ok(Said { text, json: Value::Array(lines) })
}

const UNKNOWN: &str = "not a kind of file that has prices";

/// The CSV files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    files_ending(folder, &[".csv"])
}

/// The files of a folder whose names end so, by name.
fn files_ending(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::file(folder, format!("cannot be read: {error}"));
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|it| it.path()));
    let mut files: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(failed)?;
    let named = |path: &Path| path.file_name().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
    files.retain(|path| endings.iter().any(|it| named(path).ends_with(it)) && path.is_file());
    files.sort_unstable();
    if files.is_empty() {
        return Err(Failure::file(folder, "no CSV files"));
    }
    Ok(files)
}

fn priced(kind: &dyn Kind, path: &Path) -> Result<Vec<Outcome>, Failure> {
    let text = readable::text(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    rows::outcomes(kind, &text).map_err(|error| refused(folder, &error))
}

/// Why a file of a folder has no prices: the error begins with its name.
fn refused(folder: &Path, error: &TableError) -> Failure {
    Failure::Input(folder.join(error.to_string()).display().to_string())
}

/// A row as programs read it.
fn line(outcome: &Outcome) -> Value {
    let Outcome { file, row_id, source, answer } = outcome;
    let mut line = match answer {
        Answer::Priced(row) => {
            json!({ "predicted": row.predicted, "measured": row.measured, "fits": row.fits })
        }
        Answer::Failed(row) => json!({ "skipped": row.why, "predicted": row.predicted, "fits": row.fits }),
        Answer::Skipped(why) => json!({ "skipped": why }),
    };
    line["file"] = json!(file);
    line["row_id"] = json!(row_id);
    line["source"] = json!(source);
    line
}

/// Errors by source, the worst rows, and what has no price.
fn shown(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut file = String::new();
    for source in errors::sources(outcomes) {
        if source.file != file {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:<46}   rows  median   mean   worst    bias  order", source.file);
            file.clone_from(&source.file);
        }
        text.push_str(&source_line(&source));
    }
    text.push_str(&verdicts(outcomes));
    text.push_str(&worst(outcomes));
    for (why, count) in skipped(outcomes) {
        let _ = writeln!(text, "skipped {count:>4}  {why}");
    }
    text
}

fn source_line(source: &Source) -> String {
    let Source { name, apart, errors, sweeps, .. } = source;
    let name = if apart.is_some() { format!("{name} (apart)") } else { name.clone() };
    let Errors { rows, median, mean, worst, bias } = errors;
    let order = sweeps.iter().map(|(_, order)| *order).reduce(f64::min);
    let order = order.map_or_else(String::new, |order| format!("{order:>6.3}"));
    format!(
        "  {name:<44} {rows:>6} {:>6.1}% {:>5.1}% {:>6.1}% {:>+6.1}% {order}\n",
        100.0 * median,
        100.0 * mean,
        100.0 * worst,
        100.0 * bias
    )
}

/// How many setups that ran are called impossible, and how many of those that failed.
fn verdicts(outcomes: &[Outcome]) -> String {
    let [(impossible, ran), (refused, failed)] = goals::verdicts(outcomes);
    format!(
        "memory: of {ran} rows that ran {impossible} are called impossible, of {failed} that failed {refused}\n"
    )
}

fn worst(outcomes: &[Outcome]) -> String {
    let mut rows: Vec<_> = errors::priced(outcomes).filter(|(_, row)| row.apart.is_none()).collect();
    rows.sort_by(|a, b| b.1.error().total_cmp(&a.1.error()));
    let mut text = "worst rows\n".to_owned();
    for (outcome, row) in rows.into_iter().take(WORST) {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  {:<8} {:<28} predicted {:>12.5}, measured {:>12.5}: {:+.1} %",
            outcome.row_id,
            outcome.source,
            row.predicted,
            row.measured,
            100.0 * (row.predicted / row.measured - 1.0)
        );
    }
    text
}

fn written_page(report: &Path, outcomes: &[Outcome]) -> Result<(), Failure> {
    let folder = report.parent().unwrap_or(Path::new(".")).join("images");
    let page = page::page(outcomes);
    written::write(report, page.text.as_bytes())?;
    for (name, picture) in &page.pictures {
        written::write(&folder.join(name), picture.as_bytes())?;
    }
    Ok(())
}
