//! `calibrate`: this machine as a machine file.

use cost_models::machine::{json, measured};

use super::{Context, Said};
use crate::arguments::{CalibrateArguments, Device};
use crate::failure::Failure;
use crate::measure::notes::Notes;
use crate::{measure, written};

/// Measures this machine.
pub(crate) fn calibrate(
    arguments: &CalibrateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    measurable(arguments)?;
    let path = &arguments.output;
    let name = path.file_stem().and_then(|it| it.to_str()).unwrap_or("machine");
    if path.extension().is_none_or(|it| it != "json") {
        return Err(Failure::Usage(format!("{}: expected a name that ends in `.json`", path.display())));
    }
    let mut notes = Notes::beside(path, &measure::machine())?;
    let resumed = match notes.count() {
        0 => String::new(),
        before => format!("{before} measurements were there from before\n\n"),
    };
    let (measurements, fits) = measure::measured(&mut notes, &|what| context.progress.say(what))?;
    let source = format!("measured by `shardloom calibrate` on {}", measure::machine());
    let machine = measured::host(name, &measurements, &source)
        .map_err(|error| Failure::internal("calibrate", error))?;
    let text = json::write(&machine);
    written::write(path, text.as_bytes())?;
    notes.done()?;
    let value = serde_json::from_str(&text).map_err(|error| Failure::internal("calibrate", error))?;
    let fits = measure::fits::shown(&fits);
    let shown = format!("{resumed}{fits}\n{machine}\nmachine file written to {}\n", path.display());
    Ok(Said { text: shown, json: value })
}

/// Refuses what this version does not measure.
fn measurable(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let wanted = match (arguments.device, arguments.nccl) {
        (Device::Cpu, false) => return Ok(()),
        (Device::Cpu, true) => "`--nccl` measures GPUs, expected `--device cuda` with it",
        (Device::Cuda, _) => {
            "`--device cuda`: this version measures threads of a host only, its kernels are not timed on GPUs \
             yet; `shardloom machines` lists GPUs by data sheets and published measurements"
        }
    };
    Err(Failure::Usage(wanted.to_owned()))
}
