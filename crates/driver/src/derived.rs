//! How the program of a plan comes about: from its model again.

use std::path::Path;

use files::Failure;
use files::model_file::ModelFile;
use files::{given, plan_file};
use import::{Bindings, ImportError, Positions};
use plan::{Cache, Control, Growth, Pipeline, Plan, Recipe};
use planner_ir::{Graph, Type};
use search::{Section, fold};
use train::Step;

use crate::generation::ring;
use crate::generation::turned::Turned;
use crate::generation::written::in_place;
use crate::pipeline::{self, Decisions, Phases, Prepared, Training, parameters};

/// The program of a plan as it was before it was planned, but for training: the model imported, or of generation the
/// step with the places of its cache that it sees, which writes the entry of one token in place.
pub fn step(file: &ModelFile, plan: &Plan, cache: Option<&Cache>) -> Result<Graph, ImportError> {
    let imported = imported(file, plan, cache)?;
    if let Some(cache) = cache.filter(|it| it.growth != Growth::Behind && width(plan, it) == Some(1)) {
        return Ok(in_place(&imported, &cache.kept));
    }
    let Some(turned) = turned(plan, cache) else { return Ok(imported) };
    ring::planned(imported, turned.cache, turned.width).map_err(ImportError::Binding)
}

/// How many new tokens a plan's step takes.
fn width(plan: &Plan, cache: &Cache) -> Option<u64> {
    let inputs = given::expected(&plan.graph);
    let (_, tokens) = inputs.iter().find(|(name, _)| *name == cache.tokens)?;
    tokens.shape.get(1).copied()
}

/// How the step of a plan holds its cache, where that is not as the model does.
pub fn turned<'a>(plan: &Plan, cache: Option<&'a Cache>) -> Option<Turned<'a>> {
    let cache = cache?;
    let width = width(plan, cache)?;
    let is_other = cache.is_written(width) || cache.has_windows();
    is_other.then_some(Turned { cache, width, slot: 0 })
}

/// The shape of an input as the model's own step has it.
fn shape(plan: &Plan, cache: Option<&Cache>, name: &str, type_: &Type) -> Vec<u64> {
    let mut shape = type_.shape.clone();
    if let Some(Turned { cache, width, .. }) = turned(plan, cache)
        && cache.entries().any(|it| it.past == name)
        && let Some(places) = shape.get_mut(cache.dim)
    {
        *places = cache.growth.found(cache.capacity, width);
    }
    shape
}

/// The model of a plan, imported for the sizes of the plan; of generation the model's own step, with the input of
/// positions that the model may lack.
pub fn imported(file: &ModelFile, plan: &Plan, cache: Option<&Cache>) -> Result<Graph, ImportError> {
    let inputs = given::expected(&plan.graph);
    let known = file.model.inputs();
    // Training adds inputs of its own.
    let of_model = |name: &str| known.iter().any(|input| input.name == name);
    let shapes = inputs.iter().filter(|(name, _)| of_model(name));
    let control = |it: &Control| {
        let dtype = known.iter().find(|input| input.name == it.name).map(|input| input.dtype);
        let array = dtype.and_then(|dtype| given::control(it, dtype).ok());
        let wrong = || ImportError::Binding(format!("`{}` has no value {}", it.name, it.value));
        Ok((it.name.clone(), array.ok_or_else(wrong)?))
    };
    let bindings = Bindings {
        dims: plan.model.dims.iter().cloned().collect(),
        controls: plan.controls.iter().map(control).collect::<Result<_, ImportError>>()?,
        inputs: shapes.map(|(name, type_)| ((*name).to_owned(), shape(plan, cache, name, type_))).collect(),
        positions: cache.and_then(|cache| positions(plan, cache)),
        parameters: plan.recipe.iter().flat_map(|it| parameters::single(file, &it.roles)).collect(),
    };
    pipeline::import(file, &bindings, &mut |_, _| {})
}

/// The model of a pipeline, imported for its sizes.
pub fn imported_pipeline(file: &ModelFile, pipeline: &Pipeline) -> Result<Graph, ImportError> {
    let known = file.model.inputs();
    let of_model = |name: &str| known.iter().any(|input| input.name == name);
    let graphs = pipeline.stages.iter().map(|stage| &stage.plan.graph);
    let inputs = graphs.flat_map(given::expected);
    let inputs = inputs.into_iter().filter(|(name, _)| of_model(name));
    let dims = pipeline.stages.iter().flat_map(|stage| stage.plan.model.dims.iter().cloned());
    let bindings = Bindings {
        dims: dims.collect(),
        inputs: inputs.map(|(name, type_)| (name.to_owned(), type_.shape.clone())).collect(),
        parameters: parameters::single(file, &pipeline.recipe.roles),
        ..Bindings::default()
    };
    pipeline::import(file, &bindings, &mut |_, _| {})
}

