//! The same programs by elimination and by messages.

use super::*;

/// The plan of all partitions at one step, where blocks of this width are eliminated.
fn planned_by(width: Width, graph: &Graph, mesh: &str, capacity: u64) -> Result<Plan, PlanError> {
    let offer = rewrite::Offer { steps: rewrite::Steps::One, ..Default::default() };
    let machine = shipped::named("h100-80g-8x").expect("is a machine");
    asked(graph, &machine, mesh, &|_| true, |request| {
        let cut = Cut { graph: request.graph, sections: request.sections };
        let request = Request { capacity, steps: offer.steps, ..*request };
        Ok(plan_in((&request, &[]), &[cut], None, (offer, width))?.plan)
    })
}

#[test]
fn messages_find_as_good_plans_as_elimination_with_much_memory_and_with_little() {
    let sizes = Sizes { layers: 6, batch: 8, sequence: 512, hidden: 1024, heads: 16, groups: 4, units: 2816 };
    let graph = transformer_that(Sees::Before, sizes);
    for mesh in ["8", "2x4"] {
        let ample = planned_by(Width::Narrow, &graph, mesh, 1 << 40).unwrap();
        let held: u64 = ample.memory.iter().map(|it| it.bytes).sum();
        for capacity in [1 << 40, held - held / 10] {
            let exact = planned_by(Width::Narrow, &graph, mesh, capacity).unwrap();
            let found = planned_by(Width::Any(0.0), &graph, mesh, capacity).unwrap();
            plan::check(&found).unwrap();
            let (best, time) = (exact.seconds(), found.seconds());
            let bound = match found.proof {
                plan::Proof::Optimal => time,
                plan::Proof::Gap { lower_bound } => lower_bound,
            };
            assert!(bound <= best * (1.0 + 1e-9), "{mesh}, {capacity}: {bound} {best}");
            assert!(time <= best * 1.002, "{mesh}, {capacity}: {time} {best}");
        }
    }
    // Too little for anything is said by both.
    for width in [Width::Narrow, Width::Any(0.0)] {
        assert!(planned_by(width, &graph, "8", 1 << 20).is_err());
    }
}
