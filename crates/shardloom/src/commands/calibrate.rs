//! `calibrate`: this machine as a machine file.

use std::path::Path;

use cost_models::machine::{Machine, json, measured, shipped};
use device::Bench;

use super::{Context, Said};
use crate::arguments::{CalibrateArguments, RunDevice};
use crate::failure::Failure;
use crate::measure::gpu::{self, fitted};
use crate::measure::notes::Notes;
use crate::{bench, measure, written};

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
    if shipped::text(name).is_some() {
        return Err(Failure::Usage(format!(
            "{}: expected another name than `{name}`, which is a device type that comes with the program: plans \
             say their machine by its name",
            path.display()
        )));
    }
    match arguments.on.device {
        RunDevice::Cpu => host(name, path, context),
        RunDevice::Cuda => device(name, arguments, context),
    }
}

/// Measures threads of this host.
fn host(name: &str, path: &Path, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let mut notes = Notes::beside(path, &measure::machine())?;
    let resumed = resumed(&notes);
    let (measurements, fits) = measure::measured(&mut notes, &|what| context.progress.say(what))?;
    let source = format!("measured by `shardloom calibrate` on {}", measure::machine());
    let machine = measured::host(name, &measurements, &source)
        .map_err(|error| Failure::internal("calibrate", error))?;
    let said = said(&format!("{resumed}{}", measure::fits::shown(&fits)), &machine, path)?;
    notes.done()?;
    Ok(said)
}

/// Measures the first GPU.
fn device(
    name: &str,
    arguments: &CalibrateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    crate::gpu::present(&arguments.on, "calibrate")?;
    let settings = crate::gpu::settings(&arguments.on);
    let mut bench = Bench::open(&settings).map_err(|error| Failure::Input(error.to_string()))?;
    let like = gpu::like(arguments.like.as_deref(), bench.facts())?;
    let identity = gpu::identity(&bench);
    let mut notes = match &settings.cache {
        Some(folder) => Notes::of_device(folder, &identity)?,
        None => Notes::beside(&arguments.output, &identity)?,
    };
    if arguments.again {
        notes.forget();
    }
    let resumed = resumed(&notes);
    let measured = gpu::measured(&mut bench, &mut notes, &|what| context.progress.say(what))?;
    let source =
        format!("measured by `shardloom calibrate --device cuda` on {identity}, {}", bench::process::date());
    let found = fitted(name, &like, bench.facts(), &measured, &source)?;
    let text = gpu::shown(bench.facts(), &like, &measured, &found);
    said(&format!("{resumed}{text}"), &found.machine, &arguments.output)
}

fn resumed(notes: &Notes) -> String {
    match notes.count() {
        0 => String::new(),
        before => format!("{before} measurements were there from before\n\n"),
    }
}

/// Writes the file; what is said of it.
fn said(text: &str, machine: &Machine, path: &Path) -> Result<Said, Failure> {
    let file = json::write(machine);
    written::write(path, file.as_bytes())?;
    let value = serde_json::from_str(&file).map_err(|error| Failure::internal("calibrate", error))?;
    let shown = format!("{text}\n{machine}\nmachine file written to {}\n", path.display());
    Ok(Said { text: shown, json: value })
}

/// Refuses what this version does not measure.
fn measurable(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let wanted = match (arguments.on.device, arguments.nccl) {
        (RunDevice::Cpu, false) if arguments.like.is_some() || arguments.again => {
            "`--like` and `--again` are of GPUs, expected `--device cuda` with them"
        }
        (_, false) => return Ok(()),
        (RunDevice::Cpu, true) => "`--nccl` measures GPUs, expected `--device cuda` with it",
        (RunDevice::Cuda, true) => {
            "`--nccl`: this version does not time collective operations of GPUs; without it one GPU is measured, \
             and links stay as the shipped file has them"
        }
    };
    Err(Failure::Usage(wanted.to_owned()))
}
