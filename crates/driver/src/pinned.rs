//! A plan that is what a strategy says: each axis of a mesh does one thing, and nothing else is chosen.

use autoparallel::cluster::{Answer, Chosen};
use autoparallel::limits;
use autoparallel::staged::{Forward, Meshes, Order, Wanted, kind, staged};
use autoparallel::target::Target;
use autoparallel::variants::{Decisions, Phases, Training};
use cost_models::cluster::Cluster;
use export::Strategy;
use export::strategy::Again;
use files::model_file::ModelFile;
use files::{Failure, Say, machine};
use plan::{Parallelism, Pipeline, Plan, Recipe, Recompute};
use planner_ir::{Axis, Graph, Mesh};
use rewrite::Steps;
use schedule::{Kind, Schedule};
use search::{Fixed, OverExperts, Ruled, Rules};

use crate::pipeline;

/// A model that is trained on a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Its file.
    pub file: &'a ModelFile,
    /// It, with its dimensions bound: the examples of a micro-batch of all devices.
    pub graph: &'a Graph,
    /// What the plan says of the model.
    pub header: &'a plan::ModelFile,
    /// How it is trained; recomputation is the strategy's.
    pub recipe: &'a Recipe,
    /// What a device may hold (bytes); without it, what each machine says.
    pub memory: Option<u64>,
    /// The devices.
    pub cluster: &'a Cluster,
    /// Whether states are sharded as far as the strategy says, or no further.
    pub exact: bool,
}

/// The cheapest plan on one mesh in which no axis does more than its kind of parallelism, states are sharded no
/// further, and recomputation is that of the strategy.
pub fn plan(job: &Job<'_>, strategy: &Strategy) -> Result<Plan, Failure> {
    let machine = machine::single(job.cluster)?;
    let recipe = Recipe { recompute: vec![], ..job.recipe.clone() };
    let decisions = Decisions::Only(again(strategy));
    let training = Training { recipe, decisions, phases: Phases::Together };
    let prepared = pipeline::prepare_training(job.file, job.graph, &training, &mut |_, _| {})?;
    let (mesh, rules) = ruled(strategy, job.exact)?;
    let target = Target {
        capacity: job.memory.unwrap_or(machine.usable_memory().0),
        steps: Steps::One,
        rules: Some(&rules),
        ..Target::of(&machine, &mesh)
    };
    pipeline::plan(&prepared, job.header, &target, &mut |_, _| {})
}

/// The same in stages, of which each has the strategy's layers, with these operations as they are fixed; by this order
/// of work where the strategy's has no name.
pub fn pipeline(
    job: &Job<'_>,
    (strategy, fixed): (&Strategy, &[Fixed]),
    written: Option<&Schedule>,
    say: &Say<'_>,
) -> Result<Pipeline, Failure> {
    let recipe = Recipe { recompute: vec![], ..job.recipe.clone() };
    let forward = Forward::of(job.file, job.graph, &recipe)?.again(&again(strategy));
    forward.knows(fixed)?;
    let (mesh, rules) = ruled(strategy, job.exact)?;
    let order = match (strategy.schedule, written) {
        (Some(kind), _) => Order::Named(kind),
        (None, Some(schedule)) => Order::Written(schedule.clone()),
        (None, None) => return Err(Failure::Input("its pipeline schedule is missing".to_owned())),
    };
    let wanted = Wanted {
        cluster: job.cluster,
        meshes: Meshes::Alike(&mesh),
        memory: job.memory,
        steps: Steps::One,
        order,
        chunks: usize::try_from(strategy.chunks).unwrap_or(1),
        first: Some(first_blocks(&forward, strategy)),
        fixed,
        rules: Some(&rules),
        alike: true,
    };
    staged(&forward, job.header, &wanted, say)
}

/// The same as an answer of what runs a model on a cluster.
pub fn answer(
    job: &Job<'_>,
    (strategy, fixed): (&Strategy, &[Fixed]),
    say: &Say<'_>,
) -> Result<Answer, Failure> {
    let pipeline = pipeline(job, (strategy, fixed), None, say)?;
    let (mesh, rules) = ruled(strategy, job.exact)?;
    let chosen = Chosen {
        meshes: vec![mesh; pipeline.schedule.groups.len()],
        micro_batches: strategy.micro_batches,
        recompute: again(strategy),
        rules: Some(rules),
    };
    let kind = kind(&pipeline).or(strategy.schedule).unwrap_or(Kind::OneForwardOneBackward);
    Ok(Answer { pipeline, chosen, kind, looked_at: (1, 1) })
}

