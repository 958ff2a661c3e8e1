//! Whether the times of a plan are those that prices make.

use plan::{Assignment, Hidden, Plan, Term};

use crate::compose::estimate;
use crate::prices::{Prices, Work};

/// How much times may differ, relative to them: sums are made in another order.
const TOLERANCE: f64 = 1e-9;

/// The first time of a plan that is not that of these prices, in words.
pub fn mispriced(plan: &Plan, prices: &dyn Prices) -> Option<String> {
    let graph = &plan.graph;
    for (node, assignment) in graph.node_ids().zip(&plan.assignments) {
        let Assignment::Computed { partition, operands, seconds, exchanged, .. } = assignment else {
            continue;
        };
        let node_ = graph.node(node);
        let (takes, makes) = (graph.types_of(&node_.operands), graph.types_of(&node_.results));
        let used = node_.operands.iter().zip(operands);
        let used = used.map(|(&value, &copy)| plan.layout(value, copy).local_type(graph.type_of(value)));
        let made = node_.results.iter().map(|it| plan.layouts[it.0].local_type(graph.type_of(*it)));
        let work = Work {
            op: &node_.op,
            whole: &takes,
            operands: &used.collect::<Vec<_>>(),
            results: &made.collect::<Vec<_>>(),
            node,
            partition,
            loops: &node_.op.loops(&takes, &makes),
        };
        let priced = prices.exchanged(&work);
        let times = [
            ("", *seconds, prices.work(&work)),
            (" for rows that are routed", exchanged.rows, priced.rows),
            (" on links", exchanged.links, priced.links),
        ];
        let differs = |(of, said, priced): (&str, f64, f64)| {
            let wrong = time_differs(said, priced)?;
            Some(format!("operation {} (`{}`){of} {wrong}", node.0, node_.origin))
        };
        if let Some(wrong) = times.into_iter().find_map(differs) {
            return Some(wrong);
        }
    }
    for (index, transfer) in plan.transfers.iter().enumerate() {
        let type_ = graph.type_of(transfer.value);
        let mut layout = plan.layout(transfer.value, transfer.from).clone();
        for (step, &seconds) in transfer.moves.iter().zip(&transfer.seconds) {
            let Ok(after) = step.apply(&plan.mesh, type_, &layout) else { break };
            if let Some(wrong) = time_differs(seconds, prices.step(type_, step, &layout, &after)) {
                return Some(format!("transfer {index} of %{} {wrong}", transfer.value.0));
            }
            layout = after;
        }
    }
    terms_differ(&plan.estimate, &estimate(plan, prices))
        .or_else(|| hidden_differs(plan.hidden, plan.hidden_at(prices.beside())))
}

/// The first part of a step of which not as much is hidden as prices make it, in words.
fn hidden_differs(said: Hidden, priced: Hidden) -> Option<String> {
    let parts = [("forward", said.forward, priced.forward), ("backward", said.backward, priced.backward)];
    parts.into_iter().find_map(|(name, said, priced)| {
        let wrong = time_differs(said, priced)?;
        Some(format!("what is hidden {name} {wrong}"))
    })
}

/// The first term that is not as prices make it, in words.
pub fn terms_differ(said: &[Term], priced: &[Term]) -> Option<String> {
    let names = |terms: &[Term]| terms.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    if names(said) != names(priced) {
        let [said, priced] = [said, priced].map(|terms| names(terms).join(", "));
        return Some(format!("the terms of its time are {said}; expected {priced}"));
    }
    let differs = |(said, priced): (&Term, &Term)| {
        let wrong = time_differs(said.seconds, priced.seconds)?;
        Some(format!("term `{}` {wrong}", said.name))
    };
    said.iter().zip(priced).find_map(differs)
}

/// That a time is not the one that prices make, in words.
pub fn time_differs(said: f64, priced: f64) -> Option<String> {
    let same = (said - priced).abs() <= TOLERANCE * priced.abs().max(said.abs());
    (!same).then(|| format!("takes {said} seconds, expected {priced} by the prices of its machine"))
}
