//! The machine that an argument names.

use std::path::Path;

use cost_models::machine::{Machine, json, shipped};

use crate::failure::Failure;

/// Whether a machine is given as a file: that is what has a separator or ends in `.json`.
pub(crate) fn is_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|it| it == "json") || name.contains(std::path::MAIN_SEPARATOR)
}

/// The machine of that name, or of that file.
pub(crate) fn named(name: &str, devices: Option<u64>) -> Result<Machine, Failure> {
    let path = Path::new(name);
    if !is_file(name) {
        let machine = shipped::named(name).map_err(|error| Failure::Usage(error.to_string()))?;
        return match devices {
            Some(devices) => sized(machine, devices),
            None => Ok(machine),
        };
    }
    crate::readable::check(path)?;
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::file(path, format!("cannot be read: {error}")))?;
    let machine = json::read(name, &text).map_err(|error| Failure::Input(error.to_string()))?;
    match devices {
        Some(devices) => sized(machine, devices),
        None if machine.network.is_none() => Err(Failure::Usage(format!(
            "machine file `{name}` does not say how many devices there are, expected `--devices N`"
        ))),
        None => Ok(machine),
    }
}

fn sized(machine: Machine, devices: u64) -> Result<Machine, Failure> {
    let name = machine.name.clone();
    machine.with_devices(devices).map_err(|error| Failure::Usage(format!("machine `{name}`: {error}")))
}
