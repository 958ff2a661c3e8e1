//! `check`: a plan or a pipeline against the rules, its programs, and its model.

use std::fmt::Write as _;
use std::path::Path;

use cost_models::cluster::Cluster;
use driver::evaluated::Evaluated;
use driver::generation::together;
use driver::pipeline::{Target, staged};
use driver::{derived, pipeline};
use files::Failure;
use files::model_file::ModelFile;
use files::{machine, plan_file};

use ::plan::json::Content;
use ::plan::{Cache, Holding, MachineName, Pipeline, Plan};
use lower::{LowerError, Program};
use planner_ir::{Graph, Source};
use serde_json::json;

use super::{Context, Said};
use crate::arguments::CheckArguments;
use driver::training::derived_pipeline;

/// What a check has found.
#[derive(Default)]
struct Checked {
    /// What is right.
    passed: Vec<String>,
    /// What cannot be known.
    unknown: Vec<String>,
}

/// What the prices of a machine do not make of what a plan says, if there is something.
type Mispriced<'a> = &'a dyn Fn(&Cluster) -> Result<Option<String>, Failure>;

impl Checked {
    fn pass(&mut self, line: impl Into<String>) {
        self.passed.push(line.into());
    }

    fn without(mut self, unknown: String) -> Self {
        self.unknown.push(unknown);
        self
    }

    /// The programs, verified; none where they are too many to be made at once.
    fn programs(
        &mut self,
        budget: Result<(), LowerError>,
        lower: impl FnOnce() -> Result<Vec<Program>, Failure>,
    ) -> Result<Option<Vec<Program>>, Failure> {
        if let Err(error @ LowerError::TooMany { .. }) = budget {
            self.unknown.push(format!("not known: whether its programs do what it says, for {error}"));
            return Ok(None);
        }
        let programs = lower()?;
        let instructions: usize = programs.iter().map(|program| program.instructions.len()).sum();
        self.pass(format!("its {} programs, {instructions} instructions, are verified", programs.len()));
        Ok(Some(programs))
    }

    /// Refuses times that the prices of a plan's machine do not make.
    fn times(
        &mut self,
        planned: &MachineName,
        arguments: &CheckArguments,
        mispriced: Mispriced<'_>,
    ) -> Result<(), Failure> {
        let given = machine::given(planned, arguments.machine.as_deref(), &arguments.set.settings);
        let given = given.as_deref();
        let unknown =
            |why: String| format!("not known: whether these are the times of its machine, for {why}");
        let cluster = match machine::priced_as(planned, given) {
            Ok(cluster) => cluster,
            Err(failure) if given.is_some() => return Err(failure),
            Err(failure) => {
                self.unknown.push(unknown(failure.to_string()));
                return Ok(());
            }
        };
        match (mispriced(&cluster)?, &planned.sha256) {
            (None, _) => self.pass(format!("its times are those of the prices of `{}`", planned.name)),
            (Some(_), None) if given.is_none() => self.unknown.push(unknown(format!(
                "the plan does not say by which prices of `{}` it was made; give the machine with `--machine`",
                planned.name
            ))),
            (Some(wrong), _) => {
                return Err(Failure::file(&arguments.plan, format!("the plan is rejected: {wrong}")));
            }
        }
        Ok(())
    }
}

