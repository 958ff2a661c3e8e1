//! Rules of pipelines, besides those of each stage's plan:
//! - **schedule**: every stage is done for every micro-batch, in an order that can be kept.
//! - **stage**: stages follow each other from block 0, are of one model and one recipe, and groups have
//!   the machine's devices among them, each its own.
//! - **crossing**: what a stage takes from others is what they give, of one type, with no sum owed.
//! - **input**: what several stages are given, or read from the model file, is of one type in all.
//! - **precision**: a parameter that is rounded by chance is so by one chance in all stages, and no two
//!   are by the same.
//! - **memory**: it is said of every group, and fits.
//! - **estimate**: no less than what any group does, and no more than everything one after another.
//! - **proof**: the lower bound is no more than the time.

use std::collections::BTreeMap;

use planner_ir::{CROSSING, Graph, Source, State, Type};
use schedule::verify;

use super::{Violations, rounding};
use crate::pipeline::Pipeline;
use crate::plan::{Copy, Plan, Proof};

/// The names of the rules of pipelines, besides those of plans.
pub const PIPELINE_RULES: [&str; 8] =
    ["schedule", "stage", "crossing", "input", "precision", "memory", "estimate", "proof"];

/// How much sums of floating-point numbers may differ, relative to them.
const TOLERANCE: f64 = 1e-9;

/// Whether a pipeline obeys the rules: each stage's plan does, every stage is done for every
/// micro-batch in an order that can be kept, and what a stage takes from others they give.
pub fn check_pipeline(pipeline: &Pipeline) -> Result<(), Violations> {
    let mut found = Violations(Vec::new());
    schedule(pipeline, &mut found);
    if found.0.is_empty() {
        stages(pipeline, &mut found);
        crossings(pipeline, &mut found);
        given_to_several(pipeline, &mut found);
        rounding::between_stages(pipeline, &mut found);
        memory(pipeline, &mut found);
        time(pipeline, &mut found);
    }
    for (number, stage) in pipeline.stages.iter().enumerate() {
        if let Err(Violations(of_plan)) = super::check(&stage.plan) {
            found.0.extend(of_plan.into_iter().map(|mut it| {
                it.place = format!("stage {number}, {}", it.place);
                it
            }));
        }
    }
    found.none_or(())
}

fn schedule(pipeline: &Pipeline, found: &mut Violations) {
    let count = usize::try_from(pipeline.micro_batches()).unwrap_or(usize::MAX);
    if let Err(faults) = verify(pipeline.schedule.clone(), pipeline.stages.len(), count) {
        for fault in faults.0 {
            found.add("schedule", "the schedule", fault);
        }
    }
}

fn stages(pipeline: &Pipeline, found: &mut Violations) {
    let mut groups: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let place = format!("stage {number}");
        let plan = &stage.plan;
        let micro_batches = plan.graph.training.as_ref().map(|training| training.micro_batches);
        if micro_batches != Some(pipeline.micro_batches()) {
            let expected = pipeline.micro_batches();
            found.add(
                "stage",
                &place,
                format!("its micro-batches are {micro_batches:?}, expected {expected}"),
            );
        }
        let before = number.checked_sub(1).map(|it| pipeline.stages[it].first_block);
        if before.map_or(stage.first_block != 0, |before| stage.first_block <= before) {
            let message = format!("it starts at block {}, expected them to ascend from 0", stage.first_block);
            found.add("stage", &place, message);
        }
        let devices = (stage.first_device, plan.mesh.devices());
        let known = *groups.entry(pipeline.group(number)).or_insert(devices);
        if known != devices {
            found.add("stage", &place, "it is on other devices than other stages of its group");
        }
        if stage.adapters == 0 {
            found.add("stage", &place, "its nodes have no adapters to others");
        }
        if plan.model != pipeline.stages[0].plan.model {
            found.add("stage", &place, "it is of another model file than stage 0");
        }
        if plan.recipe.as_ref() != Some(&pipeline.recipe) {
            found.add("stage", &place, "it is of another recipe than the pipeline");
        }
    }
    if pipeline.devices_per_node == 0 {
        found.add("stage", "the stages", "their nodes have no devices");
    }
    let mut next = 0;
    let mut ranges: Vec<(u64, u64)> = groups.into_values().collect();
    ranges.sort_unstable();
    for (first, count) in ranges {
        if first != next {
            found.add(
                "stage",
                "the stages",
                format!("devices from {next} to {first} have none, or several groups"),
            );
        }
        next = first.saturating_add(count);
    }
    if next != pipeline.machine.devices {
        let message = format!("they are on {next} devices, the machine has {}", pipeline.machine.devices);
        found.add("stage", "the stages", message);
    }
}