/// The positions that a step is given which its model has follow from the length of the past.
fn positions(plan: &Plan, cache: &Cache) -> Option<Positions> {
    let positions = cache.positions.as_ref().filter(|it| !it.nodes.is_empty())?;
    let inputs = given::expected(&plan.graph);
    let type_of = |name: &str| inputs.iter().find(|(it, _)| *it == name).map(|(_, type_)| *type_);
    let [batch, width] = type_of(&cache.tokens)?.shape[..] else { return None };
    let past = &cache.entries().next()?.past;
    let past = shape(plan, Some(cache), past, type_of(past)?);
    Some(Positions {
        name: positions.name.clone(),
        start: *past.get(cache.dim)?,
        batch,
        width,
        nodes: positions.nodes.iter().cloned().collect(),
    })
}

/// A program as it was before it was planned, and the blocks of its plan, if that can be cut.
pub type Before = (Prepared, Option<Vec<Section>>);

/// The program of a plan as it was before it was planned, cut into its blocks, and the blocks of the plan, if that can
/// be cut. That of a training step is derived again, from the model; where that is not there, or another program comes
/// of it, there is nothing.
pub fn prepared(path: &Path, plan: &Plan) -> Result<Option<Before>, Failure> {
    let Some(recipe) = &plan.recipe else {
        let prepared = pipeline::cut(&plan.graph);
        let sections = (prepared.graph == plan.graph).then(|| prepared.sections.clone());
        return Ok(Some((prepared, sections)));
    };
    let Ok(file) = plan_file::model(path, plan, None) else { return Ok(None) };
    let Ok(imported) = imported(&file, plan, None) else { return Ok(None) };
    let (step, raised) = pipeline::derived(&file, &imported, recipe)?;
    let planned = step.joined_as(&plan.graph);
    if planned.graph != plan.graph {
        return Ok(None);
    }
    let sections = |it: &Step| fold(&it.graph, &it.homes, &it.forward);
    let prepared = Prepared {
        sections: sections(&step),
        graph: step.graph,
        raised,
        variants: None,
        pinned: None,
        fixed: Vec::new(),
    };
    Ok(Some((prepared, Some(sections(&planned)))))
}

/// The same with recomputation and how operations are spelled left open: the program of a plan as it was before it
/// was planned. Nothing where the model is not there.
pub fn open(path: &Path, plan: &Plan) -> Result<Option<Prepared>, Failure> {
    let Ok(file) = plan_file::model(path, plan, None) else { return Ok(None) };
    let Ok(imported) = imported(&file, plan, None) else { return Ok(None) };
    let Some(recipe) = &plan.recipe else { return pipeline::prepare(&imported, &mut |_, _| {}).map(Some) };
    let recipe = Recipe { recompute: Vec::new(), ..recipe.clone() };
    let training = Training { recipe, decisions: Decisions::Values, phases: Phases::Together };
    pipeline::prepare_training(&file, &imported, &training, &mut |_, _| {}).map(Some)
}

/// Whether a plan can be trained: its program has to be the training step that its recipe makes of the model.
pub fn trains(path: &Path, plan: &Plan, recipe: &Recipe, file: &ModelFile) -> Result<(), Failure> {
    let refused = |error: String| Failure::file(path, format!("the plan is rejected: {error}"));
    let imported = imported(file, plan, None)
        .map_err(|error| refused(format!("the model is not of these sizes: {error}")))?;
    if pipeline::derived(file, &imported, recipe)?.0.joined_as(&plan.graph).graph != plan.graph {
        return Err(refused(NOT_ITS_STEP.to_owned()));
    }
    Ok(())
}

/// Why a plan cannot be trained whose program is another.
const NOT_ITS_STEP: &str = "its program is not the training step that its recipe makes of the model";

/// The same of a plan that has just been made: that it cannot be trained is an error of shardloom.
pub fn confirm(path: &Path, plan: &Plan, recipe: &Recipe, file: &ModelFile) -> Result<(), Failure> {
    trains(path, plan, recipe, file).map_err(|failure| Failure::internal("plan", failure))
}
