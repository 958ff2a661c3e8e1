//! The machine that an argument names.

use std::path::Path;

use cost_models::cluster::{Cluster, json};
use cost_models::machine::{self, Machine, setting, shipped};
use plan::MachineName;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::readable;

/// Whether a machine is given as a file: that is what has a separator or ends in `.json`, whatever is set beside it.
pub fn is_file(name: &str) -> bool {
    let (name, _) = setting::parts(name);
    Path::new(name).extension().is_some_and(|it| it == "json") || name.contains(std::path::MAIN_SEPARATOR)
}

/// What a plan calls a machine of these kinds, and by which prices it is made.
pub fn called(kinds: &[Machine]) -> MachineName {
    let names: Vec<String> = kinds.iter().map(Machine::full_name).collect();
    let devices = kinds.iter().map(Machine::devices).sum();
    MachineName { name: names.join("+"), devices, sha256: Some(sha256(kinds)) }
}

/// The hash of all that prices are made of: how many devices of each kind there are, and every number of its
/// file, wherever that is from.
fn sha256(kinds: &[Machine]) -> String {
    let mut hash = Sha256::new();
    for kind in kinds {
        let text = machine::json::write(kind);
        let numbers = serde_json::from_str(&text).map_or(Value::String(text), without_sources);
        hash.update(format!("{} {numbers}\n", kind.devices()));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn without_sources(said: Value) -> Value {
    match said {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| name != "source");
            Value::Object(kept.map(|(name, field)| (name, without_sources(field))).collect())
        }
        Value::Array(all) => Value::Array(all.into_iter().map(without_sources).collect()),
        other => other,
    }
}

/// Whether a machine has the prices that a plan was made by; nothing if the plan does not say which.
pub fn has_prices_of(cluster: &Cluster, planned: &MachineName) -> Option<bool> {
    planned.sha256.as_ref().map(|hash| *hash == sha256(cluster.kinds()))
}

/// The machine that is given for a plan, if one is, with numbers that are set besides: of the plan's own machine
/// if none is given.
pub fn given(planned: &MachineName, machine: Option<&str>, settings: &[String]) -> Option<String> {
    if machine.is_none() && settings.is_empty() {
        return None;
    }
    Some(setting::named(machine.unwrap_or(&planned.name), settings))
}

/// The machine that a plan was made for, or the one that is given: as many devices as the plan, for a
/// machine file does not say how many there are. A plan is not priced by other prices than it was made by
/// unless they are given.
pub fn of_plan(planned: &MachineName, given: Option<&str>) -> Result<Cluster, Failure> {
    let MachineName { name, devices, .. } = planned;
    let found = of_devices(given.unwrap_or(name), *devices).map_err(|failure| match (failure, given) {
        (Failure::Usage(why), None) => Failure::Usage(format!(
            "its machine is not known: {why}; give the machine file with `--machine FILE`"
        )),
        (Failure::Usage(why), Some(_)) => {
            Failure::Usage(format!("a plan for {devices} devices does not suit the machine: {why}"))
        }
        (other, _) => other,
    })?;
    if given.is_none() && has_prices_of(&found, planned) == Some(false) {
        return Err(Failure::Usage(format!(
            "it was made by other prices than those of the `{name}` that comes with this program: give its machine \
             file with `--machine FILE`, or plan again"
        )));
    }
    Ok(found)
}

/// The same with the prices that the plan was made by, if it says which.
pub fn priced_as(planned: &MachineName, given: Option<&str>) -> Result<Cluster, Failure> {
    let cluster = of_plan(planned, given)?;
    match given.filter(|_| has_prices_of(&cluster, planned) == Some(false)) {
        None => Ok(cluster),
        Some(given) => Err(Failure::Input(format!(
            "machine `{given}` has other prices than the plan was made by, so that times cannot be compared: give the \
             machine file that it was made with, or plan again with `--machine {given}`"
        ))),
    }
}

