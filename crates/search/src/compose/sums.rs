//! Products that add to sums over micro-batches, written as one operation where nothing moves in between.

use plan::{Assignment, Copy, Plan};
use planner_ir::{NodeId, Partition, Type, ValueId};
use rewrite::{Added, Adding, added, joined};

use crate::assemble::priced;
use crate::manner::InPlace;
use crate::prices::Prices;

/// Makes products of a plan add to sums wherever that is equal and takes no longer, as the problem that the plan was
/// chosen by counts it; given the numbers of operations in their sections.
pub(crate) fn join(
    plan: &mut Plan,
    in_place: &mut Vec<Option<InPlace>>,
    (prices, places): (&dyn Prices, &[Option<NodeId>]),
) {
    let found: Vec<(Added, Copy)> = added(&plan.graph)
        .into_iter()
        .filter_map(|it| {
            let place = places[it.product.0].unwrap_or(it.product);
            together(plan, &it, (prices, place)).map(|copy| (it, copy))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    let all: Vec<Added> = found.iter().map(|it| it.0.clone()).collect();
    let made = joined(&plan.graph, &all);
    let assignment = |stood: &NodeId| {
        let mut assignment = plan.assignments[stood.0].clone();
        let adds: Vec<&(Added, Copy)> = found.iter().filter(|it| it.0.product == *stood).collect();
        if let (false, Assignment::Computed { partition, operands, bytes, seconds, .. }) =
            (adds.is_empty(), &mut assignment)
        {
            let place = places[stood.0].unwrap_or(*stood);
            *seconds = takes(plan, &adds, (partition, operands), (prices, place));
            // Of what rows are added to nothing is received.
            if !bytes.is_empty() {
                bytes.splice(operands.len()..operands.len(), adds.iter().map(|_| 0));
            }
            operands.extend(adds.iter().map(|it| it.1));
        }
        assignment
    };
    plan.assignments = made.nodes.iter().map(assignment).collect();
    *in_place = made.nodes.iter().map(|stood| in_place[stood.0].clone()).collect();
    let mut numbers: Vec<Option<ValueId>> = vec![None; plan.graph.values.len()];
    for (number, stood) in made.values.iter().enumerate() {
        numbers[stood.0] = Some(ValueId(number));
    }
    for transfer in &mut plan.transfers {
        transfer.value = numbers[transfer.value.0].unwrap_or(transfer.value);
    }
    plan.layouts = made.values.iter().map(|stood| plan.layouts[stood.0].clone()).collect();
    plan.graph = made.graph;
}

/// The copy of the sum so far that a product adds to; nothing where they stay apart.
fn together(plan: &Plan, it: &Added, (prices, place): (&dyn Prices, NodeId)) -> Option<Copy> {
    let computed = |node: NodeId| match &plan.assignments[node.0] {
        Assignment::Computed { partition, operands, seconds, .. } => Some((partition, operands, *seconds)),
        Assignment::Prepared => None,
    };
    let (partition, copies, mut apart) = computed(it.product)?;
    let (_, adds, seconds) = computed(it.sum)?;
    apart += seconds;
    let mut stays = adds[1 - it.before] == Copy::Made;
    if let Some(widened) = it.widened {
        let (_, read, seconds) = computed(widened)?;
        stays &= read[0] == Copy::Made;
        apart += seconds;
    }
    let copy = adds[it.before];
    let (before, after) = (*it.one.node.operands.last()?, it.one.node.results[it.result]);
    let ends = [plan.layout(before, copy), &plan.layouts[after.0]];
    if !stays || !it.is_equal(&plan.mesh, partition, ends) {
        return None;
    }
    let takes = time(plan, (&it.one, &[copy]), (partition, copies), (prices, place));
    (takes <= apart).then_some(copy)
}

/// What an operation takes that adds these of its products, each to that copy of a sum (seconds).
fn takes(
    plan: &Plan,
    adds: &[&(Added, Copy)],
    by: (&Partition, &[Copy]),
    priced_by: (&dyn Prices, NodeId),
) -> f64 {
    let added: Vec<&Added> = adds.iter().map(|it| &it.0).collect();
    let copies: Vec<Copy> = adds.iter().map(|it| it.1).collect();
    time(plan, (&Adding::together(&plan.graph, &added), &copies), by, priced_by)
}

fn time(
    plan: &Plan,
    (adding, sums): (&Adding, &[Copy]),
    (partition, copies): (&Partition, &[Copy]),
    (prices, place): (&dyn Prices, NodeId),
) -> f64 {
    let local =
        |(&value, &copy): (&ValueId, &Copy)| plan.layout(value, copy).local_type(plan.graph.type_of(value));
    let operands: Vec<Type> = adding.node.operands.iter().zip(copies.iter().chain(sums)).map(local).collect();
    let results: Vec<Type> = adding.node.results.iter().map(|it| local((it, &Copy::Made))).collect();
    priced((adding, place), [&operands, &results], partition, prices)
}
