//! How a file is broken into lines: one for each entry of a table.

use std::fmt::Write;

use serde::Serialize;

use super::file::Body;
use super::{FORMAT, VERSION};

/// How many values' layouts stand in a line.
const VALUES: usize = 32;

/// The shortest form: no blanks, fields in order, numbers as short as they are read back.
pub(super) fn short<T: Serialize>(it: &T) -> String {
    serde_json::to_string(it).expect("names of fields are strings, and writing to memory does not fail")
}

/// The text of a file.
pub(super) fn text(checksum: &str, body: &Body) -> String {
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
        estimate,
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
        ("estimate", table(estimate)),
        ("memory", table(memory)),
        ("capacity", short(capacity)),
        ("proof", short(proof)),
        ("space", short(space)),
    ];
    let fields: Vec<String> =
        fields.iter().map(|(name, content)| format!("    \"{name}\": {content}")).collect();
    let header =
        format!("\"format\": \"{FORMAT}\",\n  \"version\": {VERSION},\n  \"checksum\": \"{checksum}\"");
    format!("{{\n  {header},\n  \"plan\": {{\n{}\n  }}\n}}\n", fields.join(",\n"))
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