fn memory(pipeline: &Pipeline, found: &mut Violations) {
    let (said, groups) = (pipeline.memory.len(), pipeline.schedule.groups.len());
    if said != groups {
        found.add("memory", "the groups", format!("memory of {said} of them is said, expected {groups}"));
    }
    for (group, memory) in pipeline.memory.iter().enumerate() {
        let held = memory.iter().fold(0, |sum: u64, it| sum.saturating_add(it.bytes));
        let capacity = pipeline.capacity_of(group);
        if held > capacity {
            let message = format!("holds {held} bytes, and a device may hold {capacity}");
            found.add("memory", format!("group {group}"), message);
        }
    }
}

/// The estimate of a step is between what the group does that has most to do, and all work and all
/// crossings one after another.
fn time(pipeline: &Pipeline, found: &mut Violations) {
    let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
    for term in pipeline.estimate.iter().filter(|term| !is_time(term.seconds)) {
        let message = format!("takes {} seconds, expected a number from 0", term.seconds);
        found.add("estimate", format!("term `{}`", term.name), message);
    }
    let mut groups = vec![0.0; pipeline.schedule.groups.len()];
    for (number, stage) in pipeline.stages.iter().enumerate() {
        groups[pipeline.group(number)] += stage.plan.seconds();
    }
    let least = groups.iter().copied().fold(0.0, f64::max);
    let arrivals = pipeline.crossings.iter().flat_map(|crossing| &crossing.to);
    let runs = u32::try_from(pipeline.micro_batches()).map_or(f64::INFINITY, f64::from);
    let most = groups.iter().sum::<f64>() + runs * arrivals.map(|it| it.seconds).sum::<f64>();
    let said = pipeline.seconds();
    // What is no number is found above, or in a stage.
    if said < least * (1.0 - TOLERANCE) || said > most * (1.0 + TOLERANCE) {
        found.add(
            "estimate",
            "estimate",
            format!("terms add up to {said} seconds, expected from {least} to {most}"),
        );
    }
    if let Proof::Gap { lower_bound } = pipeline.proof
        && !(is_time(lower_bound) && lower_bound <= said * (1.0 + TOLERANCE))
    {
        let message = format!("a lower bound of {lower_bound} seconds, expected from 0 to {said}");
        found.add("proof", "proof", message);
    }
}

