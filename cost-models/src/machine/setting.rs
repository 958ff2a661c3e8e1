//! Numbers of a machine that are said beside its file: `network.adapter_bandwidth=25GB/s`.
//!
//! A machine of which some are is called so, wherever it is named: `h100-80g-8x with
//! network.adapter_bandwidth=25GB/s`. That name is one that machines are found by.

use std::fmt;

use serde_json::{Value, json};

use super::Machine;
use super::json::{self as file, ReadError};

/// What is between a machine's name and the numbers that are said beside its file.
const WITH: &str = " with ";
/// What is between two of these.
const AND: &str = ", ";

/// Units of values that are said, by the unit of the number in the file: how each is written, and what it is of
/// the file's.
const UNITS: [(&str, &[(&str, f64)]); 7] = [
    ("B", BYTES),
    ("B/s", RATES),
    ("s", &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]),
    ("FLOP", OPERATIONS),
    ("FLOP/s", &[("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6), ("FLOP/s", 1.0)]),
    ("1", &[("%", 0.01)]),
    ("count", &[]),
];
const BYTES: &[(&str, f64)] = &[
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("B", 1.0),
];
const RATES: &[(&str, f64)] = &[
    ("Mbit/s", 1.25e5),
    ("Gbit/s", 1.25e8),
    ("Tbit/s", 1.25e11),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("TB/s", 1e12),
    ("B/s", 1.0),
];
const OPERATIONS: &[(&str, f64)] =
    &[("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3), ("FLOP", 1.0)];

/// Why a number of a machine cannot be set.
#[derive(Debug)]
pub enum SettingError {
    /// Not `KEY=VALUE`, or something that a machine's name cannot have in it.
    Form(String),
    /// A key that the machine lacks, and the nearest that it has.
    Key(String, String),
    /// A key, the unit of its number, and what stands there instead.
    Unit(String, String, String),
    /// A key that is set twice.
    Twice(String),
    /// What the file would be is no machine.
    Machine(ReadError),
}

/// A name of a machine, and what is set beside its file.
#[must_use]
pub fn parts(name: &str) -> (&str, Vec<&str>) {
    match name.split_once(WITH) {
        None => (name, Vec::new()),
        Some((name, settings)) => (name, settings.split(AND).collect()),
    }
}

/// The name of a machine, or of several joined by `+`, of each of which this is set besides.
#[must_use]
pub fn named(name: &str, settings: &[String]) -> String {
    if settings.is_empty() {
        return name.to_owned();
    }
    let with = |name: &str| {
        let between = if name.contains(WITH) { AND } else { WITH };
        format!("{name}{between}{}", settings.join(AND))
    };
    name.split('+').map(with).collect::<Vec<_>>().join("+")
}

/// The machine of a file's text, which errors call `file`, with these numbers set.
pub fn read(file: &str, text: &str, settings: &[&str]) -> Result<Machine, SettingError> {
    let mut machine = file::read(file, text).map_err(SettingError::Machine)?;
    if settings.is_empty() {
        return Ok(machine);
    }
    let mut said: Value = serde_json::from_str(&file::write(&machine)).unwrap_or_default();
    let mut keys: Vec<&str> = Vec::new();
    for setting in settings {
        let form = || SettingError::Form((*setting).to_owned());
        let (key, value) = setting.split_once('=').ok_or_else(form)?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() || setting.contains(['+', ',']) {
            return Err(form());
        }
        if keys.contains(&key) {
            return Err(SettingError::Twice(key.to_owned()));
        }
        keys.push(key);
        set(&mut said, key, value)?;
    }
    machine = file::read(file, &said.to_string()).map_err(SettingError::Machine)?;
    machine.settings = settings.iter().map(|it| (*it).to_owned()).collect();
    Ok(machine)
}

/// Sets a number.
fn set(said: &mut Value, key: &str, value: &str) -> Result<(), SettingError> {
    let mut known = Vec::new();
    numbers(said, String::new(), String::new(), &mut known);
    let Some((_, pointer)) = known.iter().find(|(it, _)| it == key) else {
        let nearest = known.iter().map(|it| &it.0).min_by_key(|it| planner_ir::distance(key, it));
        return Err(SettingError::Key(key.to_owned(), nearest.cloned().unwrap_or_default()));
    };
    let Some(number) = said.pointer_mut(pointer) else { return Ok(()) };
    let unit = number["unit"].as_str().unwrap_or_default().to_owned();
    let Some(found) = parsed(value, &unit) else {
        return Err(SettingError::Unit(key.to_owned(), unit, value.to_owned()));
    };
    number["value"] = found;
    number["source"] = json!("set beside the file");
    Ok(())
}

/// The numbers of a machine file: the names of sections around each joined by dots, and where it is.
fn numbers(said: &Value, key: String, pointer: String, known: &mut Vec<(String, String)>) {
    let Value::Object(fields) = said else { return };
    if fields.get("value").is_some_and(Value::is_number) && fields.contains_key("unit") {
        known.push((key, pointer));
        return;
    }
    for (name, field) in fields {
        let escaped = name.replace('~', "~0").replace('/', "~1");
        let dot = if key.is_empty() { "" } else { "." };
        numbers(field, format!("{key}{dot}{name}"), format!("{pointer}/{escaped}"), known);
    }
}

/// A value in the unit of a file; nothing if it is not in a unit of that kind.
fn parsed(value: &str, unit: &str) -> Option<Value> {
    let known = UNITS.iter().find(|it| it.0 == unit).map_or(&[][..], |it| it.1);
    let ends = known.iter().filter_map(|(name, times)| Some((value.strip_suffix(name)?, *times)));
    let (number, times) = ends.min_by_key(|(rest, _)| rest.len()).unwrap_or((value, 1.0));
    let number: f64 = number.trim().parse().ok()?;
    // Of a thousandth there is no double; a thousand is one.
    let found = if times < 1.0 { number / (1.0 / times).round() } else { number * times };
    // What counts is written as whole numbers are.
    if found.fract() == 0.0 && (0.0..9e15).contains(&found) {
        return format!("{found:.0}").parse::<u64>().ok().map(Value::from);
    }
    serde_json::Number::from_f64(found).map(Value::from)
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(found) => write!(
                f,
                "`{found}` sets no number of a machine, expected one such as `network.adapter_bandwidth=25GB/s`, \
                 without `+` and `,`"
            ),
            Self::Key(found, nearest) => write!(
                f,
                "the machine has no number `{found}`; did you mean `{nearest}`? `shardloom machines show NAME --json` \
                 has them all"
            ),
            Self::Unit(key, unit, found) => {
                let known = UNITS.iter().find(|it| it.0 == unit).map_or(&[][..], |it| it.1);
                let names: Vec<String> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
                let number = if unit == "count" { "a whole number" } else { "a number" };
                write!(f, "`{key}` is `{found}`, expected {number}")?;
                if names.is_empty() {
                    Ok(())
                } else {
                    write!(f, " in {}, or in `{unit}` without a unit", names.join(", "))
                }
            }
            Self::Twice(key) => write!(f, "`{key}` is set twice, expected once"),
            Self::Machine(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for SettingError {}

#[cfg(test)]
mod tests;
