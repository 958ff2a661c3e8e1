//! `calibrate`: this machine as a machine file.

use std::path::Path;

use calibrate as measure;
use calibrate::gpu::{self, fitted};
use calibrate::links::{self, Ranks};
use calibrate::notes::Notes;
use cost_models::machine::{Machine, json, measured, shipped};
use device::{Bench, Facts, Settings};
use files::written;
use files::{Doing, Failure};
use launch::arguments::RunDevice;
use launch::cluster::Cluster;

use super::{Context, Said};
use crate::arguments::CalibrateArguments;

/// Measures this machine.
pub(crate) fn calibrate(
    arguments: &CalibrateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let name = measurable(arguments).and_then(|()| named(&arguments.output));
    match (arguments.on.device, context.cluster) {
        (RunDevice::Cuda, Some(cluster)) if arguments.nccl => among(name, arguments, cluster, context),
        (RunDevice::Cuda, _) if arguments.nccl => Err(Failure::Usage(
            "`--nccl` measures what the GPUs of ranks exchange: start at least two, one for each GPU, with \
             `shardloom launch -n N calibrate --device cuda --nccl`"
                .to_owned(),
        )),
        (RunDevice::Cuda, _) => device(name?, arguments, context),
        (RunDevice::Cpu, _) => host(name?, &arguments.output, context),
    }
}

/// What a machine is called by the name of its file.
fn named(path: &Path) -> Result<&str, Failure> {
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
    Ok(name)
}

/// Measures threads of this host.
fn host(name: &str, path: &Path, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let mut notes = Notes::beside(path, &measure::machine())?;
    let resumed = resumed(&notes);
    let (measurements, fits) =
        measure::measured(measure::Effort::Thorough, &mut notes, &|what| context.progress.say(what))?;
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
    launch::gpu::present(&arguments.on.cuda, "calibrate")?;
    let settings = launch::gpu::settings(&arguments.on.cuda);
    let (text, machine) = one(name, arguments, &settings, context)?;
    said(&text, &machine, &arguments.output)
}

/// A GPU as a machine, and what is said of it.
fn one(
    name: &str,
    arguments: &CalibrateArguments,
    settings: &Settings,
    context: &mut Context<'_, '_>,
) -> Result<(String, Machine), Failure> {
    let mut bench = Bench::open(settings).map_err(|error| Failure::Input(error.to_string()))?;
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
        format!("measured by `shardloom calibrate --device cuda` on {identity}, {}", calibrate::host::date());
    let found = fitted(name, &like, bench.facts(), &measured, &source)?;
    let text = gpu::shown(bench.facts(), &like, &measured, &found);
    Ok((format!("{resumed}{text}"), found.machine))
}

/// What the process of a rank measures with.
struct Ready {
    settings: Settings,
    facts: Facts,
    /// The version of NCCL.
    version: String,
}

/// Measures the first rank's GPU, and what the GPUs of all ranks exchange. The first one fits and writes.
fn among(
    name: Result<&str, Failure>,
    arguments: &CalibrateArguments,
    cluster: &Cluster,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let ready = name.and_then(|name| Ok((name, ready(arguments, cluster)?)));
    let (name, ready) = cluster.agree(ready, |(_, it)| {
        let own = format!("{:?} {}", arguments.like, arguments.again);
        let gpu = ("the GPU", gpu::named(&it.facts));
        let version = ("the version of NCCL", it.version.clone());
        (None, launch::cluster::facts([gpu, version, ("`--like` and `--again`", own)]))
    })?;
    let processes = &cluster.processes;
    let ranks =
        Ranks::of(&cluster.nodes()?).map_err(|why| Failure::Input(format!("cannot measure: {why}")))?;
    let like = gpu::like(arguments.like.as_deref(), &ready.facts)?;
    if let Some(why) = links::lacking(&like, ranks) {
        let message = format!("{why}: say with `--like` which machine this is like");
        return Err(Failure::Usage(message));
    }
    let alone = processes.leads().then(|| one(name, arguments, &ready.settings, context)).transpose()?;
    let identity = links::identity(&ready.facts, &ready.version, ranks);
    let mut notes = match &ready.settings.cache {
        _ if !processes.leads() => Notes::nowhere(),
        Some(folder) => Notes::of_device(folder, &identity)?,
        None => Notes::beside(&arguments.output.with_extension("links.json"), &identity)?,
    };
    if arguments.again {
        notes.forget();
    }
    let resumed = resumed(&notes);
    let say = |what: Doing| context.progress.say(what);
    let among = (processes, cluster.connecting);
    let (rows, care) = links::measured(&ready.settings, among, ranks, &mut notes, &say)?;
    let Some((text, machine)) = alone else {
        return Ok(Said { text: String::new(), json: serde_json::Value::Null });
    };
    let source = format!(
        "measured by `shardloom calibrate --device cuda --nccl` on {identity}, {}",
        calibrate::host::date()
    );
    let found = links::fitted(&machine, &rows, &source)?;
    let shown = links::shown(&rows, &like, &found, &care);
    said(&format!("{text}\n{resumed}{shown}"), &found.machine, &arguments.output)
}

/// What a process has to have to measure with others.
fn ready(arguments: &CalibrateArguments, cluster: &Cluster) -> Result<Ready, Failure> {
    let (settings, version) = launch::gpu::present_among(&arguments.on.cuda, "calibrate --nccl", cluster)?;
    if cluster.processes.leads() {
        written::possible(&arguments.output)?;
    }
    let facts = device::known(&settings.libraries, settings.gpu);
    let facts = facts.map_err(|error| Failure::Input(error.to_string()))?;
    gpu::like(arguments.like.as_deref(), &facts)?;
    Ok(Ready { settings, facts, version })
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

/// Refuses what makes no sense together.
fn measurable(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let message = match (arguments.on.device, arguments.nccl) {
        (RunDevice::Cpu, true) => "`--nccl` measures GPUs, expected `--device cuda` with it".to_owned(),
        (_, true) => return Ok(()),
        (RunDevice::Cpu, _) if arguments.like.is_some() || arguments.again => {
            "`--like` and `--again` are of GPUs, expected `--device cuda` with them".to_owned()
        }
        _ => match arguments.cluster.given() {
            Some(name) => format!("`{name}` goes with ranks that are processes, expected `--nccl` with it"),
            None => return Ok(()),
        },
    };
    Err(Failure::Usage(message))
}

#[cfg(test)]
pub(crate) mod tests;
