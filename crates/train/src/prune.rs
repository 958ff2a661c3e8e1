//! A step without what nothing needs.

use planner_ir::{Graph, NodeId, Source, Training, ValueId};

use crate::derived::Step;
use crate::ends::end;
use crate::tape::Tape;

/// A step, or a part of one, as it was emitted.
pub(crate) struct Emitted<'a> {
    /// The program.
    pub(crate) graph: &'a Graph,
    /// For each of its operations, the block that it belongs to.
    pub(crate) homes: &'a [usize],
    /// For each of its operations, the forward one that it goes with.
    pub(crate) forward: &'a [Option<NodeId>],
}

/// The step of a tape, pruned.
pub(crate) fn pruned(tape: &Tape<'_>) -> Step {
    let (mut step, places) = Emitted { graph: &tape.to, homes: &tape.homes, forward: &tape.forward }.pruned();
    step.made = tape.makers().map(|maker| maker.and_then(|it| places[it.0])).collect();
    step
}

impl Emitted<'_> {
    /// The step without operations that neither outputs nor states need, its values in the order of
    /// operations, those without operation first; and where each operation went.
    pub(crate) fn pruned(&self) -> (Step, Vec<Option<NodeId>>) {
        let Self { graph, homes, forward } = *self;
        let mut needed = vec![false; graph.values.len()];
        let carried = graph.training.iter().flat_map(|it| &it.carried).map(|it| it.next);
        for value in graph.outputs.iter().map(|it| it.value).chain(carried) {
            needed[value.0] = true;
        }
        let mut kept = vec![false; graph.nodes.len()];
        for (index, node) in graph.nodes.iter().enumerate().rev() {
            kept[index] = node.results.iter().any(|result| needed[result.0]);
            for operand in node.operands.iter().filter(|_| kept[index]) {
                needed[operand.0] = true;
            }
        }
        let mut step = Step {
            graph: Graph { name: graph.name.clone(), ..Graph::default() },
            homes: vec![],
            forward: vec![],
            made: vec![],
        };
        let mut places: Vec<Option<NodeId>> = vec![None; graph.nodes.len()];
        let mut map = vec![ValueId(0); graph.values.len()];
        for (index, value) in graph.values.iter().enumerate() {
            let stays = match value.source {
                Source::Result { .. } => false,
                Source::State(_) => true,
                Source::Input(_) | Source::Weight(_) => needed[index],
            };
            if stays {
                map[index] = step.graph.push_value(value.type_.clone(), value.source.clone());
            }
        }
        for (index, node) in graph.nodes.iter().enumerate().filter(|(index, _)| kept[*index]) {
            let operands = node.operands.iter().map(|operand| map[operand.0]).collect();
            let types = graph.types_of(&node.results);
            let results =
                step.graph.push_node_in(node.phase, node.op.clone(), operands, types, node.origin.clone());
            places[index] = Some(NodeId(step.homes.len()));
            step.homes.push(homes[index]);
            step.forward.push(forward[index].and_then(|it| places[it.0]));
            for (from, to) in node.results.iter().zip(results) {
                map[from.0] = to;
            }
        }
        end(&mut step.graph, graph, &map);
        step.graph.training.get_or_insert(Training { micro_batches: 1, carried: vec![] });
        (step, places)
    }
}
