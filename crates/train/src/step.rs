//! The training step.

use std::collections::BTreeSet;

use plan::{Recipe, matches};
use planner_ir::{Graph, Phase, Source, Training, ValueId};
use rewrite::Blocks;

use crate::TrainError;
use crate::derived::Step;
use crate::narrow::narrowed;
use crate::prune::pruned;
use crate::recompute::again;
use crate::tape::Tape;
use crate::update::update;

/// The training step of a forward program, whose outputs are the loss's sum and count. What it says
/// of blocks is of those in which norms are spelled out, where the recipe says so.
///
/// Every weight of floating point that a gradient reaches is a parameter, unless the recipe says
/// that it stays as it is.
pub fn step(blocks: &Blocks, recipe: &Recipe) -> Result<Step, TrainError> {
    let count = blocks.segments.len();
    if recipe.recompute.len() != count {
        return Err(TrainError::Blocks(recipe.recompute.len(), count));
    }
    let spelled = |number: usize| recipe.spelled.contains(&number);
    let spelled = (!recipe.spelled.is_empty()).then(|| rewrite::spelled(blocks, &spelled));
    let blocks = spelled.as_ref().unwrap_or(blocks);
    let forward = &blocks.graph;
    let mut places = vec![0; forward.nodes.len()];
    for (place, segment) in blocks.segments.iter().enumerate() {
        places[segment.nodes.clone()].fill(place);
    }
    let trained = trained(forward, recipe)?;
    let again = again(blocks, &places, &recipe.recompute, &trained)?;
    let mut tape = Tape::forward(forward, &places, &again, &trained, recipe);
    let [sum, count] = [forward.outputs[0].value, forward.outputs[1].value];
    tape.backward(sum)?;
    let carried = update(&mut tape, recipe, [sum, count]);
    let micro_batches = recipe.micro_batches;
    tape.to.training = Some(Training { micro_batches, carried });
    add_at_once(&mut tape.to);
    let step = narrowed(pruned(&tape), recipe.precision);
    if recipe.precision.scaling().is_some() && !step.graph.nodes.iter().any(|it| it.op.has_scales()) {
        return Err(TrainError::Wide(recipe.precision));
    }
    Ok(step)
}

/// Adds to sums of gradients in the backward part what that makes of gradients of parameters, as the gradient of
/// experts does: where gradients of parameters are a part of their own, what is not added is kept until that.
fn add_at_once(graph: &mut Graph) {
    let for_sums = graph.for_sums();
    for id in graph.node_ids() {
        let node = graph.node(id);
        let only_adds = node.op.keeps_elements() && node.results.iter().all(|it| for_sums[it.0]);
        if node.phase != Phase::Gradient || !only_adds {
            continue;
        }
        let made = |value: &&ValueId| match graph.value(**value).source {
            Source::Result { node, .. } => Some(graph.node(node).phase),
            _ => None,
        };
        let mut given = node.operands.iter().filter_map(|it| Some((for_sums[it.0], made(&it)?))).peekable();
        if given.peek().is_some() && given.all(|it| it == (true, Phase::Backward)) {
            graph.nodes[id.0].phase = Phase::Backward;
        }
    }
}

/// The names of the weights that are trained: those of floating point, not frozen, that a gradient
/// reaches.
pub(crate) fn trained(forward: &Graph, recipe: &Recipe) -> Result<BTreeSet<String>, TrainError> {
    let weights: BTreeSet<&str> = forward
        .values
        .iter()
        .filter(|value| value.type_.dtype.is_float())
        .filter_map(|value| match &value.source {
            Source::Weight(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    for pattern in &recipe.no_decay.names {
        if !weights.iter().any(|name| matches(pattern, name)) {
            return Err(TrainError::Pattern(pattern.clone(), "parameters that do not decay"));
        }
    }
    let candidates: BTreeSet<String> =
        weights.into_iter().filter(|name| !recipe.roles.keeps(name)).map(str::to_owned).collect();
    let nodes = forward.nodes.len();
    let (places, again) = (vec![0; nodes], vec![false; nodes]);
    let mut tape = Tape::forward(forward, &places, &again, &candidates, recipe);
    tape.backward(forward.outputs[0].value)?;
    let reached = tape.parameters.iter().filter(|it| it.summed != it.gradient);
    let reached: BTreeSet<String> = reached.map(|it| it.name.clone()).collect();
    if reached.is_empty() { Err(TrainError::Nothing) } else { Ok(reached) }
}
