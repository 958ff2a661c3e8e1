//! Causal attention on stripes of a sequence.

use plan::Assignment;
use planner_ir::{Digit, Op, Partition};

use super::*;

/// One long sequence, of fewer heads than devices.
const LONG: Sizes =
    Sizes { layers: 8, batch: 1, sequence: 1 << 16, hidden: 4096, heads: 4, groups: 4, units: 8192 };

fn is_striped(partition: &Partition) -> bool {
    partition.loops.iter().any(|digits| digits.first().is_some_and(Digit::is_free))
}

/// The partitions of operations of a kind.
fn partitions(plan: &Plan, is_kind: impl Fn(&Op) -> bool) -> Vec<Partition> {
    let all = plan.graph.nodes.iter().zip(&plan.assignments).filter(|it| is_kind(&it.0.op));
    let partition = |assignment: &Assignment| match assignment {
        Assignment::Computed { partition, .. } => partition.clone(),
        Assignment::Prepared => unreachable!("it depends on inputs"),
    };
    all.map(|it| partition(it.1)).collect()
}

#[test]
fn a_long_causal_sequence_lies_in_stripes_in_all_layers_and_halves_attention() {
    let is_attention = |op: &Op| matches!(op, Op::Attention(_));
    let graph = transformer_that(Sees::Before, LONG);
    for mesh in ["4", "8"] {
        let planned = |allows: &(dyn Fn(&Work<'_>) -> bool + Sync)| {
            planned_with(&graph, "h100-80g-8x", mesh, 80 << 30, allows).expect("fits")
        };
        // By nothing but the sequence, so that stripes or stretches are all there is to choose.
        let along = |work: &Work<'_>| {
            let queries = || work.loops.operands[0][2][0];
            !is_attention(work.op) || work.partition.loops[queries().0].iter().any(|it| !it.is_free())
        };
        let found = planned(&along);
        plan::check(&found).expect("obeys the rules");
        let partitions = partitions(&found, is_attention);
        assert_eq!(partitions.len(), 8);
        assert!(partitions.iter().all(is_striped), "{mesh}: {partitions:?}");
        // Half of the scores of each step, and no step hides less than it did.
        let stretches = planned(&|work: &Work<'_>| along(work) && !is_striped(work.partition));
        plan::check(&stretches).expect("obeys the rules");
        assert!(found.seconds() < stretches.seconds(), "{mesh}");
        // Tokens lie in stripes from the look-up to the last layer: nothing brings them there.
        let received = |plan: &Plan| plan::communication(plan).iter().map(|it| it.bytes).sum::<u64>();
        assert!(received(&found) <= received(&stretches), "{mesh}");
    }
}

/// Of what a mask hides nothing is known, so that all layouts are as good.
#[test]
fn masked_attention_is_offered_no_stripes() {
    for (sees, striped) in [(Sees::Before, true), (Sees::Masked, false)] {
        let graph = transformer_that(sees, Sizes { layers: 1, sequence: 64, hidden: 64, ..LONG });
        let mesh = Mesh::parse("4").expect("is a mesh");
        let length = rewrite::striped_length([&graph], &mesh);
        assert_eq!(length, striped.then_some(64));
        let offer = rewrite::Offer { steps: rewrite::Steps::Offered, striped: length, ..Default::default() };
        let space = rewrite::space(&graph, &mesh, &[], offer).expect("is sound");
        let choices = graph.nodes.iter().zip(&space.choices).filter(|it| matches!(it.0.op, Op::Attention(_)));
        let rings = choices.flat_map(|it| it.1.iter()).filter(|it| it.partition.steps > 1);
        let rotating = |it: &&rewrite::Choice| is_striped(&it.partition);
        assert_eq!(rings.filter(rotating).count() > 0, striped);
    }
}
