//! Measured times of single operations.
//!
//! A file holds the operations of one kind, such as `gemm.csv`: a line is a shape on a device and the median
//! of its times. Lines are priced by the laws of the device's machine file (`cost_models::operations`), and
//! these laws are fitted to such lines: to three quarters of them, which a hash of the line selects. The
//! others judge the laws.

mod columns; // operations of lines
mod errors; // errors by device, operation and type
mod fit; // laws of measurements
mod section; // laws as part of a machine file's text
mod spline; // factors of laws

use std::collections::BTreeMap;

use cost_models::machine::{Machine, shipped};
use cost_models::operations::Operation;
use predict::fit::mixed;

pub use columns::{COUNTED, KINDS, lines, read};
pub use errors::{Errors, Group, groups, page, table};
pub use fit::{Fit, fits};
pub use section::with_laws;

/// A line of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name of the file.
    pub file: String,
    /// Which row it is, counted from 0 below the head line.
    pub row: usize,
    /// The device, as the file names it.
    pub gpu: String,
    /// The type of elements, as the file names it.
    pub format: String,
    /// What was measured, or why it cannot be priced.
    pub measured: Result<Measured, String>,
}

/// A measured operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The law that prices it.
    pub law: String,
    /// The kernel, as errors are listed by.
    pub kernel: String,
    /// The operation.
    pub operation: Operation,
    /// Its median time (seconds).
    pub time: f64,
    /// Whether a law is fitted to it.
    pub fitted: bool,
}

/// A line that has a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// The time by the law (seconds).
    pub predicted: f64,
    /// The measured time (seconds).
    pub measured: f64,
}

/// Devices of the files, and their machine files.
const DEVICES: [(&str, &str); 9] = [
    ("a100_sxm", "a100-80g"),
    ("h100_sxm", "h100-80g"),
    ("h200_sxm", "h200-141g"),
    ("b200_sxm", "b200-180g"),
    ("b300_sxm", "b300-288g"),
    ("gb200", "gb200-186g"),
    ("gb300", "gb300-288g"),
    ("l40s", "l40s-48g"),
    ("rtx_pro_6000_server", "rtx-pro-6000-96g"),
];

/// The machines of the devices of the files.
#[derive(Clone, Debug)]
pub struct Machines(BTreeMap<&'static str, Machine>);

impl Machines {
    /// Those that come with the program.
    #[must_use]
    pub fn shipped() -> Self {
        let named = |(gpu, file): &(&'static str, &'static str)| {
            shipped::named(&format!("{file}-1x")).ok().map(|machine| (*gpu, machine))
        };
        Self(DEVICES.iter().filter_map(named).collect())
    }

    /// The name of the machine file of a device.
    #[must_use]
    pub fn file_of(gpu: &str) -> Option<&'static str> {
        DEVICES.iter().find(|(name, _)| *name == gpu).map(|(_, file)| *file)
    }

    /// The machine of a device, or why there is none.
    pub fn of(&self, gpu: &str) -> Result<&Machine, String> {
        self.0.get(gpu).ok_or_else(|| format!("no machine file for device `{gpu}`"))
    }

    /// The price of a line, or why it has none.
    pub fn price(&self, line: &Line) -> Result<Priced, String> {
        let measured = line.measured.as_ref().map_err(Clone::clone)?;
        let machine = self.of(&line.gpu)?;
        let predicted = machine.device.time(&measured.law, &measured.operation);
        let none = || format!("machine file `{}` has no law of `{}`", machine.name, measured.law);
        Ok(Priced { predicted: predicted.ok_or_else(none)?.0, measured: measured.time })
    }
}

/// Whether laws are fitted to a line, by its text.
fn is_fitted(text: &str) -> bool {
    mixed(text) >> 62 != 0
}

#[cfg(test)]
mod tests;
