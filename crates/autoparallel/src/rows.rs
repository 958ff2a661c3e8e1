//! Whether splitting the rows that norms are over may gain anything.
//!
//! Norms that are spelled out read and write a value several times instead of once, and a search among
//! both forms takes several times as long. So they are offered only where, on a mesh of more than one
//! axis, bringing together a row of some norm or loss takes longer than the sums that it takes to do
//! without: a few numbers for each row. On one axis, rows may be split among devices as they are. And only
//! where the fastest plan without them takes long to bring rows together: where rows are whole throughout,
//! something better was found than to split them.

use std::collections::BTreeSet;

use cost_models::units::exact;
use plan::{Plan, Transfer};
use planner_ir::{AxisId, Digit, Graph, Layout, Mesh, Move, Node, Op, Phase, Type};
use search::Prices;

/// Whether some row of a forward operation is dearer to bring together than to sum over where it is.
pub(crate) fn may_be_split(graph: &Graph, mesh: &Mesh, prices: &dyn Prices) -> bool {
    let axes: Vec<AxisId> = (0..mesh.axes.len()).map(AxisId).filter(|&it| mesh.size(it) > 1).collect();
    let forward = |node: &&Node| node.phase == Phase::Forward;
    let rows: Vec<(Type, u32)> =
        graph.nodes.iter().filter(forward).filter_map(|node| rows(graph, node)).collect();
    axes.len() > 1 && rows.iter().any(|row| axes.iter().any(|&axis| gains(row, (mesh, &axes), axis, prices)))
}

/// What part of a step bringing rows together has to take for a search without that to be worth it.
const WORTH: f64 = 0.01;

/// Whether a plan takes long to bring together rows that are held split, of values as large as those of
/// norms or losses.
pub(crate) fn brings_together(plan: &Plan) -> bool {
    let forward = plan.graph.nodes.iter().filter(|node| node.phase == Phase::Forward);
    let shapes: BTreeSet<Vec<u64>> =
        forward.filter_map(|node| rows(&plan.graph, node)).map(|(type_, _)| type_.shape).collect();
    let of_rows = |transfer: &&Transfer| {
        let shape = &plan.graph.type_of(transfer.value).shape;
        let row = |dim: usize| shapes.contains(shape) && dim + 1 == shape.len();
        transfer.moves.iter().any(|step| match *step {
            Move::AllGather { dim: from, .. } | Move::AllToAll { from, .. } => row(from),
            _ => false,
        })
    };
    let once: f64 = plan.transfers.iter().filter(of_rows).map(Transfer::takes).sum();
    let times = plan.recipe.as_ref().map_or(1, |it| it.micro_batches);
    exact(times) * once > WORTH * plan.seconds()
}

/// What an operation needs rows of, and over how many numbers for each row it is a sum.
fn rows(graph: &Graph, node: &Node) -> Option<(Type, u32)> {
    let sums = match node.op {
        Op::LayerNorm { .. } | Op::CrossEntropy { .. } => 2,
        Op::RmsNorm { .. } => 1,
        _ => return None,
    };
    let type_ = graph.type_of(node.operands[0]).clone();
    (type_.rank() > 1).then_some((type_, sums))
}

/// Whether the last dimension, split over an axis, takes longer to bring together than the sums. The
/// first is split over the other axes, as far as it can be.
fn gains(
    (type_, sums): &(Type, u32),
    (mesh, axes): (&Mesh, &[AxisId]),
    axis: AxisId,
    prices: &dyn Prices,
) -> bool {
    let last = type_.rank() - 1;
    if !type_.shape[last].is_multiple_of(mesh.size(axis)) {
        return false;
    }
    let mut whole = Layout::replicated(type_.rank());
    let mut rest = type_.shape[0];
    for &other in axes.iter().filter(|&&it| it != axis && type_.shape[0] > 0) {
        if rest.is_multiple_of(mesh.size(other)) {
            rest /= mesh.size(other);
            whole.dims[0].push(Digit::axis(mesh, other));
        }
    }
    let mut split = whole.clone();
    split.dims[last].push(Digit::axis(mesh, axis));
    let owed = Layout { owed: vec![axis], ..whole.clone() };
    let mut number = type_.clone();
    number.shape[last] = 1;
    let gather = prices.step(type_, &Move::AllGather { dim: last, digits: 1 }, &split, &whole);
    let sum = prices.step(&number, &Move::AllReduce { axes: vec![axis] }, &owed, &whole);
    gather > f64::from(*sums) * sum
}

#[cfg(test)]
pub(crate) mod tests;