/// Checks a plan or a pipeline.
pub(crate) fn check(arguments: &CheckArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    context.progress.say("checking the plan");
    let content = plan_file::read_any_checked(&arguments.plan)?;
    let answers = matches!(&content, Content::Plan(plan) if plan.recipe.is_none());
    if arguments.inputs.is_some() && !answers {
        let message =
            "`--inputs` goes with a plan that answers; other plans are checked on inputs that are made";
        return Err(Failure::Usage(message.to_owned()));
    }
    let Checked { passed, unknown } = match content {
        Content::Plan(plan) => check_plan(&plan, None, arguments, context)?,
        Content::Pipeline(pipeline) => check_pipeline(&pipeline, arguments, context)?,
        Content::Generation(generation) => {
            let rules = ::plan::GENERATION_RULES.len();
            let mut all = Checked::default();
            all.pass(format!("its plans and their cache obey {rules} rules of generation"));
            let held = together::fit_together(&generation);
            let held = held.map_err(|error| Failure::file(&arguments.plan, error))?;
            let capacity = generation.capacity;
            all.pass(format!("a device holds {held} bytes of its steps, which take turns, of {capacity}"));
            for (name, plan) in generation.plans() {
                let of_one = check_plan(plan, Some(&generation.cache), arguments, context)?;
                let named = |line: String| format!("{name}: {line}");
                all.passed.extend(of_one.passed.into_iter().map(named));
                all.unknown.extend(of_one.unknown.into_iter().map(named));
            }
            all
        }
    };
    let mut text = String::new();
    for (mark, line) in passed.iter().map(|line| ("ok", line)).chain(unknown.iter().map(|line| ("--", line)))
    {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{mark}  {line}");
    }
    Ok(Said { text, json: json!({ "accepted": true, "passed": passed, "unknown": unknown }) })
}

/// The model that a plan is checked against: the one that is given; without it that of a training step,
/// which `train` would derive from it, where the plan says, or why that is not known.
fn model_of(
    arguments: &CheckArguments,
    named: &::plan::ModelFile,
    is_trained: bool,
) -> Result<Result<ModelFile, String>, Failure> {
    let path = &arguments.plan;
    match &arguments.model {
        Some(model) => plan_file::named_model(path, named, Some(model)).map(Ok),
        None if is_trained => {
            let found = plan_file::named_model(path, named, None);
            Ok(found.map_err(|failure| {
                format!("not known: whether its program is the training step of its recipe, for {failure}")
            }))
        }
        None => {
            let message = "not known: whether it computes what its model does; give the model with `--model`";
            Ok(Err(message.to_owned()))
        }
    }
}

fn check_pipeline(
    pipeline: &Pipeline,
    arguments: &CheckArguments,
    context: &mut Context<'_, '_>,
) -> Result<Checked, Failure> {
    let path = &arguments.plan;
    let stages = pipeline.stages.len();
    let mut checked = Checked::default();
    checked.pass(format!("the plans of its {stages} stages obey all {} rules", ::plan::RULES.len()));
    checked.pass(format!("what crosses between them fits, and its schedule of {stages} stages can be kept"));
    context.progress.say("checking the programs");
    let observed = &mut *context.stages;
    let programs = checked.programs(lower::pipeline_within_budget(pipeline), || {
        pipeline::lower_pipeline(pipeline, &mut |stage, made| observed.observe(stage, made))
    })?;
    let of_lowering = |error| Failure::internal("lower", error);
    let memory = lower::pipelined(pipeline).and_then(|it| it.memory()).map_err(of_lowering)?;
    let groups = pipeline.memory.len().max(memory.len());
    for group in 0..groups {
        let none = Vec::new();
        let of = |all: &[Vec<Holding>]| all.get(group).unwrap_or(&none).clone();
        holds(path, &format!("a device of group {group}"), &of(&pipeline.memory), &of(&memory))?;
    }
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let alone = lower::memory(&stage.plan).map_err(of_lowering)?;
        holds(path, &format!("a device of stage {number} by itself"), &stage.plan.memory, &alone)?;
    }
    checked.pass("they hold what the pipeline says, byte for byte");
    checked.times(&pipeline.machine, arguments, &|cluster| staged::mispriced(pipeline, cluster))?;
    context.progress.say("checking against the model");
    let first = pipeline.stages.first();
    let first = first.ok_or_else(|| Failure::file(path, "is a pipeline without stages"))?;
    let file = match model_of(arguments, &first.plan.model, true)? {
        Ok(file) => file,
        Err(unknown) => return Ok(checked.without(unknown)),
    };
    checked.pass("the model is the one that was planned");
    for stage in &pipeline.stages {
        let refused = |error: String| Failure::file(path, format!("the plan is rejected: {error}"));
        weights(&stage.plan.graph, &file).map_err(refused)?;
    }
    checked.pass("its weights are there, of the types that the stages say");
    let graph = derived_pipeline(path, pipeline, &file)?;
    let operations = graph.nodes.len();
    checked.pass(format!(
        "its stages are the training step of its recipe ({operations} operations), cut as it says"
    ));
    // What takes as long as a step is done where it is asked for.
    if let (true, Some(programs)) = (arguments.model.is_some(), &programs) {
        let evaluated = Evaluated {
            path,
            graph: &graph,
            controls: &[],
            file: &file,
            programs,
            turned: None,
            inputs: None,
        };
        checked.passed.extend(evaluated.step()?);
    }
    Ok(checked)
}

