//! `calibrate`: this machine as a machine file.

use cost_models::machine::{json, measured};

use super::{Context, Said};
use crate::arguments::{CalibrateArguments, Device};
use crate::failure::Failure;
use crate::{measure, written};

/// Measures this machine.
pub(crate) fn calibrate(
    arguments: &CalibrateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let Device::Cpu = arguments.device;
    let path = &arguments.output;
    let name = path.file_stem().and_then(|it| it.to_str()).unwrap_or("machine");
    if path.extension().is_none_or(|it| it != "json") {
        return Err(Failure::Usage(format!("{}: expected a name that ends in `.json`", path.display())));
    }
    let say = |what: &str| context.progress.say(format!("measuring {what}"));
    let measurements =
        measure::measured(&say).map_err(|error| Failure::Input(format!("cannot measure: {error}")))?;
    let source = format!("measured by `shardloom calibrate` on {}", measure::processor());
    let machine = measured::host(name, &measurements, &source)
        .map_err(|error| Failure::internal("calibrate", error))?;
    let text = json::write(&machine);
    written::write(path, text.as_bytes())?;
    let value = serde_json::from_str(&text).map_err(|error| Failure::internal("calibrate", error))?;
    let shown = format!("{machine}\nmachine file written to {}\n", path.display());
    Ok(Said { text: shown, json: value })
}
