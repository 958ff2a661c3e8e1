//! A training step in stages: each planned on its own mesh, what crosses, and in which order.

mod plans; // plans of stages, as few as serve
mod placed; // on which nodes groups of devices lie
mod pinned; // what is fixed of the operations of which blocks
mod kept; // what blocks keep for gradients
mod held_back; // schedules that hold less, where memory ends
mod phase; // in which phase what crosses is made
mod prices; // what a pipeline takes
mod update; // what its update takes
mod mispriced; // what prices do not make of what a pipeline says
mod short; // which stages have to do with less
mod travelling; // the same stages by another schedule, crossing in another way

use std::collections::BTreeMap;
use std::sync::Mutex;

use cost_models::cluster::Cluster;
use files::model_file::ModelFile;
use files::{Failure, Say};
use plan::{Pipeline, Plan, Proof, Recipe, Recompute, Stage, held};
use planner_ir::{Graph, Mesh, ValueId};
use rayon::prelude::*;
use reshard::Strategy;
use rewrite::{Blocks, Steps, joined_as};
use schedule::{Kind, Schedule, StageTimes, Verified, Work, timeline, verify};
use search::cluster::{self, BlockCost};
use search::{Fixed, Live, Rules, Trail};
use train::{Stages, Step};

use crate::choice::is_open;
use crate::parameters;
use crate::prepared::Prepared;
use crate::target::Target;

use held_back::orders;
pub use held_back::{TooMuch, kind, too_much};
use kept::{Again, Cutting, Derived, nameless};
pub use mispriced::mispriced;
pub use placed::{Place, places};
use plans::{Make, Plans, Room, stage};
use prices::{Networks, phases, priced, travelling};
pub use prices::{durations, message};
use short::Short;
pub use travelling::{received, travelling_by};

/// The most chunks in which a value crosses.
const CHUNKS: u64 = 16;

/// What is asked of a pipeline.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The machine, or several, all of whose devices are used.
    pub cluster: &'a Cluster,
    /// The meshes of groups of devices.
    pub meshes: Meshes<'a>,
    /// What a device can hold (bytes); without it, what each machine says.
    pub memory: Option<u64>,
    /// Whether operations may be done in time steps.
    pub steps: Steps,
    /// The order of work.
    pub order: Order,
    /// How many stages each group has.
    pub chunks: usize,
    /// The first block of each stage, if it is not to be chosen.
    pub first: Option<Vec<usize>>,
    /// How operations are computed that a user has fixed.
    pub fixed: &'a [Fixed],
    /// What the axes of all meshes are for, where only plans of a kind are looked at.
    pub rules: Option<&'a Rules>,
    /// Whether the same is computed again of all blocks, as frameworks have it, where that is to be chosen.
    pub alike: bool,
}

