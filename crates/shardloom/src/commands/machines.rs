//! `machines`: what is known of machines.

use std::fmt::Write as _;

use cost_models::machine::{json, shipped};
use files::Failure;
use files::machine;
use serde_json::Value;

use super::Said;
use crate::arguments::{MachinesArguments, MachinesCommand};

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
            let numbers = numbers(&value);
            let first = machine::calibrate_first(&machine::called(std::slice::from_ref(&machine)));
            let note = first.map_or_else(String::new, |it| format!("note  {it}\n"));
            let text = format!("{machine}\n{note}numbers, and where they come from\n{numbers}");
            Ok(Said { text, json: value })
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
                "  {device:<16} {usable} usable at {rate}, bf16 products {peak}, up to {node} in a node"
            );
        }
    }
    Said { text, json: serde_json::json!({ "devices": shipped::device_names() }) }
}

/// Every number of a machine file, a line each: its field, its value with the unit, and below where
/// it comes from; fields that follow each other and have one source share its line.
fn numbers(file: &Value) -> String {
    let mut stated: Vec<(String, String, String)> = Vec::new();
    collect("", file, &mut stated);
    let longest = stated.iter().map(|(field, ..)| field.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (place, (field, value, source)) in stated.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {field:longest$}  {value}");
        if stated.get(place + 1).is_none_or(|(_, _, next)| next != source) {
            let _ = writeln!(text, "      {source}");
        }
    }
    text
}

/// The field, the value with its unit, and the source of everything that has a source.
fn collect(path: &str, value: &Value, stated: &mut Vec<(String, String, String)>) {
    let Some(fields) = value.as_object() else { return };
    if let Some(source) = fields.get("source").and_then(Value::as_str) {
        let unit = fields.get("unit").and_then(Value::as_str).filter(|unit| *unit != "1" && *unit != "count");
        let parts = ["kind", "links", "sizes", "value"].iter().filter_map(|part| fields.get(*part));
        let words = parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
        let words: Vec<String> = words.chain(unit.map(str::to_owned)).collect();
        stated.push((path.to_owned(), words.join(" "), source.to_owned()));
        return;
    }
    for (name, inner) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(&path, inner, stated);
    }
}
