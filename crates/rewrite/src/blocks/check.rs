//! Whether blocks reproduce their graph.
//!
//! - **cover**: segments follow one another and together have all nodes.
//! - **count**: a block's segments are consecutive and as many as it says.
//! - **shape**: a segment has as many nodes, operands and results as its block's body.
//! - **node**: a node has the operation of the body's node, and results of its types.
//! - **operand**: a node reads what the body's node reads, under the segment's binding.
//! - **result**: a segment's results are those of the body's outputs, and everything that others
//!   use of it is among them.
//! - **carried**, **shared**, **private**: an operand is bound as its block says.

use planner_ir::{Graph, Source, ValueId};

use super::{Binding, Blocks, BlocksError, Segment};

/// Whether instantiating each segment's block gives the segment's nodes, for all segments.
pub fn check(blocks: &Blocks) -> Result<(), BlocksError> {
    let mut owner = vec![None; blocks.graph.values.len()];
    let mut next = 0;
    for (number, segment) in blocks.segments.iter().enumerate() {
        let fail = |rule| Err(BlocksError { segment: number, rule });
        if segment.nodes.start != next || segment.nodes.end < next {
            return fail("cover");
        }
        next = segment.nodes.end;
        if let Err(rule) = instantiates(blocks, segment) {
            return fail(rule);
        }
        for node in blocks.graph.nodes.get(segment.nodes.clone()).into_iter().flatten() {
            for result in &node.results {
                owner[result.0] = Some(number);
            }
        }
    }
    let last = blocks.segments.len().saturating_sub(1);
    if next != blocks.graph.nodes.len() {
        return Err(BlocksError { segment: last, rule: "cover" });
    }
    counts(blocks)?;
    bindings(blocks)?;
    exports(blocks, &owner)
}

/// Whether a segment's nodes are its block's, in its binding.
fn instantiates(blocks: &Blocks, segment: &Segment) -> Result<(), &'static str> {
    let graph = &blocks.graph;
    let block = blocks.unique.get(segment.block).ok_or("shape")?;
    let body = &block.body;
    let boundary = segment.operands.len();
    let nodes = graph.nodes.get(segment.nodes.clone()).ok_or("cover")?;
    let given = |it: &planner_ir::Value| !matches!(it.source, Source::Result { .. });
    if nodes.len() != body.nodes.len()
        || block.bindings.len() != boundary
        || body.values.iter().filter(|it| given(it)).count() != boundary
        || segment.results.len() != body.outputs.len()
    {
        return Err("shape");
    }
    let mut values: Vec<Option<ValueId>> = vec![None; body.values.len()];
    for (index, &operand) in segment.operands.iter().enumerate() {
        if graph.type_of(operand) != &body.values[index].type_ || !given(&body.values[index]) {
            return Err("operand");
        }
        values[index] = Some(operand);
    }
    for (node, expected) in nodes.iter().zip(&body.nodes) {
        if node.op != expected.op || graph.types_of(&node.results) != body.types_of(&expected.results) {
            return Err("node");
        }
        let bound: Vec<Option<ValueId>> = expected.operands.iter().map(|it| values[it.0]).collect();
        if bound != node.operands.iter().map(|&it| Some(it)).collect::<Vec<_>>() {
            return Err("operand");
        }
        for (&result, &made) in expected.results.iter().zip(&node.results) {
            values[result.0] = Some(made);
        }
    }
    let results: Vec<Option<ValueId>> = body.outputs.iter().map(|it| values[it.value.0]).collect();
    let right = results == segment.results.iter().map(|&it| Some(it)).collect::<Vec<_>>();
    if right { Ok(()) } else { Err("result") }
}

fn counts(blocks: &Blocks) -> Result<(), BlocksError> {
    let mut number = 0;
    for (index, block) in blocks.unique.iter().enumerate() {
        for _ in 0..block.count {
            if blocks.segments.get(number).is_none_or(|segment| segment.block != index) {
                return Err(BlocksError { segment: number, rule: "count" });
            }
            number += 1;
        }
    }
    if number == blocks.segments.len() { Ok(()) } else { Err(BlocksError { segment: number, rule: "count" }) }
}

fn bindings(blocks: &Blocks) -> Result<(), BlocksError> {
    for (number, segment) in blocks.segments.iter().enumerate() {
        let before = number.checked_sub(1).map(|it| &blocks.segments[it]);
        let before = before.filter(|before| before.block == segment.block);
        let bindings = &blocks.unique[segment.block].bindings;
        for (index, (&operand, binding)) in segment.operands.iter().zip(bindings).enumerate() {
            let (right, rule) = match *binding {
                Binding::Carried(result) => {
                    (before.is_none_or(|it| it.results.get(result) == Some(&operand)), "carried")
                }
                Binding::Shared => (before.is_none_or(|it| it.operands[index] == operand), "shared"),
                Binding::Private => (given(&blocks.graph, operand), "private"),
            };
            if !right {
                return Err(BlocksError { segment: number, rule });
            }
        }
    }
    Ok(())
}

fn given(graph: &Graph, value: ValueId) -> bool {
    !matches!(graph.value(value).source, Source::Result { .. })
}

/// Whether everything that is used outside of its segment is among the segment's results.
fn exports(blocks: &Blocks, owner: &[Option<usize>]) -> Result<(), BlocksError> {
    let exported = |value: ValueId, by: Option<usize>| match owner[value.0] {
        Some(segment) if Some(segment) != by && !blocks.segments[segment].results.contains(&value) => {
            Err(BlocksError { segment, rule: "result" })
        }
        _ => Ok(()),
    };
    for (number, segment) in blocks.segments.iter().enumerate() {
        for operand in blocks.graph.nodes[segment.nodes.clone()].iter().flat_map(|node| &node.operands) {
            exported(*operand, Some(number))?;
        }
    }
    blocks.graph.outputs.iter().try_for_each(|output| exported(output.value, None))
}
