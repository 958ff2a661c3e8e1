//! What tensor and sequence parallel plans of the search move of activations.

use std::collections::BTreeMap;

use plan::{Plan, Recompute};
use planner_ir::{Phase, Source};
use search::MachinePrices;

use super::cases::{SGD, gpt2, parted};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use crate::corpus::machine;

/// How often values of this shape move, and the bytes of one such move: by phase and kind of move.
fn moved(plan: &Plan, shape: &[u64]) -> BTreeMap<(&'static str, &'static str), Vec<u64>> {
    let mut moved: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for transfer in plan.transfers.iter().filter(|it| plan.graph.type_of(it.value).shape == shape) {
        let Source::Result { node, .. } = plan.graph.value(transfer.value).source else { continue };
        let phase = plan.graph.node(node).phase;
        if matches!(phase, Phase::Forward | Phase::Backward) {
            let steps = transfer.moves.iter().zip(&transfer.bytes).filter(|it| *it.1 > 0);
            for (step, &bytes) in steps {
                moved.entry((phase.name(), step.name())).or_default().push(bytes);
            }
        }
    }
    moved
}

/// How often activations of b s h elements move in a pass, by kind of move.
type Times = &'static [(&'static str, usize)];

const LAYERS: usize = 2;
/// Each half of a layer sums once, forward and backward.
const SUMS: Times = &[("all-reduce", 2 * LAYERS)];
/// Where the sequence is split, each half gathers its input and scatters its sum.
const FORWARD: Times = &[("all-gather", 2 * LAYERS + 1), ("reduce-scatter", 2 * LAYERS)];
/// Backward the same of gradients; and inputs, of which each rank has kept its part, are gathered
/// again for the gradients of parameters.
const BACKWARD: Times = &[("all-gather", 4 * LAYERS + 2), ("reduce-scatter", 2 * LAYERS)];

/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3: a layer sums activations of b s h elements
/// twice forward and twice backward. Korthikanti et al., "Reducing Activation Recomputation in Large
/// Transformer Models", 2022, section 4.2.2: where the sequence is split, each of these sums is a
/// reduce-scatter, and each input of a layer's two halves an all-gather, both ways; backward each of
/// these inputs is gathered once more, as only its part is kept.
///
/// What is different: the vocabulary of 211 does not fall into parts. So with the sequence split the
/// head's input is gathered, forward and again backward, and the gradient towards what is looked up
/// is gathered once.
#[test]
fn activations_move_as_in_megatron() {
    for (manner, ranks) in
        [(Manner::Tensor, 2), (Manner::Tensor, 4), (Manner::Sequence, 2), (Manner::Sequence, 4)]
    {
        let case = gpt2();
        let case = case.stretched(1, ranks);
        let (mesh, machine) = machine(&ranks.to_string());
        let training = case.training(SGD, Recompute::Nothing);
        let micro_batches = parted(&case.batch(0), 1);
        let prepared = case.prepared(&training, &micro_batches);
        let prices = MachinePrices::new(&machine, &mesh).unwrap();
        let prices = Preferring::new(manner, prices, &prepared.graph, &prepared.sections);
        let plan = case.plan_of(&prepared, &mesh, &machine, &prices).unwrap();
        check_plan(&plan).unwrap();
        let hidden = case.file.model.weight_type("model.transformer.wte.weight").unwrap().shape[1];
        let shape = [micro_batches[0]["input_ids"].shape(), &[hidden]].concat();
        let bytes = (ranks - 1) * shape.iter().product::<u64>() * 4;
        let (times, each) = match manner {
            Manner::Tensor => ([SUMS, SUMS], 2 * bytes),
            _ => ([FORWARD, BACKWARD], bytes),
        };
        for (phase, times) in ["forward", "backward"].into_iter().zip(times) {
            let expected: Vec<_> = times.iter().map(|&(name, times)| (name, vec![each; times])).collect();
            let found = moved(&plan, &shape).into_iter().filter(|it| it.0.0 == phase);
            let found: Vec<_> = found.map(|((_, name), bytes)| (name, bytes)).collect();
            assert_eq!(found, expected, "{manner:?} over {ranks}, {phase}");
        }
    }
}
