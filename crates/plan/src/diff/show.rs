//! The text of a difference.

use std::fmt;

use super::{Change, Diff, Repeated};
use crate::words::bytes;

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [&self.operations, &self.values, &self.carried];
        let moved = lists.iter().any(|list| !list.is_empty()) || !self.transfers.is_empty();
        let bought = [&self.memory, &self.communication].iter().any(|list| !list.is_empty());
        if self.header.is_empty() && !moved && !bought && self.time.is_empty() {
            return f.write_str("the plans do not differ\n");
        }
        for Change { what, before, after } in &self.header {
            writeln!(f, "{what}: {before} -> {after}")?;
        }
        if moved {
            writeln!(f, "what moved")?;
        }
        for Repeated { count, change: Change { what, before, after } } in &self.operations {
            writeln!(f, "  {}{what}: {before} -> {after}", times(*count))?;
        }
        for Repeated { count, change: Change { what, before, after } } in &self.values {
            writeln!(f, "  {}{what} is held: {before} -> {after}", times(*count))?;
        }
        for Repeated { count, change: Change { what, before, after } } in &self.carried {
            writeln!(f, "  {}{what} is replaced by: {before} -> {after}", times(*count))?;
        }
        for Change { what, before, after } in &self.transfers {
            let (sign, count) = if after > before { ("+", after - before) } else { ("-", before - after) };
            writeln!(f, "  {sign} {}{what}", times(count))?;
        }
        writeln!(f, "what it bought")?;
        let Change { before, after, .. } = self.seconds;
        writeln!(f, "  time: {} -> {}{}", seconds(before), seconds(after), percent(before, after))?;
        for Change { what, before, after } in &self.time {
            writeln!(f, "    {what}: {} -> {}", seconds(*before), seconds(*after))?;
        }
        for (title, list) in [("memory", &self.memory), ("received", &self.communication)] {
            for Change { what, before, after } in list {
                writeln!(f, "  {title}, {what}: {} -> {}", bytes(*before), bytes(*after))?;
            }
        }
        Ok(())
    }
}

fn times(count: u64) -> String {
    if count == 1 { String::new() } else { format!("{count} x ") }
}

fn percent(before: f64, after: f64) -> String {
    let change = (after - before) / before * 100.0;
    if change.is_finite() { format!(" ({change:+.1} %)") } else { String::new() }
}

/// A time in a fitting unit.
fn seconds(seconds: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
    let fitting = UNITS.into_iter().find(|(unit, _)| seconds.abs() >= *unit);
    let (unit, name) = fitting.unwrap_or((1e-9, "ns"));
    format!("{:.3} {name}", seconds / unit)
}
