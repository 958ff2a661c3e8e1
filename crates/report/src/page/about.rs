//! A plan, a pipeline or plans of generation as a page has them: what they are of, and what they come to.

use autoparallel::mesh;
use autoparallel::prepared::cut;
use autoparallel::staged::kind;
use cost_models::quantity::{self, counted};
use plan::json::Content;
use plan::{Holding, MachineName, Pipeline, Plan, strategy};
use search::Section;
use serde_json::{Value, json};

use super::exchanges::Ranks;
use super::parts::{Program, groups};
use crate::summary::proof;

/// The blocks of a plan, if they can be derived.
pub type Sections<'a> = &'a dyn Fn(&Plan) -> Option<Vec<Section>>;

/// A plan, a pipeline or plans of generation, as a page has them.
pub struct About<'a> {
    /// What it is.
    pub content: &'a Content,
    /// What it is called.
    pub title: String,
    /// What it is of, in words.
    pub facts: Vec<(&'static str, String)>,
    /// For which machine.
    pub machine: &'a MachineName,
    /// What a step is expected to take (seconds).
    pub seconds: f64,
    /// What is proven of it, in words.
    pub proof: String,
    /// What no plan is below (seconds).
    pub lower_bound: Option<f64>,
    /// The terms of the step.
    pub terms: Vec<Value>,
    /// What runs beside computing (seconds).
    pub hidden: f64,
    /// Its programs, and how each is cut into blocks.
    pub programs: Vec<(Program<'a>, Vec<Section>)>,
}

impl<'a> About<'a> {
    /// Of what a file has; `sections` knows the blocks of a plan, if they can be derived.
    pub fn of(content: &'a Content, sections: Sections<'_>) -> Self {
        match content {
            Content::Plan(plan) => Self::of_plan(content, plan, Program::of_plan(plan), sections),
            Content::Pipeline(pipeline) => Self::of_pipeline(content, pipeline),
            Content::Generation(generation) => {
                let about =
                    Self::of_plan(content, &generation.decode, Program::of_generation(generation), sections);
                let each = generation.plans().map(|(name, plan)| {
                    (name, format!("{}, {}", quantity::seconds(plan.seconds()), proof(plan)))
                });
                Self { facts: about.facts.into_iter().chain(each).collect(), ..about }
            }
        }
    }

    /// Of generation, that of a token.
    fn of_plan(
        content: &'a Content,
        plan: &'a Plan,
        programs: Vec<Program<'a>>,
        sections: Sections<'_>,
    ) -> Self {
        let cut = |it: Program<'a>| {
            let sections = sections(it.plan).unwrap_or_else(|| vec![Section::whole(&it.plan.graph)]);
            (it, sections)
        };
        Self {
            content,
            title: format!("{} on {}", plan.model.path, plan.machine.name),
            facts: vec![
                ("model", model(&plan.model)),
                (
                    "machine",
                    format!("{}, mesh {} ({})", plan.machine.name, mesh::sizes(&plan.mesh), plan.mesh),
                ),
                ("strategy", strategy(plan).join("; ")),
            ],
            machine: &plan.machine,
            seconds: plan.seconds(),
            proof: proof(plan),
            lower_bound: Some(plan.proof.bound(plan.seconds())),
            terms: terms(&plan.estimate),
            hidden: plan.hidden_seconds(),
            programs: programs.into_iter().map(cut).collect(),
        }
    }

    fn of_pipeline(content: &'a Content, pipeline: &'a Pipeline) -> Self {
        let first = pipeline.stages.first().map(|stage| &stage.plan.model);
        let layout = format!(
            "{}, {} in {}, {} of {}",
            pipeline.machine.name,
            counted(pipeline.stages.len(), "stage"),
            counted(pipeline.schedule.groups.len(), "group"),
            counted(pipeline.micro_batches(), "micro-batch"),
            kind(pipeline).map_or("a schedule of its own", schedule::Kind::name),
        );
        // Of stages that are said nothing is proven of others.
        let lower_bound = Some(pipeline.proof.bound(pipeline.seconds())).filter(|it| *it > 0.0);
        let proof = lower_bound.map_or_else(String::new, |bound| {
            match quantity::gap(pipeline.seconds() / bound - 1.0) {
                Some(gap) => {
                    format!("at most {gap} above a proven bound, {}", quantity::seconds(bound))
                }
                None => "no setup is faster".to_owned(),
            }
        });
        let whole = |it: Program<'a>| {
            let sections = cut(&it.plan.graph).sections;
            (it, sections)
        };
        Self {
            content,
            title: format!("{} on {}", first.map_or("", |it| &it.path), pipeline.machine.name),
            facts: vec![("model", first.map(model).unwrap_or_default()), ("machine", layout)],
            machine: &pipeline.machine,
            seconds: pipeline.seconds(),
            proof,
            lower_bound,
            terms: terms(&pipeline.estimate),
            hidden: 0.0,
            programs: Program::of_pipeline(pipeline).into_iter().map(whole).collect(),
        }
    }

    /// What devices hold: all of a plan alike, those of a pipeline's groups.
    pub fn memory(&self, said: &Value) -> Vec<Value> {
        match self.content {
            Content::Plan(plan) => groups(&[of_plan(plan)]),
            Content::Generation(generation) => {
                // Both steps are there at once; their kinds are told of the one that is larger.
                let fullest =
                    generation.plans().map(|(_, plan)| plan).max_by_key(|plan| plan::held(&plan.memory));
                let fullest = fullest.unwrap_or(&generation.decode);
                let beside =
                    said["held_bytes"].as_u64().unwrap_or(0).saturating_sub(plan::held(&fullest.memory));
                let mut holdings = fullest.memory.clone();
                holdings.push(Holding { kind: "the other step".to_owned(), bytes: beside });
                groups(&[(0, fullest.mesh.devices(), &holdings, generation.capacity)])
            }
            Content::Pipeline(pipeline) => {
                let of = |(group, holdings): (usize, &'a Vec<Holding>)| {
                    let own = pipeline.stages.iter().enumerate();
                    let mut own = own.filter(|(number, _)| pipeline.group(*number) == group);
                    let stage = own.next().map(|it| it.1);
                    let (first, devices) =
                        stage.map_or((0, 0), |it| (it.first_device, it.plan.mesh.devices()));
                    (first, devices, &holdings[..], pipeline.capacity_of(group))
                };
                groups(&pipeline.memory.iter().enumerate().map(of).collect::<Vec<_>>())
            }
        }
    }

    /// How the ranks of its programs lie.
    pub fn ranks(&self) -> Vec<Ranks<'a>> {
        match self.content {
            Content::Plan(plan) => vec![Ranks { first: 0, mesh: &plan.mesh, stage: 0 }],
            Content::Generation(it) => vec![Ranks { first: 0, mesh: &it.decode.mesh, stage: 0 }],
            Content::Pipeline(pipeline) => {
                let of = |(stage, it): (usize, &'a plan::Stage)| Ranks {
                    first: it.first_device,
                    mesh: &it.plan.mesh,
                    stage,
                };
                pipeline.stages.iter().enumerate().map(of).collect()
            }
        }
    }
}

fn of_plan(plan: &Plan) -> (u64, u64, &[Holding], u64) {
    (0, plan.mesh.devices(), &plan.memory, plan.capacity)
}

fn model(model: &plan::ModelFile) -> String {
    let dims: Vec<String> = model.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    format!("{} {}", model.path, dims.join(", ")).trim_end().to_owned()
}

fn terms(all: &[plan::Term]) -> Vec<Value> {
    all.iter().map(|it| json!({ "name": it.name, "seconds": it.seconds })).collect()
}