/// The first block of each stage: the first that has a parameter of its first layer, or what follows all layers.
fn first_blocks(forward: &Forward, strategy: &Strategy) -> Vec<usize> {
    let layer = |name: &str| {
        let rest = name.strip_prefix(&strategy.prefix)?;
        rest.strip_prefix('.').unwrap_or(rest).split('.').next()?.parse::<u64>().ok()
    };
    let of_blocks: Vec<Option<u64>> =
        forward.weights().iter().map(|names| names.iter().filter_map(|name| layer(name)).min()).collect();
    let end = of_blocks.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let mut start = 0;
    let first = |&layers: &u64| {
        let from = start;
        start += layers;
        match from {
            0 => 0,
            _ => of_blocks.iter().position(|it| it.is_some_and(|layer| layer >= from)).unwrap_or(end),
        }
    };
    let mut all: Vec<usize> = strategy.layers.iter().map(first).collect();
    // A first stage without layers has what comes before them.
    let before = of_blocks.iter().position(Option::is_some).unwrap_or(0);
    all.iter_mut().skip(1).filter(|first| **first == 0).for_each(|first| *first = before);
    all
}

/// What is computed again of every block.
fn again(strategy: &Strategy) -> Recompute {
    match strategy.recompute {
        Again::Nothing => Recompute::Nothing,
        Again::Selective => Recompute::Selective,
        Again::Full => Recompute::Full,
    }
}

/// The mesh of a pipeline rank, and what its axes are for: data, context and tensor parallelism from the outermost
/// axis on, whole experts over the nearest devices; states are sharded exactly so far, or no further.
fn ruled(strategy: &Strategy, exact: bool) -> Result<(Mesh, Rules), Failure> {
    let Strategy { data, context, tensor, experts, sharded, sequence, .. } = *strategy;
    // With one micro-batch, what lies in parts between steps is gathered once, ahead of its use, and what gradients
    // owe is summed once, behind: so do frameworks whose exchanges run beside computing, whatever they hold whole. A
    // plan that shards no further holds whole what they do.
    let zero = match (strategy.zero, strategy.micro_batches) {
        (1.., 1) if exact => 3,
        (zero, _) => zero,
    };
    let nearest = context * tensor;
    let inner = if experts > nearest { experts / nearest } else { sharded };
    if !data.is_multiple_of(inner) {
        return Err(Failure::Input(format!("{inner} devices are no part of {data} data parallel ones")));
    }
    let of = |role: Parallelism, shards: bool| Ruled {
        role,
        experts: OverExperts::AsOthers,
        shards: shards && zero > 0,
    };
    let axes = [
        ("replica", data / inner, of(Parallelism::Data, experts > nearest)),
        ("data", inner, of(Parallelism::Data, true)),
        ("context", context, of(Parallelism::Context, true)),
        ("tensor", tensor, of(Parallelism::Tensor, false)),
    ];
    let mut axes: Vec<_> = axes.into_iter().filter(|it| it.1 > 1).collect();
    if axes.is_empty() {
        axes.push(("data", 1, of(Parallelism::Data, false)));
    }
    let named = |&(name, size, _): &(&str, u64, Ruled)| Axis { name: name.to_owned(), size };
    let mesh = Mesh { axes: axes.iter().map(named).collect() };
    let sums_once = exact && strategy.micro_batches > 1;
    let axes = axes.into_iter().map(|it| it.2).collect();
    let rules = Rules { axes, sequence, zero, exact, sums_once };
    let rules = limits::over_nearest(&mesh, rules, experts).ok_or_else(|| {
        Failure::Input(format!(
            "experts over {experts} devices of which {tensor} are tensor and {context} context parallel are no axes of \
             a mesh, expected {tensor}, {nearest} or that times a part of {data}"
        ))
    })?;
    Ok((mesh, rules))
}