/// Every crossing is an output of its stage and an input of the others, of one type, without sums owed;
/// and stages give and take nothing else that is called so.
fn crossings(pipeline: &Pipeline, found: &mut Violations) {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, crossing) in pipeline.crossings.iter().enumerate() {
        let place = format!("crossing {number} (`{}`)", crossing.name);
        if names.insert(&crossing.name, number).is_some() {
            found.add("crossing", &place, "another one is called so");
        }
        let Some(from) = pipeline.stages.get(crossing.from) else {
            found.add("crossing", &place, format!("there is no stage {}", crossing.from));
            continue;
        };
        let Some(type_) = given(&from.plan, &crossing.name) else {
            found.add("crossing", &place, format!("stage {} gives no such output, whole", crossing.from));
            continue;
        };
        let mut before = None;
        for arrival in &crossing.to {
            if arrival.stage == crossing.from || before >= Some(arrival.stage) {
                found.add("crossing", &place, format!("it arrives at stage {} out of order", arrival.stage));
            }
            before = Some(arrival.stage);
            let to = pipeline.stages.get(arrival.stage);
            let taken = to.and_then(|to| taken(&to.plan, &crossing.name));
            if taken.as_ref() != Some(&type_) {
                let message =
                    format!("stage {} does not take it as {type_}, without sums owed", arrival.stage);
                found.add("crossing", &place, message);
            }
            if !(arrival.seconds.is_finite() && arrival.seconds >= 0.0) || arrival.chunks == 0 {
                found.add("crossing", &place, "its seconds are below 0, or its chunks are none");
            }
        }
        if crossing.to.is_empty() {
            found.add("crossing", &place, "it arrives nowhere");
        }
    }
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let graph = &stage.plan.graph;
        let place = format!("stage {number}");
        let of = |name: &str| pipeline.crossings.iter().find(|it| it.name == name);
        for name in graph.outputs.iter().map(|it| &it.name).filter(|it| it.starts_with(CROSSING)) {
            if of(name).is_none_or(|it| it.from != number) {
                found.add("crossing", &place, format!("it gives `{name}`, which is no crossing from it"));
            }
        }
        for name in inputs(graph).filter(|it| it.starts_with(CROSSING)) {
            if of(name).is_none_or(|it| it.to.iter().all(|arrival| arrival.stage != number)) {
                found.add("crossing", &place, format!("it takes `{name}`, which does not arrive there"));
            }
        }
    }
}

/// Inputs, weights and states of one name are of one type: one array is given to all.
fn given_to_several(pipeline: &Pipeline, found: &mut Violations) {
    let mut known: BTreeMap<String, (&Type, usize)> = BTreeMap::new();
    for (number, stage) in pipeline.stages.iter().enumerate() {
        for value in &stage.plan.graph.values {
            let what = match &value.source {
                Source::Result { .. } => continue,
                // Both ends of a crossing are looked at as such.
                Source::Input(name) if name.starts_with(CROSSING) => continue,
                Source::Input(name) => format!("input `{name}`"),
                Source::Weight(name) => format!("weight `{name}`"),
                Source::State(State { kind, name }) => format!("{} `{name}`", kind.name()),
            };
            let place = format!("stage {number}, {what}");
            let (type_, before) = *known.entry(what).or_insert((&value.type_, number));
            if *type_ != value.type_ {
                let message = format!("is {}, expected {type_}, as in stage {before}", value.type_);
                found.add("input", place, message);
            }
        }
    }
}

fn inputs(graph: &Graph) -> impl Iterator<Item = &str> {
    graph.values.iter().filter_map(|value| match &value.source {
        Source::Input(name) => Some(name.as_str()),
        _ => None,
    })
}

/// The type of an output of that name on which no sum is owed.
fn given(plan: &Plan, name: &str) -> Option<Type> {
    let place = plan.graph.outputs.iter().position(|output| output.name == name)?;
    let value = plan.graph.outputs[place].value;
    let layout = match plan.outputs.get(place)? {
        Copy::Made => plan.layouts.get(value.0)?,
        Copy::Transferred(it) => &plan.transfers.get(*it)?.layout,
    };
    layout.owed.is_empty().then(|| plan.graph.type_of(value).clone())
}

/// The type of an input of that name on which no sum is owed.
fn taken(plan: &Plan, name: &str) -> Option<Type> {
    let is_it = |source: &Source| matches!(source, Source::Input(input) if input == name);
    let value = plan.graph.value_ids().find(|&it| is_it(&plan.graph.value(it).source))?;
    plan.layouts.get(value.0)?.owed.is_empty().then(|| plan.graph.type_of(value).clone())
}
