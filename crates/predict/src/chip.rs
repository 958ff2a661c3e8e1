//! What somebody states about a device in place of its data sheet: power, memory.
//!
//! A device that is held to less power lowers its clock. Power goes with the clock and the square of the
//! voltage, and the voltage with the clock, so that
//!
//! ```text
//! sustained rate = rate of the machine file · (power / rated power)^⅓
//! ```
//!
//! and is never above the rate of a cold device.
//!
//! Source: dynamic power of CMOS, C V² f: Weste and Harris, "CMOS VLSI Design", 4th edition, section 5.2.

use std::fmt;

use cost_models::known::Known;
use cost_models::machine::Machine;
use cost_models::quantity::whole_bytes;
use cost_models::units::{Bytes, BytesPerSecond, Ratio};

/// What is stated about a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chip {
    /// The power that it is held to (watts).
    pub power: Option<f64>,
    /// Its memory (bytes).
    pub memory: Option<f64>,
    /// The peak rate of its memory (bytes per second).
    pub bandwidth: Option<BytesPerSecond>,
}

/// Power is stated of a device whose data sheet is not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPower(pub String);

/// The power of devices by their data sheets (watts), by the beginning of the name of their machine file; the
/// first that fits counts.
const RATED: [(&str, f64); 19] = [
    ("a100-80g-pcie", 300.0),
    ("a100", 400.0),
    ("h100-80g-pcie", 350.0),
    ("h100", 700.0),
    ("h200", 700.0),
    ("h800", 700.0),
    ("gh200", 700.0),
    ("gb300", 1400.0),
    ("gb200", 1200.0),
    ("b300", 1100.0),
    ("b200", 1000.0),
    ("v100-32g-sxm3", 350.0),
    ("v100-32g-pcie", 250.0),
    ("v100", 300.0),
    ("a40", 300.0),
    ("l40s", 350.0),
    ("rtx-pro-6000", 600.0),
    ("mi250x", 280.0),
    ("t4", 70.0),
];

impl Chip {
    /// Writes what is stated into a machine; `source` is who states it.
    pub fn set(&self, machine: &mut Machine, source: &str) -> Result<(), UnknownPower> {
        let device = &mut machine.device;
        if let Some(memory) = self.memory.and_then(|it| known(whole_bytes(it), source)) {
            device.memory_capacity = memory;
        }
        if let Some(rate) = self.bandwidth.and_then(|it| known(it, source)) {
            device.memory_bandwidth = rate;
        }
        let Some(power) = self.power else { return Ok(()) };
        let rated = RATED.iter().find(|(name, _)| machine.name.starts_with(name));
        let (_, rated) = rated.ok_or_else(|| UnknownPower(machine.name.clone()))?;
        let sustained = machine.device.products.sustained.value.0 * (power / rated).cbrt();
        if let Some(sustained) = known(Ratio(sustained.min(1.0)), source) {
            machine.device.products.sustained = sustained;
        }
        Ok(())
    }
}

fn known<T>(value: T, source: &str) -> Option<Known<T>> {
    Known::new(value, source)
}

/// As many bytes as a machine file's memory, where a name that says `named` GB is said to have `stated`.
#[must_use]
pub fn scaled(capacity: Bytes, named: f64, stated: f64) -> f64 {
    cost_models::units::exact(capacity.0) * stated / named
}

impl fmt::Display for UnknownPower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is held to a stated power, but the power of its data sheet is not known", self.0)
    }
}

impl std::error::Error for UnknownPower {}

#[cfg(test)]
mod tests;
