//! Times and numbers beside those of the file that was started from.

use std::fmt::Write as _;

use cost_models::machine::Machine;
use cost_models::quantity;
use cost_models::units::exact;
use device::Facts;

use super::{Care, Fitted, Measured};

/// What was measured, in tables: of each time what the numbers say of it and what the file that they start
/// from says; of each number both.
pub fn shown(facts: &Facts, like: &Machine, measured: &Measured, fitted: &Fitted) -> String {
    let mut text = device(facts);
    // Writing to a string does not fail.
    let _ = writeln!(text, "started from {}\n", like.name);
    let rows = measured.rows.iter().map(|(timed, seconds)| {
        let by = [&fitted.machine, like].map(|it| timed.priced(it));
        Beside { name: &timed.name, seconds: *seconds, by }
    });
    times(&mut text, &like.name, &rows.collect::<Vec<_>>());
    rest(&mut text, &like.name, fitted, &measured.care);
    text
}

/// The same of what GPUs exchange: times, beside what the numbers say of them and what the file says that
/// they start from.
pub fn shown_links(rows: &[Beside], like: &str, fitted: &Fitted, care: &Care) -> String {
    let mut text = String::from("exchanges\n\n");
    times(&mut text, like, rows);
    rest(&mut text, like, fitted, care);
    text
}

/// A time.
pub struct Beside<'a> {
    /// Of what.
    pub name: &'a str,
    /// How long it took (seconds).
    pub seconds: f64,
    /// How long it takes by the numbers found, and by those of the file that was started from.
    pub by: [Option<f64>; 2],
}

fn rest(text: &mut String, like: &str, fitted: &Fitted, care: &Care) {
    numbers(text, like, fitted);
    let [all, refused] = care.times;
    if let Some((name, spread)) = &care.widest {
        let _ = writeln!(
            text,
            "{all} times were measured now, {refused} of them did not count; half of those that did lie within \
             {:.1} % or less ({name})",
            100.0 * spread
        );
    }
    for field in &fitted.full {
        let _ = writeln!(text, "`{field}` is 1: the peak that {like} states is too low for this GPU");
    }
}

fn device(facts: &Facts) -> String {
    let Facts { name, capability: (major, minor), processors, memory, cache, clocks, bus, driver, .. } =
        facts;
    // Memory hands over twice in a period.
    let rate = 2.0 * f64::from(clocks[1]) * 1e3 * f64::from(*bus) / 8.0;
    format!(
        "{name}: compute capability {major}.{minor}, {processors} multiprocessors at {:.2} GHz at most, {} of \
         memory (by its clock {:.0} GB/s), {} of cache, driver of CUDA {}.{}\n",
        f64::from(clocks[0]) / 1e6,
        quantity::bytes(*memory),
        rate / 1e9,
        quantity::bytes(u64::from(*cache)),
        driver / 1000,
        driver % 1000 / 10
    )
}

fn times(text: &mut String, like: &str, rows: &[Beside]) {
    let longest = rows.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let stated = format!("by {like}");
    let _ =
        writeln!(text, "{:<longest$} {:>12} {:>12} {:>8} {stated:>22}", "time", "measured", "by the fit", "");
    let (mut off, mut count) = ([0.0, 0.0], 0_u64);
    for Beside { name, seconds, by } in rows {
        let _ = write!(text, "{name:<longest$} {:>12}", quantity::seconds(*seconds));
        if let [Some(found), Some(before)] = *by {
            let parts = [found, before].map(|it| it / seconds - 1.0);
            off = [off[0] + parts[0].abs(), off[1] + parts[1].abs()];
            count += 1;
            let columns = [found, before].map(quantity::seconds);
            let _ = write!(
                text,
                " {:>12} {:>+6.1} % {:>13} {:>+6.1} %",
                columns[0],
                100.0 * parts[0],
                columns[1],
                100.0 * parts[1]
            );
        }
        text.push('\n');
    }
    let mean = off.map(|it| 100.0 * it / exact(count.max(1)));
    let _ = writeln!(text, "off by {:.1} % on average, {:.1} % {stated}\n", mean[0], mean[1]);
}

fn numbers(text: &mut String, like: &str, fitted: &Fitted) {
    let longest = fitted.numbers.iter().map(|it| it.0.len()).max().unwrap_or(0);
    let _ = writeln!(text, "{:<longest$} {:>14} {:>14}", "number", like, "measured");
    for (field, before, found) in &fitted.numbers {
        let _ = writeln!(text, "{field:<longest$} {before:>14.5e} {found:>14.5e}");
    }
    text.push('\n');
}
