//! Work that takes forever.

use super::*;

/// Two products of a weight.
fn products() -> Graph {
    let mut it = Draft(Graph::default());
    let (x, w) = (it.input(&[64, 64]), it.weight(&[64, 64]));
    let hidden = it.contract("mk", "kn", "mn", &[x, w]);
    let y = it.contract("mk", "kn", "mn", &[hidden, w]);
    it.0.outputs.push(Output { name: "y".to_owned(), value: y });
    it.0
}

/// The times of all choices of their work in the problem (seconds).
fn times(allows: &(dyn Fn(&Work<'_>) -> bool + Sync)) -> Vec<f64> {
    let blocks = rewrite::blocks(&products());
    let (sections, mesh) = (sections(&blocks), Mesh::of_sizes(&[2, 4]));
    let machine = shipped::named("h100-80g-8x").expect("is a machine");
    let prices = Only { machine: MachinePrices::new(&machine, &mesh).expect("suits"), allows };
    let cut = Cut { graph: &blocks.graph, sections: &sections };
    let offer = rewrite::Offer { steps: rewrite::Steps::Offered, ..Default::default() };
    let known = (&prices as &dyn Prices, &rewrite::Spaces::default(), crate::clocks::Weights::ONE);
    let program = crate::prepare::Prepared::new(cut, &mesh, known, (offer, crate::Live::ONE), (None, &[]));
    let assembled = &program.expect("has a space").assembled[0];
    let problem = assembled.problem(&sections[0], &crate::clocks::Weights::ONE);
    let work = assembled.work.iter().flatten();
    work.flat_map(|it| problem.times[it.node].clone()).collect()
}

#[test]
fn it_is_no_choice_where_there_is_another() {
    let at_once = |work: &Work<'_>| work.partition.steps == 1;
    let (all, some, none) = (times(&|_| true), times(&at_once), times(&|_| false));
    assert!(some.len() < all.len() && some.iter().all(|time| time.is_finite()), "{some:?}");
    // Where there is nothing else it is what there is, and no plan.
    assert!(none.len() >= all.len());
    let refused = planned_with(&products(), "h100-80g-8x", "2x4", 1 << 40, &|_| false);
    assert!(matches!(refused, Err(PlanError::Search(SearchError::Contradiction))), "{refused:?}");
}
