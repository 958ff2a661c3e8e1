//! The training step.

use std::collections::BTreeSet;

use plan::{Recipe, matches};
use planner_ir::{Graph, NodeId, Phase, Source, Training, ValueId};
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
    let mut step = pruned(&tape);
    add_at_once(&mut step.graph);
    let step = narrowed(step, recipe.precision);
    if recipe.precision.scaling().is_some() && !step.graph.nodes.iter().any(|it| it.op.has_scales()) {
        return Err(TrainError::Wide(recipe.precision));
    }
    Ok(step)
}

/// Adds to sums of gradients in the backward part what that makes of gradients of parameters, as the gradient of
/// experts does: where gradients of parameters are a part of their own, what is not added is kept until that. What
/// adds to one sum is in one part.
fn add_at_once(graph: &mut Graph) {
    let (sums, for_sums) = (graph.sums(), graph.for_sums());
    let maker = |value: &ValueId| match graph.value(*value).source {
        Source::Result { node, .. } => Some(node),
        _ => None,
    };
    let adds = |id: &NodeId| {
        let node = graph.node(*id);
        let only = node.op.keeps_elements() && node.results.iter().all(|it| for_sums[it.0]);
        only && node.phase == Phase::Gradient
    };
    let mut moved: BTreeSet<NodeId> = graph.node_ids().filter(adds).collect();
    loop {
        // The sums that something adds to when gradients of parameters are made.
        let late: BTreeSet<ValueId> = graph
            .node_ids()
            .filter(|it| graph.node(*it).phase == Phase::Gradient && !moved.contains(it))
            .filter_map(|it| sums[graph.node(it).results[0].0])
            .collect();
        let stays = |id: &NodeId| {
            let node = graph.node(*id);
            let is_made = |it: &ValueId| {
                maker(it).is_none_or(|by| {
                    moved.contains(&by) || for_sums[it.0] && graph.node(by).phase == Phase::Backward
                })
            };
            let is_late = sums[node.results[0].0].is_some_and(|sum| late.contains(&sum));
            !node.operands.iter().all(is_made)
                || node.operands.iter().all(|it| maker(it).is_none())
                || is_late
        };
        let stay: Vec<NodeId> = moved.iter().copied().filter(stays).collect();
        if stay.is_empty() {
            break;
        }
        stay.iter().for_each(|it| {
            moved.remove(it);
        });
    }
    for id in moved {
        graph.nodes[id.0].phase = Phase::Backward;
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
