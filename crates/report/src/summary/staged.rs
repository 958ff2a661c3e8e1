//! What is said of a pipeline that was made.

use std::fmt::Write as _;

use autoparallel::mesh;
use cost_models::quantity;
use cost_models::throughput::Throughput;
use plan::{Pipeline, strategy_of_stage};
use serde_json::{Value, json};

use super::proof_json;
use crate::{explained, throughput};

/// What a pipeline comes to, in a few lines, by the name of its schedule.
pub fn summary(pipeline: &Pipeline, schedule: &str, throughput: Option<&Throughput>) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let groups = quantity::counted(pipeline.schedule.groups.len(), "group");
    let micro_batches = quantity::counted(pipeline.micro_batches(), "micro-batch");
    let chunks = pipeline.schedule.chunks;
    let each = if chunks > 1 { format!(", {chunks} stages each") } else { String::new() };
    line(format!(
        "machine    {}, {groups} of devices{each}, {micro_batches}, schedule {}",
        pipeline.machine.name, schedule
    ));
    for (numbers, devices, words) in stages(pipeline) {
        line(format!("stage {numbers:<9} devices {devices}: {words}"));
    }
    for pin in explained::pinned(pipeline.stages.iter().map(|it| &it.plan)) {
        line(format!("pinned     {pin}"));
    }
    line(format!("step       {} predicted", quantity::seconds(pipeline.seconds())));
    for term in pipeline.estimate.iter().filter(|term| term.seconds > 0.0) {
        let part = quantity::percent(term.seconds, pipeline.seconds());
        line(format!("  {:<24} {:>12} {part:>8}", term.name, quantity::seconds(term.seconds)));
    }
    throughput::lines(throughput, 11).into_iter().for_each(&mut line);
    for (group, memory) in pipeline.memory.iter().enumerate() {
        let held = plan::held(memory);
        let kept = memory.iter().filter(|it| it.kind == "activations").map(|it| it.bytes).sum();
        line(format!(
            "memory     group {group}: {} of {}, of which {} for micro-batches under way",
            quantity::bytes(held),
            quantity::bytes(pipeline.capacity_of(group)),
            quantity::bytes(kept)
        ));
    }
    for (count, bytes, strategy, seconds) in crossings(pipeline) {
        line(format!(
            "boundary   {} of {} by {strategy}, {}",
            quantity::counted(count, "transfer"),
            quantity::bytes(bytes),
            quantity::seconds(seconds)
        ));
    }
    text
}

/// Stages, those that are alike together: their numbers, their devices, what they are.
fn stages(pipeline: &Pipeline) -> Vec<(String, String, String)> {
    let mut alike: Vec<(Vec<usize>, String)> = Vec::new();
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let next = pipeline.stages.get(number + 1).map(|next| next.first_block - stage.first_block);
        let blocks = match next {
            Some(count) => quantity::counted(count, "block"),
            None if number == 0 => "all blocks".to_owned(),
            None => format!("blocks from {} to the last", stage.first_block),
        };
        let (times, _) = stage.plan.phases(pipeline.schedule.splits_backward);
        let words = format!(
            "{blocks}, mesh {}, {} forward, {} backward; {}",
            mesh::sizes(&stage.plan.mesh),
            quantity::seconds(times.forward),
            quantity::seconds(times.backward + times.weight),
            strategy_of_stage(pipeline, number).join("; ")
        );
        match alike.last_mut().filter(|(_, known)| *known == words) {
            Some((numbers, _)) => numbers.push(number),
            None => alike.push((vec![number], words)),
        }
    }
    let range = |from: u64, to: u64| if from == to { format!("{from}") } else { format!("{from} to {to}") };
    let shown = |(numbers, words): (Vec<usize>, String)| {
        let place = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let of = |it: usize| &pipeline.stages[it];
        let devices = numbers.iter().map(|&it| of(it).first_device);
        let start = devices.clone().min().unwrap_or(0);
        let end = devices.max().unwrap_or(0) + of(last).plan.mesh.devices() - 1;
        (range(place(first), place(last)), range(start, end), words)
    };
    alike.into_iter().map(shown).collect()
}

/// Boundary transfers, alike ones together: how many, what each brings (bytes), how, how long it takes
/// (seconds).
fn crossings(pipeline: &Pipeline) -> Vec<(usize, u64, &str, f64)> {
    let mut all: Vec<(usize, u64, &str, f64)> = Vec::new();
    for arrival in pipeline.crossings.iter().flat_map(|crossing| &crossing.to) {
        let same = |it: &&mut (usize, u64, &str, f64)| it.1 == arrival.bytes && it.2 == arrival.strategy;
        match all.iter_mut().find(same) {
            Some(it) => (it.0, it.3) = (it.0 + 1, it.3.max(arrival.seconds)),
            None => all.push((1, arrival.bytes, &arrival.strategy, arrival.seconds)),
        }
    }
    all
}

/// The same for programs.
pub fn summary_json(pipeline: &Pipeline, throughput: Option<&Throughput>) -> Value {
    let terms: Vec<Value> =
        pipeline.estimate.iter().map(|it| json!({ "name": it.name, "seconds": it.seconds })).collect();
    let stages: Vec<Value> = pipeline
        .stages
        .iter()
        .enumerate()
        .map(|(number, stage)| {
            let (times, update) = stage.plan.phases(pipeline.schedule.splits_backward);
            json!({
                "first_block": stage.first_block,
                "first_device": stage.first_device,
                "mesh": stage.plan.mesh.to_string(),
                "strategy": strategy_of_stage(pipeline, number),
                "forward": times.forward,
                "backward": times.backward,
                "weight": times.weight,
                "update": update,
            })
        })
        .collect();
    let memory: Vec<Value> = pipeline
        .memory
        .iter()
        .map(|group| group.iter().map(|it| json!({ "kind": it.kind, "bytes": it.bytes })).collect())
        .collect();
    let mut value = json!({
        "machine": pipeline.machine.name,
        "devices": pipeline.machine.devices,
        "micro_batches": pipeline.micro_batches(),
        "schedule": pipeline.schedule.to_string().lines().collect::<Vec<_>>(),
        "seconds": pipeline.seconds(),
        "estimate": terms,
        "stages": stages,
        "memory": memory,
        "capacity": pipeline.capacity,
        "proof": proof_json(&pipeline.proof),
    });
    throughput::add(throughput, &mut value);
    value
}
