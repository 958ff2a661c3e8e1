//! What `compute-sanitizer` finds in this program's own kernels: the parts of this command that compare are run
//! again under each of its tools.

use std::process::Command;
use std::time::Duration;

use super::goal::Bound;
use super::{Given, OnGpu, Part, Row, Section};
use crate::child::{self, Ended};

const SECTION: Section = Section {
    name: "faults that compute-sanitizer finds",
    beside: "nothing: the parts equal and ranks, quick, under each of its tools",
};

/// Its tools: accesses out of bounds, races in shared memory, reads of what was never written, barriers that not
/// all threads reach.
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// Where it is looked for.
const PLACES: [&str; 2] = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"];

/// How long a tool may take: each access of each kernel is looked at.
const LIMIT: Duration = Duration::from_secs(2400);

/// How long it may take to say its version.
const AT_ONCE: Duration = Duration::from_secs(60);

/// A row for each tool; one that says so where it is not there.
pub(super) fn rows(given: &Given<'_>) -> Vec<Row> {
    let places = match &given.options.sanitizer {
        Some(place) => vec![place.as_str()],
        None => PLACES.to_vec(),
    };
    let Some((program, version)) = found(&places) else {
        let tried = places.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(" and ");
        return vec![
            Row::new(&SECTION, "compute-sanitizer").left_out(format!("{tried}: none can be started")),
        ];
    };
    let rows = TOOLS.map(|tool| {
        (given.say)(format!("{tool} of compute-sanitizer").into());
        row(given.options, program, tool).with("version", version.clone(), version.clone())
    });
    rows.into()
}

/// The first program of these that can be started, and what it says of its version.
fn found<'a>(places: &[&'a str]) -> Option<(&'a str, String)> {
    places.iter().find_map(|place| {
        let ended = child::run(Command::new(place).arg("--version"), AT_ONCE).ok()?;
        let last = ended.out.trim().lines().last().unwrap_or("unknown").to_owned();
        ended.status.success().then_some((*place, last))
    })
}

fn row(options: &OnGpu, program: &str, tool: &str) -> Row {
    let row = Row::new(&SECTION, tool);
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return row.left_out(format!("this program is not found: {error}")),
    };
    let compared = OnGpu {
        only: vec![Part::Equal, Part::Ranks],
        quick: true,
        models: None,
        sanitizer: None,
        ledger: None,
        calibrated: None,
        ..options.clone()
    };
    let mut command = Command::new(program);
    command.args(["--tool", tool, "--print-limit", "20"]).arg(own).args(compared.arguments());
    match child::run(&mut command, LIMIT) {
        Ok(ended) => judged(row, &ended),
        Err(why) => row.left_out(why),
    }
}

/// A row with what a tool found.
fn judged(row: Row, ended: &Ended) -> Row {
    match faults(&ended.out) {
        None => row.failed(format!("it says no summary: {}", ended.why())),
        // What ran under it found a fault itself.
        Some(0) if !ended.status.success() => row.failed(ended.why()),
        Some(count) => {
            let found = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            let row = row.faults(count).wanting("faults", found, Bound::Most(0.0));
            match first(&ended.out).filter(|_| count > 0) {
                Some(line) => row.with("first", line.clone(), line),
                None => row,
            }
        }
    }
}

/// What begins the lines of a tool.
const MARK: &str = "=========";

/// How many faults its summaries count; none if there is no summary.
///
/// Source: NVIDIA, Compute Sanitizer User Manual: `ERROR SUMMARY: 3 errors`, and of racecheck `RACECHECK SUMMARY:
/// 2 hazards displayed (1 error, 1 warning)`.
fn faults(text: &str) -> Option<u64> {
    let summaries = text.lines().filter_map(|line| {
        let said = line.strip_prefix(MARK)?.trim();
        let counted =
            said.strip_prefix("ERROR SUMMARY:").or_else(|| said.strip_prefix("RACECHECK SUMMARY:"))?;
        counted.split_whitespace().next()?.parse::<u64>().ok()
    });
    summaries.fold(None, |sum, count| Some(sum.unwrap_or(0) + count))
}

/// What it says first of a fault.
fn first(text: &str) -> Option<String> {
    let mut said = text.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::trim);
    said.find(|it| !it.is_empty() && !it.starts_with("COMPUTE-SANITIZER")).map(str::to_owned)
}

#[cfg(test)]
mod tests;
