//! Which products are narrow, and of what.

use std::fmt::Write as _;

use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{DType, Graph, Nvfp4, Op, Optimizer, Phase, Real, Source, State, parse_graph, verify};

use super::products::parts;
use crate::{Step, TrainError, forward, step};

/// Layers of so many numbers each, one after another, and the sum of what the last makes.
fn model(sizes: &[u64], rows: u64) -> Graph {
    let mut text = format!("graph \"model\" {{\n  %0 = input \"x\" : f32[{rows},{}]\n", sizes[0]);
    for (layer, pair) in sizes.windows(2).enumerate() {
        writeln!(text, "  %{} = weight \"w{layer}\" : f32[{},{}]", layer + 1, pair[0], pair[1]).unwrap();
    }
    let mut last = 0;
    let mut next = sizes.len();
    for (layer, size) in sizes[1..].iter().enumerate() {
        let weight = layer + 1;
        writeln!(text, "  %{next} = contract \"ab,bc->ac\" %{last} %{weight} : f32[{rows},{size}]").unwrap();
        writeln!(text, "  %{} = relu %{next} : f32[{rows},{size}]", next + 1).unwrap();
        (last, next) = (next + 1, next + 2);
    }
    writeln!(text, "  %{next} = reduce_sum dims=[0,1] %{last} : f32[1,1]").unwrap();
    writeln!(text, "  %{} = reshape shape=[] %{next} : f32[]", next + 1).unwrap();
    writeln!(text, "  return \"loss\" %{}\n}}", next + 1).unwrap();
    parse_graph(&text).unwrap()
}

fn stepped(graph: &Graph, precision: Precision, again: &Recompute) -> Step {
    tried(graph, precision, again).unwrap()
}

fn tried(graph: &Graph, precision: Precision, again: &Recompute) -> Result<Step, TrainError> {
    let recipe = Recipe {
        precision,
        ..Recipe::new(Loss::Output("loss".to_owned()), Optimizer::Sgd { decay: Real(0.0) })
    };
    let blocks = rewrite::blocks(&forward(graph, &recipe).unwrap());
    let recompute = vec![again.clone(); blocks.segments.len()];
    let step = step(&blocks, &Recipe { recompute, ..recipe })?;
    verify(&step.graph).unwrap();
    Ok(step)
}

/// The types of the operands of each narrow product, with its phase.
fn products(step: &Step) -> Vec<(Phase, [DType; 2])> {
    let narrow = step.graph.nodes.iter().filter(|it| matches!(it.op, Op::ScaledContract { .. }));
    let types = |operands: &[_]| [0, 1].map(|it: usize| step.graph.type_of(operands[it]).dtype);
    narrow.map(|it| (it.phase, types(&it.operands))).collect()
}

fn count(step: &Step, is: impl Fn(&Op) -> bool) -> usize {
    step.graph.nodes.iter().filter(|it| is(&it.op)).count()
}

const E4M3: DType = DType::F8E4M3FN;
const E5M2: DType = DType::F8E5M2;

/// Two layers before the last: a product forward, one for each gradient; the first has no gradient of x.
#[test]
fn layers_before_the_last_are_narrow_and_values_are_quantised_once() {
    let graph = model(&[32, 64, 32, 16], 32);
    let step = stepped(&graph, Precision::Fp8, &Recompute::Nothing);
    assert_eq!(
        products(&step),
        [
            (Phase::Forward, [E4M3, E4M3]),
            (Phase::Forward, [E4M3, E4M3]),
            (Phase::Backward, [E5M2, E4M3]),
            (Phase::Gradient, [E4M3, E5M2]),
            (Phase::Gradient, [E4M3, E5M2]),
        ]
    );
    // Two values, two weights, two gradients.
    assert_eq!(count(&step, |op| matches!(op, Op::Quantize { .. })), 6);
    assert_eq!(count(&step, |op| matches!(op, Op::Amax { .. })), 6);
    // The last layer: forward and both gradients.
    assert_eq!(count(&step, |op| matches!(op, Op::Contract(_))), 3);
    // Gradients go with the product that they are of.
    for (node, forward) in step.graph.nodes.iter().zip(&step.forward) {
        if matches!(node.op, Op::ScaledContract { .. }) && node.phase != Phase::Forward {
            let of = &step.graph.node(forward.unwrap()).op;
            assert!(matches!(of, Op::ScaledContract { .. }), "{of}");
        }
    }
    // What the backward part reads of a weight is a value of its own.
    let back = step
        .graph
        .nodes
        .iter()
        .find(|it| it.phase == Phase::Backward && matches!(it.op, Op::ScaledContract { .. }));
    let Source::Result { node, .. } = step.graph.value(back.unwrap().operands[1]).source else { panic!() };
    assert!(matches!(step.graph.node(node).op, Op::Reshape { .. }));
    let [bf16, fp8] = [Precision::Bf16, Precision::Fp8].map(|it| stepped(&graph, it, &Recompute::Nothing));
    let states = |step: &Step| -> Vec<State> {
        let states = step.graph.values.iter().filter_map(|it| match &it.source {
            Source::State(state) => Some(state.clone()),
            _ => None,
        });
        states.collect()
    };
    assert_eq!(states(&bf16), states(&fp8));
    assert_eq!(products(&bf16), []);
}

