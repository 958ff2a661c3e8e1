//! Tests of the partition space.

use planner_ir::{
    Attention, Binary, Blind, Contract, DType, Graph, Label, Mesh, Op, Real, Source, Type, Unary, ValueId,
};

use super::*;

mod once; // programs in which what is alike stands once
mod sizes; // how large e-graphs are

/// Builds graphs with inferred types.
struct Draft(Graph);

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
}

/// A block of a transformer with grouped heads and gated units; its input and output.
fn block(
    batch: u64,
    sequence: u64,
    hidden: u64,
    heads: u64,
    groups: u64,
    units: u64,
) -> (Graph, [ValueId; 2]) {
    let size = hidden / heads;
    let mut it = Draft(Graph::default());
    let x = it.input(&[batch, sequence, hidden]);
    let cos = it.input(&[batch, 1, sequence, size]);
    let sin = it.input(&[batch, 1, sequence, size]);
    let mask = it.input(&[batch, 1, sequence, sequence]);
    let norm = Op::RmsNorm { dims: 1, epsilon: Real(1e-5) };
    let scale = it.weight(&[hidden]);
    let h = it.op(norm.clone(), &[x, scale]);
    let project = |it: &mut Draft, count: u64| {
        let w = it.weight(&[hidden, count, size]);
        it.contract("abk", "khd", "ahbd", &[h, w])
    };
    let q = project(&mut it, heads);
    let k = project(&mut it, groups);
    let v = project(&mut it, groups);
    let rotary = Op::Rotary(planner_ir::Pairing::Halves);
    let q = it.op(rotary.clone(), &[q, cos, sin]);
    let k = it.op(rotary, &[k, cos, sin]);
    let attention = Attention {
        scale: Real(0.1),
        causal: false,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let a = it.op(Op::Attention(attention), &[q, k, v, mask]);
    let w = it.weight(&[heads, size, hidden]);
    let o = it.contract("ahbd", "hdk", "abk", &[a, w]);
    let x1 = it.op(Op::Binary(Binary::Add), &[x, o]);
    let scale = it.weight(&[hidden]);
    let h = it.op(norm, &[x1, scale]);
    let [wg, wu, wd] =
        [it.weight(&[hidden, units]), it.weight(&[hidden, units]), it.weight(&[units, hidden])];
    let g = it.contract("abk", "kn", "abn", &[h, wg]);
    let u = it.contract("abk", "kn", "abn", &[h, wu]);
    let m = it.op(Op::Gated(Unary::Silu), &[g, u]);
    let d = it.contract("abk", "kn", "abn", &[m, wd]);
    let y = it.op(Op::Binary(Binary::Add), &[x1, d]);
    it.0.outputs.push(planner_ir::Output { name: "y".to_owned(), value: y });
    (it.0, [x, y])
}

#[test]
fn what_other_spaces_have_found_out_changes_nothing() {
    let blocks =
        [(8, 1024, 256, 8, 2, 512), (4, 1024, 256, 8, 2, 512), (8, 1024, 256, 8, 4, 512)].map(|it| {
            let (batch, sequence, hidden, heads, groups, units) = it;
            block(batch, sequence, hidden, heads, groups, units)
        });
    let offers = [Offer::default(), Offer { steps: Steps::Offered, ..Offer::default() }];
    let shared = Spaces::default();
    for sizes in [&[2, 2][..], &[4]] {
        let mesh = Mesh::of_sizes(sizes);
        for offer in offers.into_iter().chain([Offer { striped: Some(1024), ..offers[1] }, offers[0]]) {
            for (graph, ends) in &blocks {
                let after = shared.of(graph, &mesh, ends, offer).expect("is sound");
                let alone = space(graph, &mesh, ends, offer).expect("is sound");
                assert!(*after == alone, "{sizes:?}, {offer:?}");
            }
        }
    }
}

#[test]
fn a_transformer_block_saturates() {
    let (graph, ends) = block(8, 1024, 8192, 64, 8, 28672);
    for sizes in [&[8][..], &[2, 4], &[2, 2, 2]] {
        let mesh = Mesh::of_sizes(sizes);
        let count = |steps| {
            let offer = Offer { steps, ..Offer::default() };
            let space = space(&graph, &mesh, &ends, offer).expect("is sound");
            assert!(space.statistics.saturated);
            let choices: usize = space.choices.iter().map(|it| it.len()).sum();
            println!("{sizes:?}: {:?}, {choices} choices", space.statistics);
            (space.statistics.nodes, choices)
        };
        let (one, timed) = (count(Steps::One), count(Steps::Offered));
        assert!(one.0 < timed.0 && one.1 < timed.1);
    }
}