/// The machine of a plan on one mesh.
pub fn single(cluster: &Cluster) -> Result<Machine, Failure> {
    cluster.single().cloned().ok_or_else(|| {
        Failure::Usage(format!("machine `{}` has nodes of several kinds, expected one", cluster.full_name()))
    })
}

/// What comes before prices of the machine that plans call so are held against times of this host; nothing
/// where they were measured on it, or are of no host at all.
pub fn calibrate_first(planned: &MachineName) -> Option<&'static str> {
    let shipped = || shipped::named(&planned.name).map(Cluster::of);
    let is_shipped = || shipped().is_ok_and(|it| has_prices_of(&it, planned) != Some(false));
    (shipped::is_host(&planned.name) && is_shipped()).then_some(
        "measured on another host, without paces of operations: for times that compare with this one's, first \
         `shardloom calibrate -o machine.json`, then `--machine machine.json`",
    )
}

/// The machine of that name, or of that file.
pub fn named(name: &str, devices: Option<u64>) -> Result<Machine, Failure> {
    one(name, &cluster(name, devices)?)
}

/// The machine that a cluster of this name is, if all nodes are of one kind.
pub fn one(name: &str, cluster: &Cluster) -> Result<Machine, Failure> {
    cluster.single().cloned().ok_or_else(|| {
        Failure::Usage(format!(
            "machine `{name}` has nodes of {} kinds, expected one: only plans in stages are made for several, \
             with `plan --mode train --stages N`",
            cluster.kinds().len()
        ))
    })
}

/// The machine of that name, or of that file, or several whose names are joined by `+` or that are in one
/// file; with what the name says to be set beside the file.
pub fn cluster(name: &str, devices: Option<u64>) -> Result<Cluster, Failure> {
    if is_file(name) {
        let (file, settings) = setting::parts(name);
        let path = Path::new(file);
        let text = readable::text(path)?;
        return match (json::is_cluster(&text), devices) {
            (true, _) if !settings.is_empty() => Err(Failure::Usage(format!(
                "`--set` is of a machine of one kind, and `{file}` has several: change its file"
            ))),
            (true, None) => json::read(file, &text).map_err(|error| Failure::file(path, error)),
            (true, Some(_)) => Err(counted(file)),
            (false, _) => of_file((file, &settings), &text, devices).map(Cluster::of),
        };
    }
    let parts: Vec<&str> = name.split('+').collect();
    if let (&[_, _, ..], Some(_)) = (parts.as_slice(), devices) {
        return Err(counted(name));
    }
    if parts.len() > 1 && parts.contains(&"") {
        return Err(Failure::Usage(format!(
            "machine `{name}` lacks a kind of nodes, expected names such as `a100-80g-8x+v100-16g-8x`"
        )));
    }
    let kind = |part: &&str| {
        let machine = shipped::named(part).map_err(|error| Failure::Usage(error.to_string()))?;
        match devices {
            Some(devices) => sized(machine, devices),
            None => Ok(machine),
        }
    };
    let kinds = parts.iter().map(kind).collect::<Result<_, _>>()?;
    Cluster::joined(kinds).map_err(|error| Failure::Usage(format!("machine `{name}`: {error}")))
}

/// The machine of that name, or of that file, with so many devices if the file does not say how many.
pub(crate) fn of_devices(name: &str, devices: u64) -> Result<Cluster, Failure> {
    let several =
        || readable::text(Path::new(setting::parts(name).0)).is_ok_and(|text| json::is_cluster(&text));
    cluster(name, (is_file(name) && !several()).then_some(devices))
}

fn counted(name: &str) -> Failure {
    Failure::Usage(format!(
        "`--devices` is of one kind of nodes, and machine `{name}` says how many devices each of its kinds has: \
         leave it out"
    ))
}

/// The machine of a file's text, with what is set beside it.
fn of_file((name, settings): (&str, &[&str]), text: &str, devices: Option<u64>) -> Result<Machine, Failure> {
    let machine = setting::read(name, text, settings).map_err(|error| Failure::Input(error.to_string()))?;
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
