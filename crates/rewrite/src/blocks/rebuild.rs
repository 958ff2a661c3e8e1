//! A graph whose segments are other bodies.

use std::collections::BTreeMap;

use planner_ir::{Graph, Output, Source, ValueId};

use super::{Block, Blocks, Segment};

/// The program in which the segments that `which` accepts, by number, have another form, where their
/// block has one.
///
/// Its segments are those of the blocks, one by one; where there is no other form they are equal. A
/// run of repetitions of which only some have it is several blocks.
pub(crate) fn reformed(
    blocks: &Blocks,
    which: &dyn Fn(usize) -> bool,
    form: &dyn Fn(&Graph) -> Option<Graph>,
) -> Blocks {
    let bodies: Vec<Option<Graph>> = blocks.unique.iter().map(|block| form(&block.body)).collect();
    let other = |segment: usize| {
        let body = bodies[blocks.segments[segment].block].as_ref();
        body.filter(|_| which(segment))
    };
    if (0..blocks.segments.len()).all(|segment| other(segment).is_none()) {
        return blocks.clone();
    }
    let body_of =
        |segment: usize| other(segment).unwrap_or(&blocks.unique[blocks.segments[segment].block].body);
    let (graph, mut segments) = rebuilt(blocks, &body_of);
    let mut unique: Vec<Block> = Vec::new();
    let mut last = None;
    for (number, segment) in segments.iter_mut().enumerate() {
        let this = (segment.block, other(number).is_some());
        if last.replace(this) != Some(this) {
            let bindings = blocks.unique[segment.block].bindings.clone();
            unique.push(Block { body: body_of(number).clone(), bindings, count: 0 });
        }
        segment.block = unique.len() - 1;
        unique[segment.block].count += 1;
    }
    Blocks { graph, unique, segments }
}

/// The graph in which each segment, by its number, is this body, and where its segments are.
///
/// A body has the operands and the outputs of the block that it stands for, in their order.
pub(crate) fn rebuilt<'a>(blocks: &Blocks, body_of: &dyn Fn(usize) -> &'a Graph) -> (Graph, Vec<Segment>) {
    let old = &blocks.graph;
    let mut graph = Graph { name: old.name.clone(), ..Graph::default() };
    let mut values: Vec<ValueId> = vec![ValueId(usize::MAX); old.values.len()];
    for id in old.value_ids() {
        let value = old.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = graph.push_value(value.type_.clone(), value.source.clone());
        }
    }
    let mut segments = Vec::new();
    for (number, segment) in blocks.segments.iter().enumerate() {
        let body = body_of(number);
        let start = graph.nodes.len();
        let origins = &old.nodes[segment.nodes.clone()];
        let mut made = vec![ValueId(usize::MAX); body.values.len()];
        for (index, operand) in segment.operands.iter().enumerate() {
            made[index] = values[operand.0];
        }
        let template = &blocks.unique[segment.block].body;
        let mut first = BTreeMap::new();
        for (place, node) in template.nodes.iter().enumerate() {
            first.entry(&node.origin).or_insert(place);
        }
        for (index, node) in body.nodes.iter().enumerate() {
            let operands = node.operands.iter().map(|it| made[it.0]).collect();
            // The first repetition lent its names; each has its own. Several nodes may have one name in
            // the first that have several in another: those that stay at their place keep theirs.
            let lent = |place: &usize| template.nodes.get(*place).is_some_and(|it| it.origin == node.origin);
            let place = Some(index).filter(lent).or_else(|| first.get(&node.origin).copied());
            let origin = place.map_or(node.origin.clone(), |place| origins[place].origin.clone());
            let results = graph.push_node(node.op.clone(), operands, body.types_of(&node.results), origin);
            for (&local, result) in node.results.iter().zip(results) {
                made[local.0] = result;
            }
        }
        for (&result, output) in segment.results.iter().zip(&body.outputs) {
            values[result.0] = made[output.value.0];
        }
        segments.push(Segment {
            block: segment.block,
            nodes: start..graph.nodes.len(),
            operands: segment.operands.iter().map(|it| values[it.0]).collect(),
            results: segment.results.iter().map(|it| values[it.0]).collect(),
        });
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: values[it.value.0] };
    graph.outputs = old.outputs.iter().map(output).collect();
    (graph, segments)
}
