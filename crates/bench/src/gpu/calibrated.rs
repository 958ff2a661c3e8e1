//! The machine whose prices are beside what is measured: that of a file, or the numbers that explain what this
//! GPU takes for single things.

use calibrate::gpu::{Care, Measured, fitted};
use calibrate::host;
use cost_models::machine::{Machine, json};
use device::Facts;
use files::Failure;
use files::written;

use super::rates::Rate;
use super::{Given, Row, Section};

const SECTION: Section = Section {
    name: "prices of this GPU",
    beside: "what the machine states that they start from; the numbers found explain the rates best, and price the \
             steps",
};

/// What plans call the machine that is fitted.
const NAME: &str = "this-gpu";

/// The machine that explains the times, if one does, and a row for each of its numbers that they say; written to
/// a file if one is asked for.
pub(super) fn machine(
    given: &Given<'_>,
    facts: &Facts,
    identity: &str,
    rates: &[Rate],
) -> (Option<Machine>, Vec<Row>) {
    match explaining(given, facts, identity, rates) {
        Ok((machine, rows)) => (Some(machine), rows),
        Err(error) => (None, vec![Row::new(&SECTION, "a machine that explains the rates").failed(error)]),
    }
}

fn explaining(
    given: &Given<'_>,
    facts: &Facts,
    identity: &str,
    rates: &[Rate],
) -> Result<(Machine, Vec<Row>), Failure> {
    (given.say)("seeking numbers that explain the times".into());
    let times = rates.iter().filter_map(|it| {
        let sample = it.sample.as_ref().ok()?;
        Some((it.timed.clone(), sample.seconds))
    });
    let measured = Measured { rows: times.collect(), care: Care::default() };
    let source = format!("measured by `{}` on {identity}, {}", given.command, host::date());
    let found = fitted(NAME, &given.machine, facts, &measured, &source)?;
    if let Some(path) = &given.options.calibrated {
        written::write(path, json::write(&found.machine).as_bytes())?;
    }
    let rows = found.numbers.iter().map(|(field, stated, found)| {
        Row::new(&SECTION, field.clone()).with("stated", format!("{stated:.4e}"), *stated).with(
            "found",
            format!("{found:.4e}"),
            *found,
        )
    });
    let rows = rows.collect();
    Ok((found.machine, rows))
}
