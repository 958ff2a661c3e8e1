//! In which phase what crosses is made.

use plan::{Crossing, Pipeline};
use planner_ir::{Phase, Source};

/// In which phase a crossing is made, if it is for each micro-batch.
pub(super) fn phase(pipeline: &Pipeline, crossing: &Crossing) -> Option<Phase> {
    let graph = &pipeline.stages[crossing.from].plan.graph;
    let output = graph.outputs.iter().find(|output| output.name == crossing.name)?;
    let Source::Result { node, .. } = graph.value(output.value).source else { return None };
    let sums = graph.training.iter().flat_map(|training| &training.carried);
    let summed = sums.into_iter().any(|it| it.next == output.value);
    let phase = graph.node(node).phase;
    (phase != Phase::Update && !summed).then_some(phase)
}
