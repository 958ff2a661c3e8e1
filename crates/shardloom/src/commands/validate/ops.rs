//! `validate --ops`: costs of single operations beside measured times.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use cost_models::machine::shipped;
use cost_models::operations::Law;
use files::{Failure, readable, written};
use serde_json::{Value, json};
use validate::ops::{self, Errors, Fit, Line, Machines, Priced};

use super::{Context, Said, UNKNOWN, files_ending, refused};
use crate::arguments::ValidateArguments;

/// The ledger of fits, as machine files cite it, and its name.
const LEDGER: &str = "docs/ledger/operation-fit.jsonl";
const LEDGER_NAME: &str = "operation-fit.jsonl";

/// How names of packed files end.
const PACKED: &str = ".csv.gz";

/// Prices every line of every file of a folder, or fits laws to them.
pub(super) fn ops(
    folder: &Path,
    arguments: &ValidateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let (mut lines, mut unknown) = (Vec::new(), Vec::new());
    for path in files_ending(folder, &[".csv", PACKED])? {
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        context.progress.say(format!("reading {name}"));
        match ops::lines(name, &text(&path)?).map_err(|error| refused(folder, &error))? {
            Some(more) => lines.extend(more),
            None => unknown.push(name.to_owned()),
        }
    }
    let machines = Machines::shipped();
    if let Some(to) = &arguments.fit {
        context.progress.say("fitting laws");
        return fitted(ops::fits(&lines, &machines, LEDGER), to);
    }
    context.progress.say("pricing operations");
    let price = |line: Line| {
        let answer = machines.price(&line);
        (line, answer)
    };
    let priced: Vec<(Line, Result<Priced, String>)> = lines.into_iter().map(price).collect();
    let groups = ops::groups(&priced);
    if let Some(report) = &arguments.report {
        written::write(report, ops::page(&groups).as_bytes())?;
    }
    let mut shown: Vec<Value> = priced.iter().map(|(line, answer)| object(line, answer)).collect();
    shown.extend(unknown.iter().map(|name| json!({ "file": name, "skipped": UNKNOWN })));
    let mut text = ops::table(&groups);
    for (why, count) in reasons(&priced) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "skipped {count:>6}  {why}");
    }
    for name in &unknown {
        let _ = writeln!(text, "{name}: {UNKNOWN}");
    }
    Ok(Said { text, json: Value::Array(shown) })
}

/// The text of a file, packed or not.
fn text(path: &Path) -> Result<String, Failure> {
    let bytes = readable::unpacked(path)?;
    String::from_utf8(bytes).map_err(|error| readable::failed(path, &std::io::Error::other(error)))
}

/// A line as programs read it.
fn object(line: &Line, answer: &Result<Priced, String>) -> Value {
    let Line { file, row, gpu, format, .. } = line;
    match answer {
        Ok(Priced { predicted, measured }) => json!({
            "file": file,
            "row": row,
            "gpu": gpu,
            "format": format,
            "predicted_ms": 1e3 * predicted,
            "measured_ms": 1e3 * measured,
        }),
        Err(why) => json!({ "file": file, "row": row, "gpu": gpu, "format": format, "skipped": why }),
    }
}

/// Why lines have no price, and how many.
fn reasons(priced: &[(Line, Result<Priced, String>)]) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for why in priced.iter().filter_map(|(_, answer)| answer.as_ref().err()) {
        *reasons.entry(why.as_str()).or_default() += 1;
    }
    reasons
}

/// Writes machine files with these laws, and a ledger of how near they are.
fn fitted(fits: Vec<Fit>, to: &Path) -> Result<Said, Failure> {
    let (mut text, mut ledger, mut shown) = (String::new(), String::new(), Vec::new());
    let mut laws: BTreeMap<&str, Vec<(String, Law)>> = BTreeMap::new();
    for Fit { gpu, name, line: number, law, fitted, judged } in fits {
        let Some(file) = Machines::file_of(&gpu) else { continue };
        let errors = |it: &Errors| json!({ "rows": it.rows, "median": it.median, "p90": it.tenth });
        let line = json!({
            "machine": file,
            "law": name,
            "data": "ai-dynamo/aiconfigurator at 095f58a: medians over frameworks and versions",
            "terms": law.terms.len(),
            "fitted": errors(&fitted),
            "judged": judged.as_ref().map(errors),
        });
        // Writing to a string does not fail.
        let _ = writeln!(ledger, "{{\"line\":{number},{}", &line.to_string()[1..]);
        let near = judged.unwrap_or(fitted);
        let _ = writeln!(
            text,
            "{file:<18} {name:<64} {:>6} {:>6.1} % {:>6.1} %",
            fitted.rows,
            100.0 * near.median,
            100.0 * near.tenth
        );
        shown.push(line);
        laws.entry(file).or_default().push((name, law));
    }
    std::fs::create_dir_all(to).map_err(|error| Failure::unwritten(to, &error))?;
    for (file, laws) in laws {
        let before = shipped::text(file).unwrap_or_default();
        let after = ops::with_laws(file, before, &laws).map_err(Failure::Input)?;
        written::write(&to.join(format!("{file}.json")), after.as_bytes())?;
    }
    written::write(&to.join(LEDGER_NAME), ledger.as_bytes())?;
    Ok(Said { text, json: Value::Array(shown) })
}
