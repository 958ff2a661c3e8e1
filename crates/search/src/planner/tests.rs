//! Tests of whole plans.

use cost_models::machine::shipped;
use plan::{MachineName, ModelFile};
use planner_ir::{Attention, Binary, Blind, Contract, DType, Label, Op, Output, Pairing, Real, Type, Unary};
use planner_ir::{Layout, Mesh, Move, Slots, Source, ValueId, Ways};

use super::*;
use crate::{MachinePrices, Prices, Work, sections};
use asked::{Only, asked, planned_with};

mod asked; // how plans are asked for
mod impossible; // work that takes forever
mod long; // blocks of many operations
mod in_time; // work in time steps, chosen and refused
mod wide; // what is too wide to be eliminated
mod striped; // causal attention on stripes of a sequence

/// Builds graphs with inferred types.
struct Draft(Graph);

/// The sizes of a transformer.
#[derive(Clone, Copy)]
struct Sizes {
    layers: u64,
    batch: u64,
    sequence: u64,
    hidden: u64,
    heads: u64,
    groups: u64,
    units: u64,
}

/// Llama 2 with 70 billion parameters.
const LLAMA_70B: Sizes =
    Sizes { layers: 80, batch: 8, sequence: 1024, hidden: 8192, heads: 64, groups: 8, units: 28672 };

impl Draft {
    fn input(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("x{}", self.0.values.len());
        self.0.push_value(Type::new(DType::BF16, shape), Source::Input(name))
    }

    fn weight(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("w{}", self.0.values.len());
        self.0.push_value(Type::new(DType::BF16, shape), Source::Weight(name))
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.0.types_of(operands)).expect("types fit");
        self.0.push_node(op, operands.to_vec(), types, String::new())[0]
    }

    fn contract(&mut self, left: &str, right: &str, result: &str, operands: &[ValueId]) -> ValueId {
        let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
        let op = Contract { left: labels(left), right: labels(right), result: labels(result) };
        self.op(Op::Contract(op), operands)
    }

    /// A layer; causal without a mask.
    fn layer(
        &mut self,
        x: ValueId,
        [cos, sin]: [ValueId; 2],
        mask: Option<ValueId>,
        sizes: Sizes,
    ) -> ValueId {
        let size = sizes.hidden / sizes.heads;
        let norm = Op::RmsNorm { dims: 1, epsilon: Real(1e-5) };
        let scale = self.weight(&[sizes.hidden]);
        let h = self.op(norm.clone(), &[x, scale]);
        let project = |it: &mut Self, count: u64| {
            let w = it.weight(&[sizes.hidden, count, size]);
            it.contract("abk", "khd", "ahbd", &[h, w])
        };
        let q = project(self, sizes.heads);
        let k = project(self, sizes.groups);
        let v = project(self, sizes.groups);
        let rotary = Op::Rotary(Pairing::Halves);
        let q = self.op(rotary.clone(), &[q, cos, sin]);
        let k = self.op(rotary, &[k, cos, sin]);
        let attention = Attention {
            scale: Real(0.1),
            causal: mask.is_none(),
            softcap: Real(0.0),
            window: None,
            blind: Blind::Zero,
            sinks: false,
            statistics: false,
        };
        let operands: Vec<ValueId> = [q, k, v].into_iter().chain(mask).collect();
        let a = self.op(Op::Attention(attention), &operands);
        let w = self.weight(&[sizes.heads, size, sizes.hidden]);
        let o = self.contract("ahbd", "hdk", "abk", &[a, w]);
        let x = self.op(Op::Binary(Binary::Add), &[x, o]);
        let scale = self.weight(&[sizes.hidden]);
        let h = self.op(norm, &[x, scale]);
        let [gate, up] = [0, 0].map(|_| self.weight(&[sizes.hidden, sizes.units]));
        let g = self.contract("abk", "kn", "abn", &[h, gate]);
        let u = self.contract("abk", "kn", "abn", &[h, up]);
        let m = self.op(Op::Gated(Unary::Silu), &[g, u]);
        let down = self.weight(&[sizes.units, sizes.hidden]);
        let d = self.contract("abk", "kn", "abn", &[m, down]);
        self.op(Op::Binary(Binary::Add), &[x, d])
    }
}

