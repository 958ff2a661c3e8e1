//! How a file is broken into lines: one for each entry of a table.

use std::fmt::Write;

use serde::Serialize;

use super::file::{Body, GenerationBody, PipelineBody, Stage};
use super::{FORMAT, GENERATION_FORMAT, GENERATION_VERSION, PIPELINE_FORMAT, PIPELINE_VERSION, VERSION};

/// How many values' layouts stand in a line.
const VALUES: usize = 32;

/// The shortest form: no blanks, fields in order, numbers as short as they are read back.
pub(super) fn short<T: Serialize>(it: &T) -> String {
    serde_json::to_string(it).expect("names of fields are strings, and writing to memory does not fail")
}

/// The text of a plan's file.
pub(super) fn text(checksum: &str, body: &Body) -> String {
    let header = header(FORMAT, VERSION, checksum);
    format!("{{\n  {header},\n  \"plan\": {{\n{}\n  }}\n}}\n", fields(body))
}

/// The text of a pipeline's file.
pub(super) fn pipeline(checksum: &str, body: &PipelineBody) -> String {
    let PipelineBody {
        machine,
        devices_per_node,
        schedule,
        crossings,
        recipe,
        estimate,
        memory,
        capacity,
        proof,
        stages,
    } = body;
    let stage = |stage: &Stage| {
        let Stage { first_block, first_device, adapters, plan } = stage;
        let first = format!("\"first_block\":{first_block},\"first_device\":{first_device}");
        let adapters = if *adapters == 1 { String::new() } else { format!(",\"adapters\":{adapters}") };
        format!("{{{first}{adapters},\"plan\": {{\n{}\n  }}}}", fields(plan))
    };
    let stages: Vec<String> = stages.iter().map(stage).collect();
    let all = [
        ("machine", short(machine)),
        ("devices_per_node", short(devices_per_node)),
        ("schedule", short(schedule)),
        ("crossings", table(crossings)),
        ("recipe", short(recipe)),
        ("estimate", table(estimate)),
        ("memory", table(memory)),
        ("capacity", short(capacity)),
        ("proof", short(proof)),
        ("stages", rows(&stages)),
    ];
    let all: Vec<String> = all.iter().map(|(name, content)| format!("    \"{name}\": {content}")).collect();
    let header = header(PIPELINE_FORMAT, PIPELINE_VERSION, checksum);
    format!("{{\n  {header},\n  \"pipeline\": {{\n{}\n  }}\n}}\n", all.join(",\n"))
}

/// The text of a file of generation.
pub(super) fn generation(checksum: &str, body: &GenerationBody) -> String {
    let GenerationBody { cache, prefill, decode, capacity } = body;
    let plan = |plan: &Body| format!("{{\n{}\n  }}", fields(plan));
    let mut all = vec![
        ("cache", short(cache)),
        ("prefill", prefill.as_ref().map_or("null".to_owned(), plan)),
        ("decode", plan(decode)),
    ];
    all.extend(capacity.iter().map(|it| ("capacity", short(it))));
    let all: Vec<String> = all.iter().map(|(name, content)| format!("    \"{name}\": {content}")).collect();
    let header = header(GENERATION_FORMAT, GENERATION_VERSION, checksum);
    format!("{{\n  {header},\n  \"generation\": {{\n{}\n  }}\n}}\n", all.join(",\n"))
}

fn header(format: &str, version: u64, checksum: &str) -> String {
    format!("\"format\": \"{format}\",\n  \"version\": {version},\n  \"checksum\": \"{checksum}\"")
}

/// The fields of a plan.
fn fields(body: &Body) -> String {
    // Every field is named, so that a new one is not forgotten here.
    let Body {
        model,
        machine,
        mesh,
        graph,
        layouts,
        partitions,
        values,
        operations,
        transfers,
        outputs,
        carried,
        recipe,
        pins,
        controls,
        estimate,
        hidden,
        memory,
        capacity,
        proof,
        space,
    } = body;
    let values: Vec<String> = values
        .chunks(VALUES)
        .map(|chunk| chunk.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
        .collect();
    let fields = [
        ("model", short(model)),
        ("machine", short(machine)),
        ("mesh", short(mesh)),
        ("graph", table(graph)),
        ("layouts", table(layouts)),
        ("partitions", table(partitions)),
        ("values", rows(&values)),
        ("operations", table(operations)),
        ("transfers", table(transfers)),
        ("outputs", short(outputs)),
        ("carried", short(carried)),
        ("recipe", short(recipe)),
        ("pins", table(pins)),
        ("controls", table(controls)),
        ("estimate", table(estimate)),
        ("hidden", short(hidden)),
        ("memory", table(memory)),
        ("capacity", short(capacity)),
        ("proof", short(proof)),
        ("space", short(space)),
    ];
    // These are missing where they say nothing.
    let nothing =
        [("pins", pins.is_empty()), ("controls", controls.is_empty()), ("hidden", hidden.is_nothing())];
    let fields = fields.iter().filter(|(name, _)| !nothing.contains(&(*name, true)));
    let fields: Vec<String> = fields.map(|(name, content)| format!("    \"{name}\": {content}")).collect();
    fields.join(",\n")
}

fn table<T: Serialize>(entries: &[T]) -> String {
    rows(&entries.iter().map(short).collect::<Vec<String>>())
}

fn rows(rows: &[String]) -> String {
    if rows.is_empty() {
        return "[]".to_owned();
    }
    let mut text = "[".to_owned();
    for (index, row) in rows.iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let written = write!(text, "{separator}\n      {row}");
        written.expect("writing to memory does not fail");
    }
    text + "\n    ]"
}
