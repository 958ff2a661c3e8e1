//! `predict`: what a stated setup takes.

use std::fmt::Write as _;
use std::path::Path;

use cost_models::machine::{Machine, json as machine_file, shipped};
use cost_models::units::exact;
use files::Failure;
use files::readable;
use predict::cluster::Cluster;
use predict::config::{self, Config};
use predict::framework::Framework;
use predict::memory::{self, Held};
use predict::pieces::Job;
use predict::setup::{Arithmetic, Setup};
use predict::step::step;
use serde_json::json;

use super::Said;
use crate::arguments::PredictArguments;

/// Prices a setup.
pub(crate) fn predict(arguments: &PredictArguments) -> Result<Said, Failure> {
    let path = &arguments.config;
    let text = readable::text(path)?;
    if models::is_config(text.as_bytes()) {
        let message = "is the configuration of a model, expected a setup in TOML, which says its sizes and how it \
                       is trained; `shardloom plan` takes a configuration";
        return Err(Failure::file(path, message));
    }
    let Config { machine, framework, setup, chip, links, assumed } =
        config::read(&text).map_err(|error| Failure::file(path, error))?;
    let framework = Framework::shipped(&framework).map_err(|error| Failure::file(path, error))?;
    let mut machine = one(&machine).map_err(|error| Failure::file(path, error))?;
    if machine.network.is_none() && (links.adapters.is_some() || links.adapter.is_some()) {
        let message = "states adapters of a machine without a network";
        return Err(Failure::file(path, message));
    }
    let source = path.display().to_string();
    chip.set(&mut machine, &source).map_err(|error| Failure::file(path, error))?;
    let cluster = Cluster::new(machine, &links, &source).map_err(|error| Failure::file(path, error))?;
    if setup.devices() > cluster.node() && cluster.machine.network.is_none() {
        let message = format!("{} devices of a machine without a network", setup.devices());
        return Err(Failure::file(path, message));
    }
    let framework = framework.on(&cluster.machine.name);
    let job = Job::new(&setup, &framework, &cluster).map_err(|error| Failure::file(path, error))?;
    Ok(said(&job, &assumed))
}

/// One device of the type or the file of that name.
fn one(name: &str) -> Result<Machine, String> {
    if !name.ends_with(".json") {
        return shipped::named(&format!("{name}-1x")).map_err(|error| error.to_string());
    }
    let text = readable::text(Path::new(name)).map_err(|failure| failure.to_string())?;
    machine_file::read(name, &text).map_err(|error| error.to_string())
}

fn said(job: &Job<'_>, assumed: &[(&str, &str)]) -> Said {
    let (time, held) = (step(job), memory::peak(job));
    let fits = memory::fits(job, &held);
    let setup = job.setup;
    let seconds = time.total().0;
    let tokens = exact(setup.gbs * setup.model.seq) / seconds;
    let utilisation = utilisation(job, seconds);
    let terms: Vec<_> = time.terms().iter().filter(|term| term.time.0 > 0.0).collect();
    let memory: Vec<_> = held.by_kind().into_iter().filter(|(_, bytes)| *bytes > 0.0).collect();
    let json = json!({
        "seconds": seconds,
        "terms": terms.iter().map(|term| json!({ "name": term.name, "seconds": term.time.0 })).collect::<Vec<_>>(),
        "tokens_per_second": tokens,
        "model_flops_utilisation": utilisation,
        "memory": memory.iter().map(|(kind, bytes)| json!({ "kind": kind, "bytes": bytes })).collect::<Vec<_>>(),
        "memory_bytes": held.total(),
        "room_bytes": memory::room(job).0,
        "fits": fits,
        "assumed": assumed.iter().map(|(key, taken)| ((*key).to_owned(), json!(taken))).collect::<serde_json::Map<_, _>>(),
    });
    let mut text = format!("{}\nstep        {time}\n", titled(job));
    // Writing to a string does not fail.
    let _ =
        writeln!(text, "tokens      {tokens:.0} a second, {:.0} a device", tokens / exact(setup.devices()));
    let _ = writeln!(text, "utilisation {:.1} % of the peak of 16-bit products", 100.0 * utilisation);
    text.push_str(&memory_text(job, &held, fits));
    if !assumed.is_empty() {
        let keys: Vec<String> = assumed.iter().map(|(key, taken)| format!("{key} = {taken}")).collect();
        let _ = writeln!(text, "assumed     what is not stated: {}", keys.join("; "));
    }
    Said { text, json }
}

fn titled(job: &Job<'_>) -> String {
    let Setup { tp, pp, vpp, cp, ep, dp, mbs, gbs, model, .. } = job.setup;
    let billions = model.parameters() / 1e9;
    format!(
        "{billions:.1} billion parameters on {} x {} by {}\n\
         tp {tp}, pp {pp} of {vpp} parts, cp {cp}, ep {ep}, dp {dp}, micro-batches of {mbs} in {gbs}",
        job.setup.devices(),
        job.cluster.machine.name,
        job.framework.name,
    )
}

fn memory_text(job: &Job<'_>, held: &Held, fits: bool) -> String {
    let verdict = if fits { "fits" } else { "does not fit" };
    let total = memory::words(held.total());
    let mut text = format!("memory      {total} of {} a device: {verdict}\n", memory::room(job));
    for (kind, bytes) in held.by_kind().into_iter().filter(|(_, bytes)| *bytes > 0.0) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {kind:<18}{}", memory::words(bytes));
    }
    text
}

/// What the model needs at the peak rate of 16-bit products, as a part of what it takes.
fn utilisation(job: &Job<'_>, seconds: f64) -> f64 {
    let setup = job.setup;
    let precision = match setup.precision {
        Arithmetic::F16 => cost_models::machine::Precision::F16,
        _ => cost_models::machine::Precision::Bf16,
    };
    let peak = job.peak(precision);
    setup.model.step_work(setup.gbs) / (exact(setup.devices()) * peak.0 * seconds)
}
