//! `machines`: what is known of machines.

use std::fmt::Write as _;

use cost_models::machine::{json, shipped};
use serde_json::Value;

use super::Said;
use crate::arguments::{MachinesArguments, MachinesCommand};
use crate::failure::Failure;
use crate::machine;

/// Lists machines, or shows one.
pub(crate) fn machines(arguments: &MachinesArguments) -> Result<Said, Failure> {
    match &arguments.command {
        None => Ok(listed()),
        Some(MachinesCommand::Show { name }) => {
            let machine = machine::named(name, None).or_else(|error| {
                // The name of a device type alone is enough to be shown.
                machine::named(&format!("{name}-1x"), None)
                    .or_else(|_| machine::named(name, Some(1)))
                    .map_err(|_| error)
            })?;
            let text = json::write(&machine);
            let value: Value =
                serde_json::from_str(&text).map_err(|error| Failure::internal("machines", error))?;
            let sources = sources(&value);
            Ok(Said { text: format!("{machine}\nsources\n{sources}"), json: value })
        }
    }
}

fn listed() -> Said {
    let mut text = "Machines are named `<device>-<devices>x`, such as `h100-80g-8x`.\n".to_owned();
    for device in shipped::device_names() {
        if let Ok(machine) = shipped::named(&format!("{device}-1x")) {
            let usable = machine.usable_memory();
            let rate = machine.device.memory_bandwidth.value;
            let peak = machine.device.matrix_peak.bf16.value;
            let node = machine.node.devices.value.0;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "  {device:<10} {usable} usable at {rate}, bf16 products {peak}, up to {node} in a node"
            );
        }
    }
    Said { text, json: serde_json::json!({ "devices": shipped::device_names() }) }
}

/// Where the numbers of a machine file come from: each source, and the fields that cite it.
fn sources(file: &Value) -> String {
    let mut cited: Vec<(String, Vec<String>)> = Vec::new();
    collect("", file, &mut cited);
    let lines = cited.iter().map(|(source, fields)| format!("  {}\n    {source}\n", fields.join(", ")));
    lines.collect()
}

fn collect(path: &str, value: &Value, cited: &mut Vec<(String, Vec<String>)>) {
    let Some(fields) = value.as_object() else { return };
    if let Some(source) = fields.get("source").and_then(Value::as_str) {
        match cited.iter_mut().find(|(known, _)| known == source) {
            Some((_, fields)) => fields.push(path.to_owned()),
            None => cited.push((source.to_owned(), vec![path.to_owned()])),
        }
        return;
    }
    for (name, inner) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(&path, inner, cited);
    }
}
