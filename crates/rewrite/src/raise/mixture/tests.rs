//! Regions computed before and after.

mod sorted; // over rows sorted by expert
mod masked; // over the rows that masks mark

use planner_ir::{Graph, Op};

fn regions(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|node| matches!(node.op, Op::Region(_))).count()
}