/// What attention sees.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    /// What a mask lets it see.
    Masked,
    /// What comes before.
    Before,
}

fn transformer(sizes: Sizes) -> Graph {
    transformer_that(Sees::Masked, sizes)
}

fn transformer_that(sees: Sees, sizes: Sizes) -> Graph {
    let mut it = Draft(Graph::default());
    let size = sizes.hidden / sizes.heads;
    let ids = it
        .0
        .push_value(Type::new(DType::I64, [sizes.batch, sizes.sequence]), Source::Input("ids".to_owned()));
    let table = it.weight(&[32000, sizes.hidden]);
    let mut x = it.op(Op::Gather { dim: 0 }, &[table, ids]);
    let shared = [[1, 1, sizes.sequence, size], [1, 1, sizes.sequence, size]].map(|shape| it.input(&shape));
    let scores = [sizes.batch, 1, sizes.sequence, sizes.sequence];
    let mask = (sees == Sees::Masked).then(|| it.input(&scores));
    for _ in 0..sizes.layers {
        x = it.layer(x, shared, mask, sizes);
    }
    let scale = it.weight(&[sizes.hidden]);
    let h = it.op(Op::RmsNorm { dims: 1, epsilon: Real(1e-5) }, &[x, scale]);
    let head = it.weight(&[sizes.hidden, 32000]);
    let logits = it.contract("abk", "kn", "abn", &[h, head]);
    it.0.outputs.push(Output { name: "logits".to_owned(), value: logits });
    it.0
}

fn planned(sizes: Sizes, machine: &str, mesh: &str, capacity: u64) -> Result<Plan, PlanError> {
    planned_with(&transformer(sizes), machine, mesh, capacity, &|_| true)
}

/// A layer whose heads are made by reshapes and transposes, as exporters write them.
fn reshaped(it: &mut Draft, x: ValueId) -> ValueId {
    let (batch, sequence, heads, size) = (8, 256, 16, 64);
    let hidden = heads * size;
    let turn = Op::Transpose { permutation: vec![0, 2, 1, 3] };
    let mut heads_of = |x: ValueId| {
        let w = it.weight(&[hidden, hidden]);
        let x = it.contract("abk", "kn", "abn", &[x, w]);
        let x = it.op(Op::Reshape { shape: vec![batch, sequence, heads, size] }, &[x]);
        it.op(turn.clone(), &[x])
    };
    let [q, k, v] = [heads_of(x), heads_of(x), heads_of(x)];
    let scores = it.contract("ahsd", "ahtd", "ahst", &[q, k]);
    // What takes most is seen in another shape when most is there.
    let joined = Op::Reshape { shape: vec![batch * heads, sequence, sequence] };
    let scores = it.op(joined, &[scores]);
    let v = it.op(Op::Reshape { shape: vec![batch * heads, sequence, size] }, &[v]);
    let mixed = it.contract("nst", "ntd", "nsd", &[scores, v]);
    let mixed = it.op(Op::Reshape { shape: vec![batch, heads, sequence, size] }, &[mixed]);
    let back = it.op(turn, &[mixed]);
    let back = it.op(Op::Reshape { shape: vec![batch, sequence, hidden] }, &[back]);
    // What is reshaped is used in both shapes.
    let rows = it.op(Op::Reshape { shape: vec![batch * sequence, hidden] }, &[back]);
    let w = it.weight(&[hidden, hidden]);
    let rows = it.contract("mk", "kn", "mn", &[rows, w]);
    let rows = it.op(Op::Reshape { shape: vec![batch, sequence, hidden] }, &[rows]);
    let sum = it.op(Op::Binary(Binary::Add), &[rows, back]);
    it.op(Op::Binary(Binary::Add), &[x, sum])
}

