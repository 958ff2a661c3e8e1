//! `predict`: what a stated setup takes.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;

use cost_models::cluster::json as cluster_file;
use cost_models::estimate::Estimate;
use cost_models::machine::shipped::{self, NameError};
use cost_models::machine::{Machine, Margin, setting};
use cost_models::quantity::whole_bytes;
use cost_models::throughput::Throughput;
use files::Failure;
use files::readable;
use predict::config::{self, Config};
use predict::framework::Framework;
use predict::kinds::{Answer, Kind, answer, kinds};
use predict::memory::{self, Held};
use predict::setup::Setup;
use report::throughput;
use score::read::Read;
use serde_json::{Value, json};

use super::Said;
use crate::arguments::PredictArguments;

/// Prices a setup.
pub(crate) fn predict(arguments: &PredictArguments) -> Result<Said, Failure> {
    let path = &arguments.config;
    let text = readable::text(path)?;
    if models::is_config(text.as_bytes()) {
        let message = "is the configuration of a model, expected a setup in TOML, which says how it is trained: state \
                       `model_config = \"config.json\"` in that; `shardloom plan` takes a configuration";
        return Err(Failure::file(path, message));
    }
    let taken = RefCell::default();
    let sizes = |name: &str| {
        let read = sizes(path, name)?;
        taken.replace(read.taken);
        Ok(read.keys)
    };
    let mut config = config::read(&text, &sizes).map_err(|error| Failure::file(path, error))?;
    config.machine = arguments.set.of(&config.machine);
    let kinds = kinds_of(&config, arguments.reserve).map_err(|message| Failure::file(path, message))?;
    let Config { setup, assumed, .. } = config;
    let answer = answer(&setup, &kinds).map_err(|error| Failure::file(path, error))?;
    Ok(said(&setup, &kinds, &answer, Left { assumed: &assumed, taken: &taken.borrow() }))
}

/// The sizes of a model, as keys, and what of it is priced otherwise, from a file that a setup in another one names.
fn sizes(setup: &Path, name: &str) -> Result<Read, String> {
    let text = readable::text(&setup.with_file_name(name)).map_err(|failure| failure.to_string())?;
    score::read::sizes(&models::json(&text)).map_err(|error| error.to_string())
}

/// The kinds of nodes that a configuration says, in its framework, with so much memory left free or what is left by
/// default.
pub(super) fn kinds_of(config: &Config, reserve: Option<Margin>) -> Result<Vec<Kind>, String> {
    let Config { machine, framework, setup, chip, links, .. } = config;
    let framework = Framework::shipped(framework).map_err(|error| error.to_string())?;
    let mut machines = machines(machine, setup.devices())?;
    let source = "the configuration";
    for (machine, _) in &mut machines {
        if machine.network.is_none() && (links.adapters.is_some() || links.adapter.is_some()) {
            return Err("states adapters of a machine without a network".to_owned());
        }
        chip.set(machine, source).map_err(|error| error.to_string())?;
        *machine = machine.clone().leaving(reserve);
    }
    let kinds = kinds(machines, &framework, links, source).map_err(|error| error.to_string())?;
    let cluster = &kinds[0].cluster;
    if setup.devices() > cluster.node() && cluster.machine.network.is_none() {
        return Err(format!("{} devices of a machine without a network", setup.devices()));
    }
    Ok(kinds)
}

/// The kinds of nodes that a name says, each with its number of devices: a device type, a machine file or a
/// file of several kinds, which has its numbers of devices itself.
fn machines(name: &str, devices: u64) -> Result<Vec<(Machine, u64)>, String> {
    let (name, settings) = setting::parts(name);
    if !name.ends_with(".json") {
        let text = shipped::text(name).ok_or_else(|| NameError::Device(name.to_owned()).to_string())?;
        let machine = setting::read(name, text, &settings).map_err(|error| error.to_string())?;
        return Ok(vec![(machine, devices)]);
    }
    let text = readable::text(Path::new(name)).map_err(|failure| failure.to_string())?;
    if !cluster_file::is_cluster(&text) {
        let machine = setting::read(name, &text, &settings).map_err(|error| error.to_string())?;
        return Ok(vec![(machine, devices)]);
    }
    if !settings.is_empty() {
        return Err(format!(
            "`--set` is of a machine of one kind, and `{name}` has several: change its file"
        ));
    }
    let cluster = cluster_file::read(name, &text).map_err(|error| error.to_string())?;
    if cluster.devices() != devices {
        return Err(format!("`world_size` is {devices}, expected {} as `{name}` has", cluster.devices()));
    }
    Ok(cluster.kinds().iter().map(|kind| (kind.clone(), kind.devices())).collect())
}