/// Refuses what says of a device's memory something else than programs take.
fn holds(path: &Path, what: &str, said: &[Holding], found: &[Holding]) -> Result<(), Failure> {
    if said == found {
        return Ok(());
    }
    let words = |holdings: &[Holding]| {
        let each: Vec<String> = holdings.iter().map(|it| format!("{} {}", it.kind, it.bytes)).collect();
        each.join(", ")
    };
    let message = format!(
        "the plan is rejected: it says that {what} holds {} (bytes), its programs hold {}",
        words(said),
        words(found)
    );
    Err(Failure::file(path, message))
}

/// Checks a plan, of generation with what its inputs and outputs are.
fn check_plan(
    plan: &Plan,
    cache: Option<&Cache>,
    arguments: &CheckArguments,
    context: &mut Context<'_, '_>,
) -> Result<Checked, Failure> {
    let path = &arguments.plan;
    let mut checked = Checked::default();
    checked.pass(format!("the plan obeys all {} rules", ::plan::RULES.len()));
    context.progress.say("checking the programs");
    let stages = &mut *context.stages;
    let programs = checked.programs(lower::within_budget(plan), || {
        pipeline::lower(plan, &mut |stage, made| stages.observe(stage, made))
    })?;
    let memory = lower::memory(plan).map_err(|error| Failure::internal("lower", error))?;
    holds(path, "a device", &plan.memory, &memory)?;
    checked.pass("they hold what the plan says, byte for byte");
    checked.times(&plan.machine, arguments, &|cluster| {
        let machine = machine::single(cluster)?;
        Ok(search::mispriced(plan, &pipeline::prices(&Target::of(&machine, &plan.mesh))?))
    })?;
    context.progress.say("checking against the model");
    let file = match model_of(arguments, &plan.model, plan.recipe.is_some())? {
        Ok(file) => file,
        Err(unknown) => return Ok(checked.without(unknown)),
    };
    checked.pass("the model is the one that was planned");
    let refused = |error: String| Failure::file(path, format!("the plan is rejected: {error}"));
    weights(&plan.graph, &file).map_err(refused)?;
    checked.pass("its weights are there, of the types that the plan says");
    let inputs = arguments.inputs.as_deref();
    let (graph, controls) = (&plan.graph, &plan.controls[..]);
    let evaluated = programs.as_deref().map(|programs| Evaluated {
        path,
        graph,
        controls,
        file: &file,
        programs,
        turned: derived::turned(plan, cache),
        inputs,
    });
    match &plan.recipe {
        None => {
            if let Some(evaluated) = evaluated {
                checked.passed.extend(evaluated.outputs(derived::imported(&file, plan, cache))?);
            }
        }
        Some(recipe) => {
            derived::trains(path, plan, recipe, &file)?;
            let operations = plan.graph.nodes.len();
            checked.pass(format!("its program is the training step of its recipe ({operations} operations)"));
            // What takes as long as a step is done where it is asked for.
            if let (true, Some(evaluated)) = (arguments.model.is_some(), evaluated) {
                checked.passed.extend(evaluated.step()?);
            }
        }
    }
    Ok(checked)
}

fn weights(graph: &Graph, file: &ModelFile) -> Result<(), String> {
    let mut faults = Vec::new();
    for value in &graph.values {
        // Parameters of a step are of other element types if it computes in them.
        let Source::Weight(name) = &value.source else { continue };
        match file.model.weight_type(name) {
            None => faults.push(format!("the model has no weight `{name}`")),
            Some(type_) if type_ != value.type_ => {
                faults.push(format!("weight `{name}` is {}, the model's is {type_}", value.type_));
            }
            Some(_) => {}
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

#[cfg(test)]
mod tests;
