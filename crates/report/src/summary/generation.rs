//! What is said of plans of generation that were made.

use std::collections::BTreeMap;

use cost_models::cluster::Cluster;
use cost_models::quantity;
use plan::{Cache, Form, Generation, Kept, Plan};
use serde_json::{Value, json};

use super::summary_json;
use crate::throughput;

/// What a plan of generation is, line by line, of which a device holds so much (bytes).
pub fn in_words(generation: &Generation, held: u64) -> Vec<String> {
    let Cache { tokens, mask, positions, logits, kept: _, growth, capacity, dim, slot } = &generation.cache;
    let mut lines = vec![format!("sequences  {} at once, of up to {capacity} tokens", generation.batch())];
    lines.push(match &generation.prefill {
        Some(_) => format!("prompts    {} tokens at a time", generation.width()),
        None => "prompts    token by token".to_owned(),
    });
    let mut roles = vec![format!("tokens `{tokens}`")];
    roles.extend(mask.iter().map(|it| format!("mask `{it}`")));
    roles.extend(positions.iter().map(|it| match it.nodes.len() {
        0 => format!("positions `{}`", it.name),
        1 => format!("positions `{}`, made an input of one node", it.name),
        count => format!("positions `{}`, made an input of {count} nodes", it.name),
    }));
    roles.extend(slot.iter().map(|it| format!("slot `{it}`")));
    roles.push(format!("logits `{logits}`"));
    lines.push(format!("given      {}", roles.join(", ")));
    let parts = |word: &str, kept: &[&Kept], end: &str| {
        let first = kept.first()?;
        let layout = layout(generation, first).unwrap_or_default();
        Some(format!("{word:<11}{} parts such as `{}`, {layout}{end}", kept.len(), first.past))
    };
    let (entries, states): (Vec<&Kept>, Vec<&Kept>) =
        (generation.cache.entries().collect(), generation.cache.states().collect());
    let written = if slot.is_some() { ", single tokens in place" } else { "" };
    lines.extend(parts(
        "cache",
        &entries,
        &format!("; places in dimension {dim}, new ones {}{written}", growth.name()),
    ));
    lines.extend(windows(&entries, *capacity));
    lines.extend(parts("states", &states, "; as large after each token"));
    lines.push(format!(
        "memory     {} of {} on a device, {}",
        quantity::bytes(held),
        quantity::bytes(generation.capacity),
        if generation.prefill.is_some() { "of both steps, which take turns" } else { "of the step" }
    ));
    lines
}

/// How many parts have how many places, where these are not all.
fn windows(entries: &[&Kept], capacity: u64) -> Option<String> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    entries.iter().for_each(|it| *counts.entry(it.window.unwrap_or(capacity)).or_default() += 1);
    let is_all = counts.keys().all(|it| *it == capacity);
    let each: Vec<String> =
        counts.iter().map(|(places, count)| format!("{count} parts of {places} places")).collect();
    (!is_all).then(|| format!("windows    {}", each.join(", ")))
}

/// The type and the layout of each part of the cache.
pub fn layouts(generation: &Generation) -> Vec<String> {
    let parts = generation.cache.kept.iter();
    parts.map(|it| layout(generation, it).unwrap_or_default()).collect()
}

/// The layout of a part of the cache.
fn layout(generation: &Generation, part: &Kept) -> Option<String> {
    let plan: &Plan = &generation.decode;
    let present = &part.present;
    let place = plan.graph.outputs.iter().position(|it| it.name == *present)?;
    let (output, copy) = (&plan.graph.outputs[place], plan.outputs.get(place)?);
    let layout = plan.layout(output.value, *copy).display(&plan.mesh).to_string();
    Some(format!("{} {layout}", plan.graph.type_of(output.value)))
}

/// The same for programs.
pub fn in_json(generation: &Generation, held: u64, on: Option<&Cluster>) -> Value {
    let cache = &generation.cache;
    let kept = |it: &Kept| {
        let mut part = json!({ "past": it.past, "present": it.present });
        if it.form == Form::State {
            part["form"] = json!("state");
        }
        if let Some(window) = it.window {
            part["window"] = json!(window);
        }
        part
    };
    let kept: Vec<Value> = cache.kept.iter().map(kept).collect();
    let of_plan = |plan: &Plan| summary_json(plan, throughput::of_plan(plan, plan.seconds(), on).as_ref());
    json!({
        "held_bytes": held,
        "batch": generation.batch(),
        "width": generation.width(),
        "capacity": cache.capacity,
        "cache": { "growth": cache.growth.name(), "dim": cache.dim, "slot": cache.slot, "kept": kept },
        "prefill": generation.prefill.as_ref().map(of_plan),
        "decode": of_plan(&generation.decode),
    })
}
