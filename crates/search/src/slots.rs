//! What is there while blocks or rows move, besides what an operation is given and makes.

use planner_ir::{Graph, Motion, Node, Partition, Route, Slots, Type, ValueId, chunks};

/// What is there besides while an operation is done in time steps (bytes): the blocks that are
/// on their way and those that are worked on, sums and their addends. Where rows are routed there is room for
/// all that might come, for what is made of them, and for gates as they come and go.
pub(crate) fn slots(graph: &Graph, node: &Node, partition: &Partition) -> u64 {
    let (operands, results) = (graph.types_of(&node.operands), graph.types_of(&node.results));
    let loops = node.op.loops(&operands, &results);
    if partition.steps == 1 {
        let routes = partition.routes(&loops, &operands, &results).into_iter();
        let held = routes.map(|(route, block)| match route {
            Route::Stays => 0,
            Route::Rows => block.bytes(),
            Route::Gates => 3 * block.bytes(),
        });
        return held.sum();
    }
    let ways = partition.ways.count();
    // What goes both ways is cut out of what is at rest before it does; what does not comes from there
    // first, and over what has come later.
    let own = if ways > 1 { 2 } else { partition.steps.saturating_sub(1).min(2) };
    // One chunk that goes and one that comes.
    let two_chunks = |block: &Type| 2 * block.bytes() / chunks(block.elements());
    let moving = |block: &Type| match partition.slots {
        Slots::Two => own * block.bytes(),
        Slots::One => block.bytes() + if own > 1 { two_chunks(block) } else { 0 },
    };
    let operand = |(index, &value): (usize, &ValueId)| {
        let type_ = partition.operand_block(&loops, index, graph.type_of(value));
        let block = type_.bytes();
        match partition.operand_motion(&loops, index) {
            Motion::Stationary => 0,
            Motion::Rotating(_) => ways * moving(&type_),
            Motion::Streaming(_) => 2 * block,
            Motion::Whole => block,
        }
    };
    let result = |(index, &value): (usize, &ValueId)| {
        let mut block = partition.result_block(&loops, index, graph.type_of(value));
        let as_it_is = block.bytes();
        block.dtype = block.dtype.accumulated();
        match partition.result_motion(&loops, index) {
            // The sum before and the addend, besides the result.
            Motion::Stationary => 2 * block.bytes(),
            Motion::Rotating(_) => match partition.slots {
                Slots::Two => 3 * ways * block.bytes(),
                // Each addend is added where the sum is.
                Slots::One => ways * (2 * block.bytes() + two_chunks(&block)),
            },
            Motion::Streaming(_) => 2 * as_it_is,
            Motion::Whole => as_it_is,
        }
    };
    let operands: u64 = node.operands.iter().enumerate().map(operand).sum();
    operands + node.results.iter().enumerate().map(result).sum::<u64>()
}
