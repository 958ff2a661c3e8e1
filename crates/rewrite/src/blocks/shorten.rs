//! A graph with fewer repetitions of its blocks.

use planner_ir::{Graph, Output, Source, ValueId};

use super::{Blocks, Segment};

/// Nobody's value.
const NONE: ValueId = ValueId(usize::MAX);

/// The graph with at most so many repetitions of each block: the first ones and the last one.
///
/// What a repetition that is left out hands to the next is handed by the one before. Nothing where a
/// block repeats no more often, or where something else than the next repetition reads what one that is
/// left out makes.
pub fn shortened(blocks: &Blocks, most: usize) -> Option<Graph> {
    let graph = &blocks.graph;
    let mut short = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut values = vec![NONE; graph.values.len()];
    // Of what is left out, the segment that may read it.
    let mut reader: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut before: Option<&Segment> = None;
    let (mut number, mut left_out) = (0, false);
    for (index, segment) in blocks.segments.iter().enumerate() {
        number = if before.is_some_and(|it| it.block == segment.block) { number + 1 } else { 0 };
        let count = blocks.unique.get(segment.block)?.count;
        if let Some(last) = before
            && number + 1 >= most.max(2)
            && number + 1 < count
        {
            left_out = true;
            for (&old, &handed) in segment.results.iter().zip(&last.results) {
                values[old.0] = values[handed.0];
                reader[old.0] = Some(index + 1);
            }
            before = Some(segment);
            continue;
        }
        for node in &graph.nodes[segment.nodes.clone()] {
            let mut operands = Vec::new();
            for &operand in &node.operands {
                if reader[operand.0].is_some_and(|reader| reader != index) {
                    return None;
                }
                let value = graph.value(operand);
                if values[operand.0] == NONE && !matches!(value.source, Source::Result { .. }) {
                    values[operand.0] = short.push_value(value.type_.clone(), value.source.clone());
                }
                operands.push(Some(values[operand.0]).filter(|&it| it != NONE)?);
            }
            let types = graph.types_of(&node.results);
            let results = short.push_node(node.op.clone(), operands, types, node.origin.clone());
            for (&old, new) in node.results.iter().zip(results) {
                values[old.0] = new;
            }
        }
        before = Some(segment);
    }
    for it in &graph.outputs {
        if reader[it.value.0].is_some() || values[it.value.0] == NONE {
            return None;
        }
        short.outputs.push(Output { name: it.name.clone(), value: values[it.value.0] });
    }
    left_out.then_some(short)
}
