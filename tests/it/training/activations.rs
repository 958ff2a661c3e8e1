//! What is kept for the backward pass, against the formulas of Korthikanti et al.

use plan::{Loss, Plan, Precision, Recipe, Recompute};
use planner_ir::{
    Binary, Contract, DType, Graph, Label, Op, Optimizer, Output, Real, Reduction, Source, Type, Unary,
    ValueId,
};
use search::{MachinePrices, Request};

use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use crate::corpus::machine;

const BATCH: u64 = 2;
const SEQUENCE: u64 = 24;
const HIDDEN: u64 = 64;
const HEADS: u64 = 4;
const UNITS: u64 = 4 * HIDDEN;

/// Builds a model with inferred types.
struct Draft(Graph);

impl Draft {
    fn weight(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("w{}", self.0.values.len());
        self.0.push_value(Type::new(DType::F32, shape), Source::Weight(name))
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.0.types_of(operands)).expect("types fit");
        self.0.push_node(op, operands.to_vec(), types, String::new())[0]
    }

    fn contract(&mut self, labels: [&str; 3], operands: [ValueId; 2]) -> ValueId {
        let [left, right, result] = labels.map(|text| text.bytes().map(|it| Label(it - b'a')).collect());
        self.op(Op::Contract(Contract { left, right, result }), &operands)
    }

    fn dropout(&mut self, x: ValueId) -> ValueId {
        self.op(Op::Dropout { ratio: Real(0.1), seed: 0 }, &[x])
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        let [scale, bias] = [0, 0].map(|_| self.weight(&[HIDDEN]));
        self.op(Op::LayerNorm { dims: 1, epsilon: Real(1e-5) }, &[x, scale, bias])
    }

    /// A block of GPT-3, with dropout in the attention, so that this is not one operation.
    fn layer(&mut self, x: ValueId) -> ValueId {
        let size = HIDDEN / HEADS;
        let h = self.norm(x);
        let [q, k, v] = [0, 0, 0].map(|_| {
            let (w, bias) = (self.weight(&[HIDDEN, HEADS, size]), self.weight(&[HEADS, 1, size]));
            let y = self.contract(["bsk", "kad", "basd"], [h, w]);
            self.op(Op::Binary(Binary::Add), &[y, bias])
        });
        let scores = self.contract(["basd", "batd", "bast"], [q, k]);
        let scale = self.op(Op::Fill { result: Type::new(DType::F32, []), value: Real(0.25) }, &[]);
        let scores = self.op(Op::Binary(Binary::Mul), &[scores, scale]);
        let weights = self.op(Op::Softmax { dim: 3 }, &[scores]);
        let weights = self.dropout(weights);
        let a = self.contract(["bast", "batd", "basd"], [weights, v]);
        let (w, bias) = (self.weight(&[HEADS, size, HIDDEN]), self.weight(&[HIDDEN]));
        let y = self.contract(["basd", "adk", "bsk"], [a, w]);
        let y = self.op(Op::Binary(Binary::Add), &[y, bias]);
        let y = self.dropout(y);
        let x = self.op(Op::Binary(Binary::Add), &[x, y]);
        let h = self.norm(x);
        let (w, bias) = (self.weight(&[HIDDEN, UNITS]), self.weight(&[UNITS]));
        let u = self.contract(["bsk", "kn", "bsn"], [h, w]);
        let u = self.op(Op::Binary(Binary::Add), &[u, bias]);
        let u = self.op(Op::Unary(Unary::Gelu), &[u]);
        let (w, bias) = (self.weight(&[UNITS, HIDDEN]), self.weight(&[HIDDEN]));
        let y = self.contract(["bsk", "kn", "bsn"], [u, w]);
        let y = self.op(Op::Binary(Binary::Add), &[y, bias]);
        let y = self.dropout(y);
        self.op(Op::Binary(Binary::Add), &[x, y])
    }
}

