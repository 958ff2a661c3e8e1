//! The programs of a plan, and what their devices hold, as a page draws them.

use std::fmt;

use plan::{Generation, Holding, Pipeline, Plan, strategy};
use planner_ir::Phase;
use search::Section;
use serde_json::{Value, json};

use crate::explained::{self, BlockStory, MoveStory, OperationStory};

/// A program: a step, the step of prompts or of a token, or a stage of a pipeline, and where it runs.
#[derive(Debug)]
pub struct Program<'a> {
    /// What it is called.
    pub name: String,
    /// Its plan.
    pub plan: &'a Plan,
    /// On which devices it runs: the first, for each copy of the same program.
    pub first_devices: Vec<u64>,
    /// Of which stages it is.
    pub stages: Vec<usize>,
}

impl<'a> Program<'a> {
    /// That of a plan.
    pub fn of_plan(plan: &'a Plan) -> Vec<Self> {
        vec![Self { name: "step".to_owned(), plan, first_devices: vec![0], stages: vec![0] }]
    }

    /// Those of generation.
    pub fn of_generation(generation: &'a Generation) -> Vec<Self> {
        let one = |(name, plan): (&str, &'a Plan)| Self {
            name: name.to_owned(),
            plan,
            first_devices: vec![0],
            stages: vec![0],
        };
        generation.plans().map(one).collect()
    }

    /// Those of a pipeline's stages: those that compute alike once.
    pub fn of_pipeline(pipeline: &'a Pipeline) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (number, stage) in pipeline.stages.iter().enumerate() {
            let plan = &stage.plan;
            // Names differ from layer to layer; what is computed, how and in which time need not.
            let same = |it: &&mut Self| {
                it.plan.mesh == plan.mesh
                    && it.plan.assignments == plan.assignments
                    && it.plan.transfers == plan.transfers
                    && it.plan.memory == plan.memory
            };
            match all.iter_mut().find(same) {
                Some(known) => {
                    known.first_devices.push(stage.first_device);
                    known.stages.push(number);
                }
                None => all.push(Self {
                    name: String::new(),
                    plan,
                    first_devices: vec![stage.first_device],
                    stages: vec![number],
                }),
            }
        }
        for it in &mut all {
            it.name = Stages(&it.stages).to_string();
        }
        all
    }
}

/// Numbers of stages in words.
struct Stages<'a>(&'a [usize]);

impl fmt::Display for Stages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => write!(f, "stage {one}"),
            [first, .., last] if last - first + 1 == self.0.len() => write!(f, "stages {first} to {last}"),
            all => {
                let all: Vec<String> = all.iter().map(usize::to_string).collect();
                write!(f, "stages {}", all.join(", "))
            }
        }
    }
}

/// Programs and their blocks, each with its operations as they are computed. Times are in seconds.
pub fn programs(programs: &[(Program<'_>, Vec<Section>)]) -> Vec<Value> {
    let one = |(program, sections): &(Program<'_>, Vec<Section>)| {
        let plan = program.plan;
        let axes = plan.mesh.axes.iter().map(|axis| json!([axis.name, axis.size]));
        let returned: Vec<Value> = explained::returned(plan).iter().map(moved).collect();
        json!({
            "name": program.name,
            "seconds": plan.seconds(),
            "axes": axes.collect::<Vec<Value>>(),
            "devices": plan.mesh.devices(),
            "first_devices": program.first_devices,
            "stages": program.stages,
            "strategy": strategy(plan),
            "blocks": explained::blocks(plan, sections).iter().map(|it| block(plan, it)).collect::<Vec<_>>(),
            "returned": returned,
        })
    };
    programs.iter().map(one).collect()
}

fn block(plan: &Plan, story: &BlockStory) -> Value {
    let operations: Vec<Value> = story.operations.iter().map(|it| operation(plan, it)).collect();
    json!({
        "name": story.name,
        "count": story.count,
        "kept": story.kept.as_ref().map(|it| it.in_words()),
        "operations": operations,
    })
}

fn operation(plan: &Plan, story: &OperationStory) -> Value {
    let phase = plan.graph.node(story.node).phase;
    json!({
        "name": story.origin,
        "kind": story.kind,
        "phase": if plan.recipe.is_some() { Some(phase) } else { None }.map(Phase::name),
        "choice": story.choice,
        "partition": story.partition,
        "seconds": story.seconds,
        "moves": story.moves.iter().map(moved).collect::<Vec<_>>(),
    })
}

fn moved(story: &MoveStory) -> Value {
    json!({
        "value": story.value,
        "moves": story.moves,
        "bytes": story.bytes,
        "seconds": story.seconds,
    })
}

/// What devices hold: for each group of them that do, by kind. Sizes are in bytes of one device.
pub fn groups(all: &[(u64, u64, &[Holding], u64)]) -> Vec<Value> {
    let one = |&(first, devices, holdings, capacity): &(u64, u64, &[Holding], u64)| {
        let kinds = holdings.iter().map(|it| json!({ "kind": it.kind, "bytes": it.bytes }));
        json!({
            "first_device": first,
            "devices": devices,
            "capacity": capacity,
            "holdings": kinds.collect::<Vec<Value>>(),
        })
    };
    all.iter().map(one).collect()
}