/// The meshes of groups of devices, in the order of their ranks.
#[derive(Clone, Copy, Debug)]
pub enum Meshes<'a> {
    /// This of every group: as many as there are devices for.
    Alike(&'a Mesh),
    /// One for each group.
    Each(&'a [Mesh]),
}

/// An order of work.
#[derive(Clone, Debug)]
pub enum Order {
    /// One that has a name.
    Named(Kind),
    /// One that somebody wrote.
    Written(Schedule),
}

/// A recipe that says what the model's weights are.
fn found(file: &ModelFile, imported: &Graph, recipe: &Recipe) -> Result<Recipe, Failure> {
    let roles = parameters::roles(file, imported, &recipe.roles)?.roles;
    Ok(Recipe { roles, ..recipe.clone() })
}

/// A model up to its loss, cut into blocks, as its training step is derived from it.
pub struct Forward {
    blocks: Blocks,
    recipe: Recipe,
}

impl Forward {
    /// Of an imported model.
    pub fn of(file: &ModelFile, imported: &Graph, recipe: &Recipe) -> Result<Self, Failure> {
        Self::again_of(file, imported, &found(file, imported, recipe)?)
    }

    /// The same by a recipe that says what the model's weights are.
    fn again_of(file: &ModelFile, imported: &Graph, recipe: &Recipe) -> Result<Self, Failure> {
        Self::up_to_loss(file, &Self::raised(file, imported, recipe)?, recipe)
    }

    fn raised(file: &ModelFile, imported: &Graph, recipe: &Recipe) -> Result<Graph, Failure> {
        let refused = |error| Failure::file(&file.path, format!("cannot be trained so: {error}"));
        let tied = train::tied(imported, &recipe.roles.ties).map_err(refused)?;
        Ok(rewrite::raise(&tied).map_err(|error| Failure::internal("raise", error))?.graph)
    }

    fn up_to_loss(file: &ModelFile, raised: &Graph, recipe: &Recipe) -> Result<Self, Failure> {
        let refused = |error| Failure::file(&file.path, format!("cannot be trained so: {error}"));
        let blocks = rewrite::blocks(&train::forward(raised, recipe).map_err(refused)?);
        let blocks = rewrite::narrowed(&blocks);
        Ok(Self { blocks, recipe: recipe.clone() })
    }

    /// Whether anything is computed in f16 or bf16.
    fn makes_halves(&self) -> bool {
        let graph = &self.blocks.graph;
        let is_half = |it: &ValueId| graph.type_of(*it).dtype.is_half();
        graph.nodes.iter().any(|node| node.results.iter().any(is_half))
    }

    /// The same, where this is computed again of each block.
    pub fn again(&self, recompute: &Recompute) -> Self {
        self.again_each(vec![recompute.clone(); self.blocks()])
    }

    /// The same, where this is computed again of each block, in order.
    fn again_each(&self, recompute: Vec<Recompute>) -> Self {
        Self { blocks: self.blocks.clone(), recipe: Recipe { recompute, ..self.recipe.clone() } }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks.segments.len()
    }

    /// The training step in which the same is computed again of every block, or what the recipe
    /// says of each.
    pub fn step(&self, again: Option<&Recompute>) -> Result<(Step, Recipe), Failure> {
        let mut recipe = self.recipe.clone();
        if let Some(again) = again {
            recipe.recompute = vec![again.clone(); self.blocks()];
        }
        let step = train::step(&self.blocks, &recipe);
        let step = step.map_err(|error| Failure::input("the model cannot be trained so", error))?;
        Ok((step, recipe))
    }

    /// The first blocks of so many stages, such that the one that has most to do has as little as can
    /// be: multiplications and additions count.
    pub fn cut(&self, stages: usize) -> Result<Vec<usize>, Failure> {
        let blocks = self.blocks();
        if stages == 0 || stages > blocks {
            return Err(Failure::Usage(format!(
                "{stages} stages of a model of {blocks} blocks, expected 1 to {blocks}: give fewer stages"
            )));
        }
        let cost = |forward: f64| {
            let times = StageTimes { forward, backward: 0.0, weight: 0.0 };
            BlockCost { times, ..BlockCost::NOTHING }
        };
        let costs: Vec<BlockCost> = self.works().into_iter().map(cost).collect();
        // As if everything fitted: what stages hold is known when they are planned.
        let first = cluster::cut(&[&costs], &vec![Live::ONE; stages], stages, (1.0, false), u64::MAX);
        first.ok_or_else(|| Failure::internal("plan", "a model was not cut"))
    }

    /// How many multiplications each block is.
    fn works(&self) -> Vec<f64> {
        self.blocks.segments.iter().map(|segment| self.work(segment.nodes.clone())).collect()
    }

    /// How many multiplications some operations are.
    fn work(&self, nodes: std::ops::Range<usize>) -> f64 {
        let graph = &self.blocks.graph;
        let of = |number: usize| {
            let node = &graph.nodes[number];
            let (operands, results) = (graph.types_of(&node.operands), graph.types_of(&node.results));
            let loops = node.op.loops(&operands, &results);
            let sizes = loops.ids().map(|it| loops.get(it).size);
            let sizes: Vec<u32> = sizes.map(|it| u32::try_from(it).unwrap_or(u32::MAX)).collect();
            sizes.into_iter().map(f64::from).product::<f64>()
        };
        nodes.map(of).sum()
    }
}

/// The stages that a pipeline says, derived from its model again.
pub fn derived_stages(
    file: &ModelFile,
    imported: &Graph,
    pipeline: &Pipeline,
) -> Result<(Graph, Stages), Failure> {
    let (step, _) = Forward::again_of(file, imported, &pipeline.recipe)?.step(None)?;
    let first: Vec<usize> = pipeline.stages.iter().map(|stage| stage.first_block).collect();
    let stages = train::stages(&step, &first);
    let stages = stages.map_err(|error| Failure::input("the pipeline is rejected", error))?;
    Ok((step.graph, stages))
}

/// The cheapest pipeline of these stages, checked: each stage's plan is the cheapest of its own.
pub fn staged(
    forward: &Forward,
    file: &plan::ModelFile,
    wanted: &Wanted<'_>,
    say: &Say<'_>,
) -> Result<Pipeline, Failure> {
    let places = places(wanted.cluster, wanted.meshes)?;
    let groups = places.len();
    let count = groups.saturating_mul(wanted.chunks);
    let alike =
        places.iter().all(|it| (it.kind, it.mesh.devices()) == (places[0].kind, places[0].mesh.devices()));
    match &wanted.first {
        Some(first) if first.len() != count => Err(Failure::Usage(format!(
            "`--cut` names {} stages, expected {count}, {} for each of {groups} groups of devices",
            first.len(),
            wanted.chunks
        ))),
        Some(first) => of_cut(forward, file, wanted, first.clone(), say),
        None if alike => of_cut(forward, file, wanted, forward.cut(count)?, say),
        None => placed::levelled(forward, wanted, count, &|first| of_cut(forward, file, wanted, first, say)),
    }
}

/// The cheapest pipeline whose stages start at these blocks. Where it is not said what is computed again of blocks, each
/// keeps what it may; where the same is of all blocks, as little again as fits.
fn of_cut(
    forward: &Forward,
    file: &plan::ModelFile,
    wanted: &Wanted<'_>,
    first: Vec<usize>,
    say: &Say<'_>,
) -> Result<Pipeline, Failure> {
    let groups = places(wanted.cluster, wanted.meshes)?.len();
    let alike = [Recompute::Nothing, Recompute::Selective, Recompute::Full].map(Again::Alike);
    let all = match forward.recipe.recompute.len() == forward.blocks() {
        true => vec![Again::Given],
        false if wanted.alike => alike.to_vec(),
        // Among more a search may miss what it finds among fewer.
        false => [Again::Each].into_iter().chain(alike[1..].iter().cloned()).collect(),
    };
    let is_each = all[0] == Again::Each;
    let keeps_all = |it: &Pipeline| it.recipe.recompute.iter().all(|it| *it == Recompute::Nothing);
    let mut best: Option<Pipeline> = None;
    let mut refused = None;
    for again in all {
        let step = Cutting::of(forward, &first, &again)?;
        for order in orders(&wanted.order) {
            let schedule = ordered(&order, wanted, groups, step.recipe.micro_batches)?;
            match made(&step, file, wanted, (&first, schedule), say) {
                Ok(pipeline) => {
                    plan::check_pipeline(&pipeline).map_err(|error| Failure::internal("plan", error))?;
                    // An order that holds less has room for more that is kept.
                    let is_last = !step.chooses() || keeps_all(&pipeline);
                    if best.as_ref().is_none_or(|best| pipeline.seconds() < best.seconds()) {
                        best = Some(pipeline);
                    }
                    if is_last {
                        break;
                    }
                }
                Err(failure @ Failure::Internal(_)) => return Err(failure),
                Err(failure) => refused = Some(failure),
            }
        }
        if best.as_ref().is_some_and(|best| !is_each || keeps_all(best)) {
            break;
        }
    }
    best.ok_or_else(|| refused.unwrap_or_else(|| Failure::internal("plan", "no pipeline was tried")))
}

fn ordered(
    order: &Order,
    wanted: &Wanted<'_>,
    groups: usize,
    micro_batches: u64,
) -> Result<Schedule, Failure> {
    let count = usize::try_from(micro_batches).unwrap_or(usize::MAX);
    let schedule = match order {
        Order::Named(kind) => {
            let made = kind.schedule(groups, wanted.chunks, count);
            made.map_err(|error| Failure::Usage(error.to_string()))?
        }
        Order::Written(schedule) if schedule.groups.len() != groups => {
            return Err(Failure::Usage(format!(
                "the schedule cannot be kept: it has {} groups, expected {groups}, as many as there are of devices",
                schedule.groups.len()
            )));
        }
        Order::Written(schedule) => schedule.clone(),
    };
    let verified = verify(schedule, groups * wanted.chunks, count);
    let verified =
        verified.map_err(|faults| Failure::Usage(format!("the schedule cannot be kept: {faults}")))?;
    Ok(verified.schedule().clone())
}

/// How often stages are planned again with less memory.
const ROUNDS: usize = 12;

/// The pipeline of these stages. What their programs need between values, and the other stages of a
/// group, come on top of what a stage's plan counts: where a group does not fit, its stages are planned
/// again with as much less.
fn made(
    step: &Cutting<'_>,
    file: &plan::ModelFile,
    wanted: &Wanted<'_>,
    (first, schedule): (&[usize], Schedule),
    say: &Say<'_>,
) -> Result<Pipeline, Failure> {
    let stages = &step.stages;
    let places = places(wanted.cluster, wanted.meshes)?;
    let count = stages.stages.len();
    let verified = verify(schedule.clone(), count, schedule.micro_batches());
    let live = under_way(&verified.map_err(|faults| Failure::internal("plan", faults))?);
    let on: Vec<&Place> = (0..count).map(|it| &places[schedule.home(it).0]).collect();
    // Stages that differ in names only, on meshes alike of one kind, and have as much memory, have the same
    // plan, if the same is fixed of them.
    let fixed = |step: &Step| {
        let of = |node| wanted.fixed.iter().map(move |it| it.is_of(node)).collect::<Vec<_>>();
        step.graph.nodes.iter().map(of).collect::<Vec<_>>()
    };
    let forms: Vec<_> = stages
        .stages
        .iter()
        .enumerate()
        .map(|(number, step)| (nameless(&step.graph), fixed(step), step.homes_from(first[number])))
        .collect();
    let same = |of: usize, it: usize| {
        (on[of].kind, &on[of].mesh) == (on[it].kind, &on[it].mesh) && forms[of] == forms[it]
    };
    let alike: Vec<usize> = (0..count).map(|it| (0..it).find(|&of| same(of, it)).unwrap_or(it)).collect();
    let whole: Vec<u64> = on.iter().map(|place| wanted.capacity(place.kind)).collect();
    let mut capacities = whole.clone();
    // What groups have too little of, and which stages cannot do with less than they have.
    let mut short = Short::new(count);
    let prepared: BTreeMap<usize, Prepared> = (0..count)
        .filter(|&it| alike[it] == it)
        .map(|form| Ok((form, step.prepared(form, wanted.fixed)?)))
        .collect::<Result<_, Failure>>()?;
    let make = |form: usize, room: Room, trail: &Mutex<Trail>| {
        let (Place { mesh, machine, .. }, Room { capacity, live }) = (on[form], room);
        let target = Target { machine, mesh, capacity, steps: wanted.steps, live, rules: wanted.rules };
        let plan = stage(&prepared[&form], file, &target, trail)?;
        // It may hold as much as there is, whatever it was made for.
        Ok(Plan { capacity: whole[form], ..plan })
    };
    let forms: BTreeMap<usize, Box<Make<'_>>> = prepared
        .keys()
        .map(|&form| {
            (form, Box::new(move |room: Room, trail: &Mutex<Trail>| make(form, room, trail)) as Box<Make<'_>>)
        })
        .collect();
    // Stages of several forms have blocks that are the same.
    let common = Trail::default();
    let forms: BTreeMap<usize, Plans<'_>> =
        forms.iter().map(|(&form, make)| (form, Plans::new(make, common.beside()))).collect();
    let networks = Networks::of(wanted.cluster)?;
    // The fastest that fits; and what does, though what its plans count on having ahead of its use comes late.
    let (mut best, mut late, mut refused): (Option<Pipeline>, Option<Pipeline>, _) = (None, None, None);
    for _ in 0..ROUNDS {
        say(format!("planning {count} stages of {} kinds", forms.len()).into());
        let of_form = |(&form, plans): (&usize, &Plans<'_>)| {
            let stages: Vec<usize> = (0..count).filter(|&it| alike[it] == form).collect();
            let room = |&it: &usize| Room { capacity: capacities[it], live: live[it] };
            let plans = plans.serving(&stages.iter().map(room).collect::<Vec<_>>())?;
            Ok(stages.into_iter().zip(plans).collect::<Vec<_>>())
        };
        let made: Result<Vec<Vec<_>>, Failure> = forms.par_iter().map(of_form).collect();
        let (mut plans, mut failed) = (BTreeMap::new(), Vec::new());
        for (stage, made) in made?.into_iter().flatten() {
            match made {
                Ok(plan) => _ = plans.insert(stage, plan),
                Err(failure) => failed.push((stage, failure)),
            }
        }
        if !failed.is_empty() && (best.is_some() || late.is_some()) {
            break;
        }
        if !failed.is_empty() {
            // Other stages of the group may have what these do not.
            let needs = failed.iter().map(|(stage, failure)| (*stage, failure.needs().unwrap_or(u64::MAX)));
            if !short.others(needs, &mut capacities) {
                return Err(refused.unwrap_or_else(|| failed.swap_remove(0).1));
            }
            continue;
        }
        let Derived { stages: derived, recipe } = &*step.derived(plans.values(), &alike)?;
        let mut planned: Vec<Stage> = Vec::new();
        for (number, (step, plan)) in derived.stages.iter().zip(plans.values()).enumerate() {
            let (first_device, kind) = (on[number].first, on[number].kind);
            let adapters = placed::adapters(&wanted.cluster.kinds()[kind]);
            // Stages of one form have one plan, but for names.
            let graph = joined_as(&step.graph, &plan.graph).graph;
            let plan = Plan { graph, recipe: Some(recipe.clone()), ..Plan::clone(plan) };
            planned.push(Stage { first_block: first[number], first_device, adapters, plan });
        }
        let of = (wanted, &networks);
        let (pipeline, least) = assembled(planned, &derived.crossings, recipe, of, &schedule)?;
        let takes = |group: usize| {
            let of_group = plans.values().zip(&live).enumerate().filter(|it| pipeline.group(it.0) == group);
            let early = of_group.map(|(_, (plan, &live))| search::early(plan, live)).max().unwrap_or(0);
            held(&pipeline.memory[group]).max(least[group].saturating_add(early))
        };
        let beyond = |group: usize| takes(group).saturating_sub(pipeline.capacity_of(group));
        let beyond: Vec<u64> = (0..pipeline.memory.len()).map(beyond).collect();
        match placed::fits(&pipeline) {
            Ok(()) if beyond.iter().all(|&it| it == 0) => {
                best = best.filter(|it| it.seconds() <= pipeline.seconds()).or(Some(pipeline));
                // Near the end of memory a search may miss what it finds with a little more.
                if plans.values().any(|it| is_open(it)) && short.a_little_more(&mut capacities) {
                    continue;
                }
                break;
            }
            Ok(()) => _ = late.get_or_insert_with(|| pipeline.clone()),
            Err(failure) => refused = Some(failure),
        }
        let counted: Vec<u64> =
            plans.values().zip(&live).map(|(plan, &live)| search::takes(plan, live)).collect();
        let alone = |stage: &Stage| held(&stage.plan.memory).saturating_sub(stage.plan.capacity);
        let alone = pipeline.stages.iter().map(alone).collect();
        let groups = (0..count).map(|it| pipeline.group(it)).collect();
        short.by((beyond, groups), (counted, alone), &capacities);
        if !short.give(&mut capacities) {
            break;
        }
    }
    let refused = refused.unwrap_or_else(|| Failure::internal("plan", "no stages were planned"));
    best.or(late).ok_or(refused)
}

/// How many micro-batches of each stage are under way at once.
pub fn under_way(verified: &Verified) -> Vec<Live> {
    let last = verified.schedule().last_work();
    let between = |from, to| schedule::between(verified, from, to);
    let kept = between(Work::Forward, Work::Backward).into_iter().zip(between(Work::Forward, last));
    let live = kept.zip(between(Work::Backward, last)).map(|((backward, gradients), apart)| {
        let number = |it| u64::try_from(it).unwrap_or(u64::MAX);
        Live { backward: number(backward), gradients: number(gradients), apart: number(apart) }
    });
    live.collect()
}

/// Stages put together, with what crosses, what a step takes and what groups hold; and what these would hold at least, if
/// nothing were exchanged ahead (bytes).
fn assembled(
    stages: Vec<Stage>,
    crossings: &[train::Crossing],
    recipe: &Recipe,
    (wanted, networks): (&Wanted<'_>, &Networks<'_>),
    schedule: &Schedule,
) -> Result<(Pipeline, Vec<u64>), Failure> {
    let mut pipeline = Pipeline {
        machine: files::machine::called(wanted.cluster.kinds()),
        devices_per_node: wanted.cluster.devices_per_node(),
        schedule: schedule.clone(),
        stages,
        crossings: Vec::new(),
        recipe: recipe.clone(),
        estimate: Vec::new(),
        memory: Vec::new(),
        capacity: (0..wanted.cluster.kinds().len()).map(|it| wanted.capacity(it)).max().unwrap_or(0),
        proof: Proof::Gap { lower_bound: 0.0 },
    };
    let crossings = crossings.par_iter().map(|it| travelling(&pipeline, it, networks, &Strategy::ALL));
    pipeline.crossings = crossings.collect::<Vec<_>>().into_iter().collect::<Result<_, _>>()?;
    priced(&mut pipeline)?;
    let held = lower::pipelined(&pipeline).and_then(|it| it.held());
    let (memory, least) = held.map_err(|error| Failure::internal("lower", error))?.into_iter().unzip();
    pipeline.memory = memory;
    Ok((pipeline, least))
}

/// When each task and message of a pipeline starts and ends, by its own prices.
pub fn times(pipeline: &Pipeline) -> Result<schedule::Timeline, Failure> {
    let phases = phases(pipeline);
    let count = usize::try_from(pipeline.micro_batches()).unwrap_or(usize::MAX);
    let verified = verify(pipeline.schedule.clone(), pipeline.stages.len(), count);
    let verified = verified.map_err(|error| Failure::internal("plan", error))?;
    timeline(&verified, &durations(pipeline, &phases)).map_err(|error| Failure::internal("plan", error))
}

#[cfg(test)]
mod tests;
