//! `import`: what a model is.

use std::fmt::Write as _;

use ::plan::Control;
use cost_models::quantity;
use driver::compile;
use driver::pipeline::{self, Prepared, Stage};
use files::Failure;
use files::given;
use planner_ir::Graph;
use report::attention::Found;
use report::explanation::kept_whole;
use serde_json::{Value, json};

use super::{Context, Said, stopped};
use crate::arguments::ImportArguments;
use driver::compile::Imported;

/// Imports a model.
pub(crate) fn import(arguments: &ImportArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let stages = &mut *context.stages;
    let mut observe = |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
    let model = (arguments.model.as_path(), compile::Use::Forward);
    let imported = compile::imported(model, &arguments.bound.bound(), None, &mut observe, context.progress)?;
    if stages.stops_after(Stage::Import) {
        return Ok(stopped(Stage::Import));
    }
    context.progress.say("naming operations");
    let prepared = pipeline::prepare(&imported.graph, &mut |stage, made| stages.observe(stage, made))?;

    let found = Found::of([&prepared.graph]).after(&imported.warnings);
    let mut json = json(&imported, &prepared);
    found.say(&mut json, &|words| context.warn(words));
    Ok(Said { text: text(&imported, &prepared, &found), json })
}

/// For people.
fn text(imported: &Imported, prepared: &Prepared, found: &Found) -> String {
    let (graph, raised) = (&prepared.graph, &prepared.raised);
    let (weights, bytes) = weights(graph);
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    line(format!("model      {}", imported.header.path));
    line(format!("sha256     {}", imported.header.sha256));
    for (name, size) in &imported.header.dims {
        line(format!("dimension  {name} = {size}"));
    }
    for (name, type_) in given::expected(graph) {
        line(format!("input      {name} {type_}"));
    }
    for Control { name, .. } in &imported.controls {
        line(format!("control    {name} decides what is computed; its value is part of the program"));
    }
    for output in &graph.outputs {
        line(format!("output     {} {}", output.name, graph.type_of(output.value)));
    }
    line(format!("weights    {weights}, {}", quantity::bytes(bytes)));
    for file in &imported.file.missing {
        line(format!(
            "missing    weights in `{file}`, which is not there: the model can be planned, but not run"
        ));
    }
    line(format!(
        "operations {} imported, {} in named operations, {} of them in {} unique blocks",
        imported.graph.nodes.len(),
        graph.nodes.len(),
        prepared.sections.iter().map(|it| it.graph.nodes.len()).sum::<usize>(),
        prepared.sections.len()
    ));
    let idioms: Vec<String> = raised.idioms.iter().map(|(name, count)| format!("{count} {name}")).collect();
    line(format!(
        "found      {}",
        if idioms.is_empty() { "no idioms".to_owned() } else { idioms.join(", ") }
    ));
    let kinds: Vec<String> = found.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if !kinds.is_empty() {
        line(format!("attention  {}", kinds.join("; ")));
    }
    let regions = kept_whole(graph);
    if !regions.is_empty() {
        line(format!("kept whole {} (shapes or control flow depend on data)", regions.join(", ")));
    }
    line(format!(
        "e-graphs   {} terms, {} classes, {}",
        raised.terms,
        raised.classes,
        if raised.saturated { "saturated" } else { "not saturated" }
    ));
    text
}

/// For programs.
fn json(imported: &Imported, prepared: &Prepared) -> Value {
    let graph = &prepared.graph;
    let (weights, bytes) = weights(graph);
    let inputs: Vec<Value> = given::expected(graph)
        .into_iter()
        .map(|(name, type_)| json!({ "name": name, "dtype": type_.dtype.name(), "shape": type_.shape }))
        .collect();
    json!({
        "path": imported.header.path,
        "sha256": imported.header.sha256,
        "inputs": inputs,
        "controls": imported.controls.iter().map(|it| &it.name).collect::<Vec<_>>(),
        "outputs": graph.outputs.iter().map(|it| it.name.clone()).collect::<Vec<_>>(),
        "weights": weights,
        "weight_bytes": bytes,
        "missing": imported.file.missing,
        "operations": graph.nodes.len(),
        "idioms": prepared.raised.idioms,
        "kept_whole": kept_whole(graph),
    })
}

/// How many weights a program reads, and their size (bytes).
fn weights(graph: &Graph) -> (usize, u64) {
    let weights = graph
        .values
        .iter()
        .filter(|it| matches!(it.source, planner_ir::Source::Weight(_)))
        .map(|it| it.type_.bytes());
    weights.fold((0, 0), |(count, total), bytes| (count + 1, total + bytes))
}