fn model(layers: usize) -> Graph {
    let mut it = Draft(Graph::default());
    let shape = [BATCH, SEQUENCE, HIDDEN];
    let input = it.0.push_value(Type::new(DType::F32, shape), Source::Input("x".to_owned()));
    let position = it.weight(&[1, SEQUENCE, HIDDEN]);
    let mut x = it.op(Op::Binary(Binary::Add), &[input, position]);
    for _ in 0..layers {
        x = it.layer(x);
    }
    let squares = it.op(Op::Binary(Binary::Mul), &[x, x]);
    let mean = Op::Reduce { reduction: Reduction::Mean, dims: vec![0, 1, 2] };
    let loss = it.op(mean, &[squares]);
    it.0.outputs.push(Output { name: "loss".to_owned(), value: loss });
    it.0
}

/// The plan of a manner over t devices.
fn planned(layers: usize, manner: Manner, t: u64, decision: Recompute) -> Plan {
    let mut recipe = Recipe {
        precision: Precision::Bf16,
        ..Recipe::new(Loss::Output("loss".to_owned()), Optimizer::Sgd { decay: Real(0.0) })
    };
    let blocks = rewrite::blocks(&train::forward(&model(layers), &recipe).unwrap());
    recipe.recompute = vec![decision; blocks.segments.len()];
    let step = train::step(&blocks, &recipe).unwrap();
    let sections = search::fold(&step.graph, &step.homes, &step.forward);
    let (mesh, machine) = machine(&t.to_string());
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let prices = Preferring::new(manner, prices, &step.graph, &sections);
    let mut plan = search::plan(&Request {
        graph: &step.graph,
        sections: &sections,
        mesh: &mesh,
        capacity: machine.usable_memory().0,
        prices: &prices,
        model: &plan::ModelFile { path: "block.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &plan::MachineName { name: machine.full_name(), devices: machine.devices(), sha256: None },
        live: search::Live::ONE,
        steps: rewrite::Steps::Auto,
        pinned: None,
        fixed: &[],
        trail: None,
        memory: &search::counted,
        enough: &|_| false,
    })
    .unwrap();
    plan.recipe = Some(recipe);
    plan.memory = lower::memory(&plan).unwrap();
    check_plan(&plan).unwrap();
    plan
}

/// What a block keeps on a device (bytes): what deeper models hold more.
fn kept(manner: Manner, t: u64, decision: &Recompute) -> f64 {
    let [few, many] = [2, 6].map(|layers| {
        let plan = planned(layers, manner, t, decision.clone());
        let held = plan.memory.iter().find(|it| it.kind == "activations").unwrap();
        f64::from(u32::try_from(held.bytes).unwrap())
    });
    (many - few) / 4.0
}

/// Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
/// 2022, table 2: with `sbh` the elements of an activation, a heads and t devices.
#[test]
fn a_block_keeps_what_the_formulas_say() {
    let number = |it: u64| f64::from(u32::try_from(it).unwrap());
    let sbh = number(SEQUENCE * BATCH * HIDDEN);
    let scores = 5.0 * number(HEADS * SEQUENCE) / number(HIDDEN);
    for (manner, t, decision, expected) in [
        (Manner::Tensor, 1, Recompute::Nothing, 34.0 + scores),
        (Manner::Tensor, 1, Recompute::Selective, 34.0),
        (Manner::Tensor, 1, Recompute::Full, 2.0),
        (Manner::Tensor, 2, Recompute::Nothing, 10.0 + 24.0 / 2.0 + scores / 2.0),
        (Manner::Tensor, 4, Recompute::Nothing, 10.0 + 24.0 / 4.0 + scores / 4.0),
        (Manner::Tensor, 4, Recompute::Selective, 10.0 + 24.0 / 4.0),
        (Manner::Tensor, 4, Recompute::Full, 2.0),
        (Manner::Sequence, 2, Recompute::Nothing, (34.0 + scores) / 2.0),
        (Manner::Sequence, 4, Recompute::Nothing, (34.0 + scores) / 4.0),
        (Manner::Sequence, 4, Recompute::Selective, 34.0 / 4.0),
    ] {
        let found = kept(manner, t, &decision) / sbh;
        let apart = (found / expected - 1.0).abs();
        assert!(
            apart < 0.02,
            "{manner:?} over {t}, {decision:?}: {found} bytes for each, expected {expected}"
        );
    }
}
