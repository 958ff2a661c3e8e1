//! The machine that an argument names.

use std::path::Path;

use cost_models::cluster::{Cluster, json};
use cost_models::machine::{self, Machine, shipped};

use crate::failure::Failure;
use crate::readable;

/// Whether a machine is given as a file: that is what has a separator or ends in `.json`.
pub(crate) fn is_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|it| it == "json") || name.contains(std::path::MAIN_SEPARATOR)
}

/// What comes before prices of the machine of that name are held against times of this host; nothing
/// where they were measured on it, or are of no host at all.
pub(crate) fn calibrate_first(name: &str) -> Option<&'static str> {
    shipped::is_host(name).then_some(
        "measured on another host, without paces of operations: for times that compare with this one's, first \
         `shardloom calibrate -o machine.json`, then `--machine machine.json`",
    )
}

/// The machine of that name, or of that file.
pub(crate) fn named(name: &str, devices: Option<u64>) -> Result<Machine, Failure> {
    let cluster = cluster(name, devices)?;
    cluster.single().cloned().ok_or_else(|| {
        Failure::Usage(format!(
            "machine `{name}` has nodes of {} kinds, expected one: only plans in stages are made for several, \
             with `plan --mode train --stages N`",
            cluster.kinds().len()
        ))
    })
}

/// The machine of that name, or of that file, or several whose names are joined by `+` or that are in one
/// file.
pub(crate) fn cluster(name: &str, devices: Option<u64>) -> Result<Cluster, Failure> {
    if is_file(name) {
        let path = Path::new(name);
        let text = readable::text(path)?;
        return match (json::is_cluster(&text), devices) {
            (true, None) => json::read(name, &text).map_err(|error| Failure::file(path, error)),
            (true, Some(_)) => Err(counted(name)),
            (false, _) => of_file(name, &text, devices).map(Cluster::of),
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
    let several = || readable::text(Path::new(name)).is_ok_and(|text| json::is_cluster(&text));
    cluster(name, (is_file(name) && !several()).then_some(devices))
}

fn counted(name: &str) -> Failure {
    Failure::Usage(format!(
        "`--devices` is of one kind of nodes, and machine `{name}` says how many devices each of its kinds has: \
         leave it out"
    ))
}

/// The machine of a file's text.
fn of_file(name: &str, text: &str, devices: Option<u64>) -> Result<Machine, Failure> {
    let machine = machine::json::read(name, text).map_err(|error| Failure::Input(error.to_string()))?;
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