/// Such layers after something else, and alone.
fn reshaped_layers() -> [Graph; 2] {
    [true, false].map(|embedded| {
        let mut it = Draft(Graph::default());
        let mut x = it.input(&[8, 256, 1024]);
        if embedded {
            let positions = it.weight(&[1, 256, 1024]);
            x = it.op(Op::Binary(Binary::Add), &[x, positions]);
        }
        for _ in 0..6 {
            x = reshaped(&mut it, x);
        }
        it.0.outputs.push(Output { name: "y".to_owned(), value: x });
        it.0
    })
}

/// Holds what is counted of a plan of layers against what it holds, with all the memory that it would take and
/// with less. What is given to the first layer may be at rest (bytes), and is counted in its place all the same.
fn check_counted(graph: &Graph, mesh: &str, twice: u64) {
    let blocks = rewrite::blocks(graph);
    let sections = sections(&blocks);
    let machine = shipped::named("h100-80g-8x").expect("is a machine");
    let name = MachineName { name: machine.full_name(), devices: 8, sha256: None };
    let model = ModelFile { path: "model.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] };
    let mesh_ = Mesh::parse(mesh).expect("is a mesh");
    let prices = MachinePrices::new(&machine, &mesh_).expect("suits");
    let request = |capacity: u64| Request {
        graph: &blocks.graph,
        sections: &sections,
        mesh: &mesh_,
        capacity,
        prices: &prices,
        model: &model,
        machine: &name,
        steps: rewrite::Steps::Offered,
        live: crate::Live::ONE,
        pinned: None,
        fixed: &[],
        trail: None,
        memory: &crate::counted,
        enough: &|_| false,
    };
    let total = |memory: &[plan::Holding]| memory.iter().map(|it| it.bytes).sum::<u64>();
    let cuts = [Cut { graph: &blocks.graph, sections: &sections }];
    let offer = rewrite::Offer { steps: rewrite::Steps::Offered, ..Default::default() };
    let roomy = plan(&request(1 << 40)).expect("fits");
    for part in [100, 75, 50] {
        let capacity = total(&roomy.memory) / 100 * part;
        let request = request(capacity);
        plan::check(&plan(&request).expect("fits")).expect("obeys the rules");
        let spaces = &rewrite::Spaces::default();
        let (request, numbers, width) = (&request, &[0], Width::ANY);
        let asked = Asked { request, pins: &[], cuts: &cuts, numbers, derive: None, offer, width, spaces };
        let weighed = Weighed::new(asked, crate::clocks::Weights::ONE).expect("has a space");
        let chain = &weighed.chain;
        let found = crate::bound::solve_chain(chain, capacity).expect("fits");
        let written = weighed.written(&found.choices).expect("is composed").plan;
        // Nothing counts less in the chain because it is hidden.
        let seconds = written.seconds() + written.hidden_seconds();
        assert!((seconds - found.time).abs() < 1e-9 * found.time, "{mesh}, {part} %: times");
        let there = total(&memory(&written, request.live));
        let counted = chain.usage(&found.choices).peak();
        assert!(counted <= there + twice, "{mesh}, {part} %: {counted} counted, {there} there");
        assert!(there <= counted / 100 * 105, "{mesh}, {part} %: {counted} counted, {there} there");
    }
}

#[test]
fn what_is_counted_is_nearly_all_that_a_plan_holds() {
    check_counted(&reshaped_layers()[0], "8", 0);
}

#[test]
fn what_is_counted_on_two_axes_is_nearly_all_that_a_plan_holds() {
    check_counted(&reshaped_layers()[0], "2x4", 0);
}

#[test]
fn what_is_counted_without_what_comes_before_is_nearly_all_that_a_plan_holds() {
    check_counted(&reshaped_layers()[1], "2x4", 8 * 256 * 1024 * 2);
}

/// How far a plan may be from its bound, relatively.
fn gap(plan: &Plan) -> f64 {
    match plan.proof {
        plan::Proof::Optimal => 0.0,
        plan::Proof::Gap { lower_bound } => 1.0 - lower_bound / plan.seconds(),
    }
}

#[test]
fn a_large_transformer_is_planned_with_proof() {
    for (machine, mesh, most) in [
        ("h100-80g-8x", "8", 2e-3),
        ("h100-80g-8x", "2x4", 2e-3),
        ("h100-80g-8x", "2x2x2", 1e-3),
        ("h100-80g-64x", "8x8", 1e-3),
    ] {
        let plan = planned(LLAMA_70B, machine, mesh, 79_000_000_000).expect("fits");
        plan::check(&plan).expect("obeys the rules");
        assert!(gap(&plan) <= most, "{mesh}: {} above the bound", gap(&plan));
        assert_eq!((plan.space.unique_blocks, plan.space.blocks), (3, 82));
        assert!(plan.space.saturated);
    }
}

#[test]
fn little_memory_shards_the_weights() {
    let roomy = planned(LLAMA_70B, "h100-80g-8x", "8", 200_000_000_000).expect("fits");
    let tight = planned(LLAMA_70B, "h100-80g-8x", "8", 20_000_000_000).expect("fits");
    let weights = |plan: &Plan| plan.memory.iter().find(|it| it.kind == "weights").map_or(0, |it| it.bytes);
    assert!(weights(&tight) * 4 < weights(&roomy), "{} and {}", weights(&tight), weights(&roomy));
    assert!(roomy.seconds() < tight.seconds());
}

#[test]
fn what_does_not_fit_is_refused_with_the_missing_bytes() {
    let refused = planned(LLAMA_70B, "h100-80g-8x", "8", 16_000_000_000).map(|plan| plan.seconds());
    let message = refused.expect_err("cannot fit").to_string();
    assert!(message.contains("too few"), "{message}");
}

#[test]
fn one_sequence_is_split_by_columns_then_rows() {
    // With a batch of one there is no batch to split: the products of a block are.
    let sizes = Sizes { batch: 1, layers: 4, ..LLAMA_70B };
    let plan = planned(sizes, "h100-80g-8x", "8", 79_000_000_000).expect("fits");
    let split_loop = |node: usize| match &plan.assignments[node] {
        plan::Assignment::Computed { partition, .. } => {
            partition.loops.iter().position(|digits| !digits.is_empty())
        }
        plan::Assignment::Prepared => None,
    };
    let gated = plan.graph.nodes.iter().position(|node| matches!(node.op, Op::Gated(_))).expect("is there");
    let (up, down) = (gated - 1, gated + 1);
    // up: [a, b, k] [k, n]: columns are n; down: [a, b, n] [n, k]: rows are n.
    assert_eq!((split_loop(up), split_loop(down)), (Some(2), Some(1)));
}

/// The ways of a product of `[rows, 2048]` and `[2048, 2048]` that is done in time steps.
fn ways_of(machine: &str, mesh: &str, rows: u64) -> Ways {
    let mut it = Draft(Graph::default());
    let x = it.input(&[rows, 2048]);
    let w = it.weight(&[2048, 2048]);
    let y = it.contract("mk", "kn", "mn", &[x, w]);
    // Of numbers with which all these machines compute fast.
    it.0.values.iter_mut().for_each(|value| value.type_.dtype = DType::F16);
    it.0.outputs.push(Output { name: "y".to_owned(), value: y });
    let plan = planned_with(&it.0, machine, mesh, 1 << 40, &|work| work.partition.steps > 1).unwrap();
    plan::check(&plan).unwrap();
    let plan::Assignment::Computed { partition, .. } = &plan.assignments[0] else { panic!("prepared") };
    partition.ways
}

/// On rings of links half of each block goes the other way, where blocks are large enough for it to
/// be worth it; not where both ways share a port, nor of two devices.
#[test]
fn rings_go_both_ways_where_that_is_faster() {
    assert_eq!(ways_of("v100-32g-4x", "4", 2048), Ways::Both);
    assert_eq!(ways_of("v100-32g-4x", "4", 16), Ways::One);
    assert_eq!(ways_of("v100-32g-2x", "2", 2048), Ways::One);
    assert_eq!(ways_of("h100-80g-4x", "4", 2048), Ways::One);
    // The first and the last rank of a node have adapters of their own.
    assert_eq!(ways_of("h100-80g-16x", "16", 2048), Ways::Both);
}

/// How many devices one passes rows on for, where so many rows of a mixture of experts are dispatched over all axes.
fn passed_on(machine: &str, mesh: &str, rows: u64) -> u64 {
    let mut it = Draft(Graph::default());
    let values = [
        it.input(&[rows, 4096]),
        it.input(&[rows, 256]),
        it.weight(&[256, 64, 4096]),
        it.weight(&[256, 64, 4096]),
        it.weight(&[256, 4096, 64]),
    ];
    it.0.values.iter_mut().for_each(|value| value.type_.dtype = DType::F16);
    let op = Op::Experts { activation: planner_ir::Unary::Silu, limit: None, active: 8 };
    let results = op.infer(&it.0.types_of(&values)).unwrap();
    let y = it.0.push_node(op, values.to_vec(), results, "experts".to_owned())[0];
    it.0.outputs.push(Output { name: "y".to_owned(), value: y });
    let over_all = |work: &Work<'_>| work.partition.routed_axes().len() == mesh.split('x').count();
    let plan = planned_with(&it.0, machine, mesh, 1 << 40, &over_all).unwrap();
    plan::check(&plan).unwrap();
    let plan::Assignment::Computed { partition, .. } = &plan.assignments[0] else { panic!("prepared") };
    partition.routed_by
}

/// Between nodes of several devices each, rows go once for a node; few rows go straight, as there are fewer rounds.
#[test]
fn rows_cross_to_a_node_once_where_that_is_faster() {
    assert_eq!(passed_on("h100-80g-16x", "16", 1 << 15), 8);
    assert_eq!(passed_on("h100-80g-16x", "2x8", 1 << 15), 8);
    assert_eq!(passed_on("h100-80g-32x", "32", 1 << 16), 8);
    assert_eq!(passed_on("h100-80g-8x", "8", 1 << 15), 1);
    assert_eq!(passed_on("h100-80g-16x", "16", 16), 1);
}

/// Where a block and what comes next do not fit, what comes next comes over it: a little slower, and by
/// as much less memory as the chunks say. Where both fit, it does not.
#[test]
fn one_slot_is_taken_where_two_are_too_many() {
    let mut it = Draft(Graph::default());
    let (x, w) = (it.input(&[2048, 2048]), it.weight(&[2048, 2048]));
    let y = it.contract("mk", "kn", "mn", &[x, w]);
    it.0.outputs.push(Output { name: "y".to_owned(), value: y });
    let steps = |work: &Work<'_>| {
        let rotates = matches!(work.partition.operand_motion(work.loops, 1), planner_ir::Motion::Rotating(_));
        work.partition.steps > 1 && rotates
    };
    let held = |plan: &Plan| plan.memory.iter().map(|it| it.bytes).sum::<u64>();
    let slots = |plan: &Plan| match &plan.assignments[0] {
        plan::Assignment::Computed { partition, .. } => partition.slots,
        plan::Assignment::Prepared => panic!("prepared"),
    };
    let planned = |capacity| planned_with(&it.0, "h100-80g-4x", "4", capacity, &steps);
    let two = planned(1 << 40).unwrap();
    assert_eq!((slots(&two), slots(&planned(held(&two)).unwrap())), (Slots::Two, Slots::Two));
    let one = planned(held(&two) - 1).unwrap();
    plan::check(&one).unwrap();
    assert_eq!(slots(&one), Slots::One);
    assert!(one.seconds() > two.seconds());
    // Of four blocks of bf16.
    let block = 2 * 2048 * 2048 / 4;
    assert_eq!(held(&two) - held(&one), block - 2 * block / 8);
    assert!(planned(held(&one) - 1).is_err());
}

