//! Products that add to sums over micro-batches, written as one operation where nothing moves in between.

use plan::{Assignment, Copy, Plan};
use planner_ir::{NodeId, Type, ValueId};
use rewrite::{Added, added, joined};

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
    let (mut found, mut seconds) = (Vec::new(), Vec::new());
    for it in added(&plan.graph) {
        let place = places[it.product.0].unwrap_or(it.product);
        if let Some((copy, takes)) = together(plan, &it, (prices, place)) {
            seconds.push((it.product, copy, takes));
            found.push(it);
        }
    }
    if found.is_empty() {
        return;
    }
    let made = joined(&plan.graph, &found);
    let assignment = |stood: &NodeId| {
        let mut assignment = plan.assignments[stood.0].clone();
        let adds = seconds.binary_search_by_key(stood, |it| it.0).ok().map(|it| seconds[it]);
        if let (Some((_, copy, takes)), Assignment::Computed { operands, seconds, .. }) =
            (adds, &mut assignment)
        {
            operands.push(copy);
            *seconds = takes;
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

/// The copy of the sum so far that a product adds to, and what it takes then (seconds); nothing where they stay apart.
fn together(plan: &Plan, it: &Added, (prices, place): (&dyn Prices, NodeId)) -> Option<(Copy, f64)> {
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
    let (before, after) = (*it.node.operands.last()?, it.node.results[0]);
    let ends = [plan.layout(before, copy), &plan.layouts[after.0]];
    if !stays || !it.is_equal(&plan.mesh, partition, ends) {
        return None;
    }
    let held = it.node.operands.iter().zip(copies.iter().chain([&copy]));
    let local =
        |(&value, &copy): (&ValueId, &Copy)| plan.layout(value, copy).local_type(plan.graph.type_of(value));
    let operands: Vec<Type> = held.map(local).collect();
    let takes = priced((it, place), (&operands, &local((&after, &Copy::Made))), partition, prices);
    (takes <= apart).then_some((copy, takes))
}