/// The machines of a setup, each with its number of devices.
pub(super) fn machine_lines(kinds: &[Kind]) -> Vec<(&Machine, u64)> {
    kinds.iter().map(|kind| (&kind.cluster.machine, kind.ranks.end - kind.ranks.start)).collect()
}

/// The terms of a time that are some, for programs.
pub(super) fn terms(time: &Estimate) -> Vec<Value> {
    let terms = time.terms().iter().filter(|term| term.time.0 > 0.0);
    terms.map(|term| json!({ "name": term.name, "seconds": term.time.0 })).collect()
}

/// What a setup takes, for programs.
pub(super) fn prices(setup: &Setup, kinds: &[Kind], answer: &Answer) -> Value {
    let Answer { time, held, room, fits } = answer;
    let seconds = time.total();
    let throughput = Throughput::of(&setup.work(), seconds, setup.devices(), &machine_lines(kinds));
    let memory: Vec<_> = held.by_kind().into_iter().filter(|(_, bytes)| *bytes > 0.0).collect();
    let mut json = json!({
        "seconds": seconds.0,
        "terms": terms(time),
        "memory": memory.iter().map(|(kind, bytes)| json!({ "kind": kind, "bytes": bytes })).collect::<Vec<_>>(),
        "memory_bytes": held.total(),
        "room_bytes": whole_bytes(*room).0,
        "fits": fits,
    });
    throughput::add(throughput.as_ref(), &mut json);
    // Scripts know it by this name too.
    json["model_flops_utilisation"] = json["mfu"].clone();
    json
}

/// What is not as it is stated.
struct Left<'a> {
    /// Keys that are left out, and what they are taken to be.
    assumed: &'a [(&'a str, &'a str)],
    /// What the model's configuration says, and what it is taken to be.
    taken: &'a [(String, String)],
}

fn said(setup: &Setup, kinds: &[Kind], answer: &Answer, Left { assumed, taken }: Left<'_>) -> Said {
    let Answer { time, held, room, fits } = answer;
    let mut json = prices(setup, kinds, answer);
    json["assumed"] =
        Value::Object(assumed.iter().map(|(key, taken)| ((*key).to_owned(), json!(taken))).collect());
    if !taken.is_empty() {
        json["taken"] = taken.iter().map(|(said, as_it)| (said.clone(), json!(as_it))).collect();
    }
    let throughput = Throughput::of(&setup.work(), time.total(), setup.devices(), &machine_lines(kinds));
    let mut text = format!("{}\nstep        {time}\n", titled(setup, kinds));
    for line in throughput::lines(throughput.as_ref(), 12) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{line}");
    }
    text.push_str(&memory_text(
        held,
        *room,
        &memory::verdict(*fits, [held.total(), *room], &kinds[0].framework),
    ));
    for (said, as_it) in taken {
        let _ = writeln!(text, "taken       {said}: {as_it}");
    }
    if !assumed.is_empty() {
        let keys: Vec<String> = assumed.iter().map(|(key, taken)| format!("{key} = {taken}")).collect();
        let _ = writeln!(text, "assumed     what is not stated: {}", keys.join("; "));
    }
    Said { text, json }
}

pub(super) fn titled(setup: &Setup, kinds: &[Kind]) -> String {
    let Setup { tp, pp, vpp, cp, ep, dp, mbs, gbs, model, .. } = setup;
    let billions = model.parameters() / 1e9;
    let name = |kind: &Kind| format!("{} x {}", kind.ranks.end - kind.ranks.start, kind.cluster.machine.name);
    let names: Vec<String> = kinds.iter().map(name).collect();
    format!(
        "{billions:.1} billion parameters on {} by {}\n\
         tp {tp}, pp {pp} of {vpp} parts, cp {cp}, ep {ep}, dp {dp}, micro-batches of {mbs} in {gbs}",
        names.join(" and "),
        kinds[0].framework.name,
    )
}

fn memory_text(held: &Held, room: f64, verdict: &str) -> String {
    let total = memory::words(held.total());
    let mut text = format!("memory      {total} of {} a device: {verdict}\n", memory::words(room));
    for (kind, bytes) in held.by_kind().into_iter().filter(|(_, bytes)| *bytes > 0.0) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {kind:<18}{}", memory::words(bytes));
    }
    text
}