/// Prices by which everything takes as long, but work whose blocks go these ways half of it.
struct Favouring(Ways);

impl Prices for Favouring {
    fn ways(&self) -> Ways {
        Ways::Both
    }

    fn work(&self, work: &Work<'_>) -> f64 {
        if work.partition.ways == self.0 { 0.5 } else { 1.0 }
    }

    fn step(&self, _type: &Type, _step: &Move, _before: &Layout, _after: &Layout) -> f64 {
        1.0
    }
}

/// Half of each block may go the other way round every ring of three devices or more whose blocks
/// fall into halves, and where that is not faster none does; layouts are those of one way.
#[test]
fn rings_go_both_ways_in_the_layouts_of_one_way() {
    let mut it = Draft(Graph::default());
    let (x, w) = (it.input(&[48, 48]), it.weight(&[48, 48]));
    let hidden = it.contract("mk", "kn", "mn", &[x, w]);
    let y = it.contract("mk", "kn", "mn", &[hidden, w]);
    it.0.outputs.push(Output { name: "y".to_owned(), value: y });
    let graph = it.0;
    let blocks = rewrite::blocks(&graph);
    let (sections, offer) =
        (sections(&blocks), rewrite::Offer { steps: rewrite::Steps::Offered, ..Default::default() });
    let cut = crate::Cut { graph: &blocks.graph, sections: &sections };
    for (sizes, least) in [(&[2][..], 0), (&[3], 3), (&[2, 3], 3), (&[3, 3], 3)] {
        let mesh = Mesh::of_sizes(sizes);
        let of = |ways| {
            let prices = Favouring(ways);
            crate::prepare::Prepared::new(
                cut,
                &mesh,
                (&prices, &rewrite::Spaces::default(), crate::clocks::Weights::ONE),
                (offer, crate::Live::ONE),
                (None, &[]),
            )
            .unwrap()
            .spaces
        };
        let (one, both) = (of(Ways::One), of(Ways::Both));
        let mut turned = 0;
        for ((section, one), both) in sections.iter().zip(&one).zip(&both) {
            assert_eq!(one.layouts, both.layouts);
            for (node, (one, both)) in section.graph.nodes.iter().zip(one.choices.iter().zip(&both.choices)) {
                let types = |values| section.graph.types_of(values);
                let loops = node.op.loops(&types(&node.operands), &types(&node.results));
                for (one, both) in one.iter().zip(both.iter()) {
                    assert_eq!(one.partition.ways, Ways::One);
                    let back = planner_ir::Partition { ways: Ways::One, ..both.partition.clone() };
                    assert_eq!(
                        (&back, &one.operands, &one.results),
                        (&one.partition, &both.operands, &both.results)
                    );
                    let possible = planner_ir::Partition { ways: Ways::Both, ..back };
                    let possible =
                        least > 0 && possible.steps >= least && possible.check(&mesh, &loops).is_ok();
                    assert_eq!(both.partition.ways == Ways::Both, possible);
                    turned += usize::from(possible);
                }
            }
        }
        assert_eq!(turned > 0, least > 0, "{sizes:?}");
    }
}

#[test]
fn equal_layers_are_one_section() {
    let blocks = rewrite::blocks(&transformer(Sizes { layers: 4, ..LLAMA_70B }));
    let repetitions: Vec<usize> = sections(&blocks).iter().map(|section| section.repetitions.len()).collect();
    assert_eq!(repetitions, [1, 4, 1]);
}