/// What is summed over in two products is made narrow twice, all with as many digits.
#[test]
fn blocks_lie_along_what_is_summed() {
    let step = stepped(&model(&[32, 64, 32, 16], 32), Precision::Mxfp8, &Recompute::Nothing);
    let found = products(&step);
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|(_, types)| *types == [E4M3, E4M3]));
    assert_eq!(count(&step, |op| matches!(op, Op::Amax { .. } | Op::Quantize { .. })), 0);
    // x and w of both layers, y of the first for the gradient of w and of the second along its columns: 4
    // forward; backward dy by columns and by rows, w by columns, x by rows; of the first layer dy and x by rows.
    assert_eq!(count(&step, |op| matches!(op, Op::QuantizeBlocks { .. })), 4 + 4 + 2);
    for node in step.graph.nodes.iter().filter(|it| matches!(it.op, Op::ScaledContract { .. })) {
        let Op::ScaledContract { contract, .. } = &node.op else { continue };
        for (labels, scale) in [(&contract.left, node.operands[2]), (&contract.right, node.operands[3])] {
            let value = &step.graph.type_of(node.operands[usize::from(labels == &contract.right)]).shape;
            for ((label, &size), &blocks) in labels.iter().zip(value).zip(&step.graph.type_of(scale).shape) {
                let expected = if contract.result.contains(label) { size } else { size / 32 };
                assert_eq!(blocks, expected);
            }
        }
    }
}

/// In 4 bits, a weight is quantised once for both products that read it; what a weight's gradient is of is
/// turned along its rows, and gradients are rounded by chance, each by its own.
#[test]
fn products_of_4_bits_have_squares_of_weights_and_gradients_by_chance() {
    let step = stepped(&model(&[32, 64, 32, 16], 48), Precision::Nvfp4, &Recompute::Nothing);
    let found = products(&step);
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|(_, types)| *types == [DType::U8, DType::U8]));
    let quantised = step.graph.nodes.iter().filter_map(|it| match &it.op {
        Op::QuantizeNvfp4(how) => Some((step.graph.type_of(it.operands[0]).shape.clone(), how.clone())),
        _ => None,
    });
    let quantised: Vec<_> = quantised.collect();
    let count = |is: &dyn Fn(&Nvfp4) -> bool| quantised.iter().filter(|(_, how)| is(how)).count();
    // Two weights; two values forward, two turned; of two gradients one by columns, and both turned.
    assert_eq!(count(&|how| how.across.is_some()), 2);
    assert_eq!(count(&|how| how.across.is_none() && how.seed.is_none()), 4);
    assert_eq!(count(&|how| how.seed.is_some()), 3);
    assert_eq!(count(&|how| how.rotated), 4);
    for (shape, how) in &quantised {
        let of_weight = shape[0] != 48;
        assert_eq!(how.across.is_some(), of_weight);
        assert_eq!(how.dim, usize::from(!(of_weight || how.rotated)), "{shape:?}");
    }
    let mut seeds: Vec<_> = quantised.iter().filter_map(|(_, how)| how.seed).collect();
    seeds.dedup();
    assert_eq!(seeds.len(), 3);
    // All start from a number that differs from micro-batch to micro-batch.
    assert!(step.graph.values.iter().any(|it| it.source == Source::Input(crate::SEED.to_owned())));
    let wide = |it: &Op| matches!(it, Op::Contract(_));
    assert_eq!(step.graph.nodes.iter().filter(|it| wide(&it.op)).count(), 3);
}

/// 15 % of the blocks stay in bf16, the last ones.
#[test]
fn the_last_blocks_stay_in_bf16_beside_products_of_4_bits() {
    let graph = model(&[32; 9], 32);
    let narrow = |precision| products(&stepped(&graph, precision, &Recompute::Nothing)).len();
    // Of eight layers the last is the output's, of seven the last one stays besides, and the first has no
    // gradient of x.
    assert_eq!(narrow(Precision::Mxfp8), 3 * 7 - 1);
    assert_eq!(narrow(Precision::Nvfp4), 3 * 6 - 1);
}

/// Extents that are no multiples of 16, or do not fall into blocks, leave products as they are.
#[test]
fn what_units_do_not_take_stays_in_bf16() {
    // Where none is narrow, the precision is refused.
    let eight = |sizes: &[u64], rows: u64, precision| match tried(
        &model(sizes, rows),
        precision,
        &Recompute::Nothing,
    ) {
        Ok(step) => products(&step).len(),
        Err(error) => {
            assert_eq!(error, TrainError::Wide(precision));
            assert!(error.to_string().contains("multiples of 16"), "{error}");
            0
        }
    };
    assert_eq!(eight(&[32, 32, 16], 32, Precision::Fp8), 2);
    assert_eq!(eight(&[32, 32, 16], 24, Precision::Fp8), 0);
    assert_eq!(eight(&[32, 24, 16], 32, Precision::Fp8), 0);
    // 48 rows are no blocks of 32: the gradient of the weight stays.
    assert_eq!(eight(&[32, 32, 16], 48, Precision::Mxfp8), 1);
    // But they are of blocks of 16.
    assert_eq!(eight(&[32, 32, 16], 48, Precision::Nvfp4), 2);
    assert_eq!(eight(&[32, 24, 16], 32, Precision::Nvfp4), 0);
    // One layer is the last.
    assert_eq!(eight(&[32, 32], 32, Precision::Fp8), 0);
}

/// Recomputation is narrow again.
#[test]
fn products_that_are_done_again_are_narrow() {
    let step = stepped(&model(&[32, 32, 32, 16], 32), Precision::Fp8, &Recompute::Full);
    let found = products(&step);
    let again = (Phase::Backward, [E4M3, E4M3]);
    assert!(found.contains(&again), "{found:?}");
}

#[test]
fn magnitudes_are_found_in_parts_that_devices_may_have() {
    assert_eq!(parts(&[8, 8192, 4096], None), [8, 64, 32]);
    assert_eq!(parts(&[14336, 4096], None), [512, 32]);
    assert_eq!(parts(&[7, 3], None), [1, 1]);
    assert_eq!(parts(&[], None), Vec::<u64>::new());
}
