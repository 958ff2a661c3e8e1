//! Tests of fused products: what they compute, and in what order.

use arbtest::arbitrary::Unstructured;
use kernels::Array;
use planner_ir::{Binary, Contract, DType, Graph, Label, Op, Output, Source, Type, Unary, ValueId};

use super::fused;
use crate::blocks::{Blocks, blocks, check};
use crate::raise::tests::evaluate::{Dice, difference, evaluate};

/// A graph that grows by operations whose types are inferred.
#[derive(Default)]
struct Growing(Graph);

impl Growing {
    fn input(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("input.{}", self.0.values.len());
        self.0.push_value(Type::new(DType::F32, shape), Source::Input(name))
    }

    fn weight(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("weight.{}", self.0.values.len());
        self.0.push_value(Type::new(DType::F32, shape), Source::Weight(name))
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.0.types_of(operands)).unwrap();
        self.0.push_node(op, operands.to_vec(), types, format!("node.{}", self.0.nodes.len()))[0]
    }

    /// A product in index notation: `abc,cde->adbe`.
    fn product(&mut self, labels: &str, x: ValueId, y: ValueId) -> ValueId {
        let parts: Vec<Vec<Label>> = labels
            .split([',', '>'])
            .map(|part| part.bytes().filter(|&it| it != b'-').map(Label).collect())
            .collect();
        let [left, right, result] = [0, 1, 2].map(|part| parts[part].clone());
        self.op(Op::Contract(Contract { left, right, result }), &[x, y])
    }

    /// A part of a value along a dimension.
    fn part(&mut self, x: ValueId, dim: usize, start: u64, size: u64) -> ValueId {
        let mut sizes = self.0.type_of(x).shape.clone();
        let mut starts = vec![0; sizes.len()];
        (starts[dim], sizes[dim]) = (start, size);
        let steps = vec![1; sizes.len()];
        self.op(Op::Slice { starts, steps, sizes }, &[x])
    }

    fn reshape(&mut self, x: ValueId, shape: &[u64]) -> ValueId {
        self.op(Op::Reshape { shape: shape.to_vec() }, &[x])
    }

    fn output(&mut self, value: ValueId) {
        self.0.outputs.push(Output { name: format!("output.{}", self.0.outputs.len()), value });
    }

    /// A layer with queries of 4 heads, keys and values of 2, and gated units.
    fn layer(&mut self, x: ValueId) -> ValueId {
        let mut sum = None;
        for heads in [4, 2, 2] {
            let weight = self.weight(&[6, heads, 3]);
            let product = self.product("abc,cde->adbe", x, weight);
            let bias = self.weight(&[heads, 1, 3]);
            let biased = self.op(Op::Binary(Binary::Add), &[product, bias]);
            let back = self.weight(&[heads, 3, 6]);
            let made = self.product("adbe,dec->abc", biased, back);
            sum = Some(sum.map_or(made, |sum| self.op(Op::Binary(Binary::Add), &[sum, made])));
        }
        let x = self.op(Op::Binary(Binary::Add), &[x, sum.unwrap()]);
        let [gate, up] = [0, 1].map(|_| {
            let weight = self.weight(&[6, 10]);
            self.product("abc,cd->abd", x, weight)
        });
        let units = self.op(Op::Gated(Unary::Silu), &[gate, up]);
        let down = self.weight(&[10, 6]);
        let made = self.product("abc,cd->abd", units, down);
        self.op(Op::Binary(Binary::Add), &[x, made])
    }
}

/// The blocks with these segments fused, which compute what they did.
fn proven(before: &Blocks, which: &dyn Fn(usize) -> bool) -> Blocks {
    let after = fused(before, which);
    planner_ir::verify(&after.graph).unwrap();
    check(&after).unwrap();
    let given = |graph: &Graph| -> Vec<Type> {
        let outside = graph.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
        outside.map(|it| it.type_.clone()).collect()
    };
    assert_eq!(given(&before.graph), given(&after.graph));
    let mut dice = Dice { state: 3, below: 2 };
    let outside: Vec<Array> = given(&before.graph).iter().map(|it| dice.array(it)).collect();
    let [expected, found] = [before, &after].map(|blocks| evaluate(&blocks.graph, &outside).unwrap());
    for (found, expected) in found.iter().zip(&expected) {
        let apart = difference(found, expected);
        assert!(apart < 1e-5, "off by {apart:e}:\n{}\n{}", before.graph, after.graph);
    }
    after
}

/// How many operations there are that this accepts.
fn count(graph: &Graph, accepts: impl Fn(&Op) -> bool) -> usize {
    graph.nodes.iter().filter(|node| accepts(&node.op)).count()
}

fn products(graph: &Graph) -> usize {
    count(graph, |op| matches!(op, Op::Contract(_)))
}

fn layers(number: usize) -> Blocks {
    let mut graph = Growing::default();
    let mut x = graph.input(&[2, 5, 6]);
    for _ in 0..number {
        x = graph.layer(x);
    }
    graph.output(x);
    blocks(&graph.0)
}

#[test]
fn queries_keys_values_and_gated_units_are_one_product_each() {
    let after = proven(&layers(1), &|_| true);
    // Three of heads are one, two of units are one; four products remain as they are.
    assert_eq!(products(&after.graph), 6);
    let extents: Vec<u64> = after
        .graph
        .nodes
        .iter()
        .filter(|it| matches!(it.op, Op::Concat { .. }))
        .map(|node| {
            let shape = &after.graph.type_of(node.results[0]).shape;
            shape[1]
        })
        .collect();
    assert_eq!(extents, [8, 20]);
}

#[test]
fn nothing_is_changed_where_nothing_is_accepted() {
    let before = layers(3);
    assert_eq!(fused(&before, &|_| false), before);
}

#[test]
fn blocks_that_are_fused_are_the_same_whichever_others_are() {
    let before = layers(4);
    assert!(before.unique.iter().any(|block| block.count == 4));
    let all = proven(&before, &|_| true);
    let bodies = |blocks: &Blocks| -> Vec<Graph> {
        blocks.segments.iter().map(|segment| blocks.unique[segment.block].body.clone()).collect()
    };
    let (apart, together) = (bodies(&before), bodies(&all));
    let segments = before.segments.len();
    for choice in 0..1usize << segments {
        let mixed = proven(&before, &|segment| choice >> segment & 1 == 1);
        for (segment, body) in bodies(&mixed).into_iter().enumerate() {
            let expected = if choice >> segment & 1 == 1 { &together } else { &apart };
            assert_eq!(body, expected[segment]);
        }
    }
}

#[test]
fn slices_of_a_stored_weight_are_the_weight() {
    // As exporters write it: rows sliced, then split into heads; or sliced in heads, in any order.
    type Parts = fn(&mut Growing) -> Vec<ValueId>;
    let written: [Parts; 3] = [
        |graph| {
            let weight = graph.weight(&[6, 24]);
            let parts = [0, 8, 16].map(|at| graph.part(weight, 1, at, 8));
            parts.map(|part| graph.reshape(part, &[6, 2, 4])).to_vec()
        },
        |graph| {
            let weight = graph.weight(&[6, 6, 4]);
            [2, 0, 4].map(|at| graph.part(weight, 1, at, 2)).to_vec()
        },
        |graph| {
            let weight = graph.weight(&[36, 4]);
            // Not heads of each row, but rows of each head: another matrix, put together anew.
            let parts = [0, 12, 24].map(|at| graph.part(weight, 0, at, 12));
            parts.map(|part| graph.reshape(part, &[6, 2, 4])).to_vec()
        },
    ];
    for (written, concats) in written.into_iter().zip([0, 0, 1]) {
        let mut graph = Growing::default();
        let x = graph.input(&[2, 5, 6]);
        for weight in written(&mut graph) {
            let product = graph.product("abc,cde->adbe", x, weight);
            graph.output(product);
        }
        let after = proven(&blocks(&graph.0), &|_| true);
        assert_eq!(products(&after.graph), 1);
        assert_eq!(count(&after.graph, |op| matches!(op, Op::Concat { .. })), concats, "{}", after.graph);
    }
}

#[test]
fn products_that_do_not_fit_together_stay() {
    let mut graph = Growing::default();
    let (x, other) = (graph.input(&[2, 5, 6]), graph.input(&[2, 5, 6]));
    let shapes: [(&[u64], &str); 4] = [
        // Two dimensions differ from those of the next one.
        (&[6, 4, 3], "abc,cde->adbe"),
        (&[6, 2, 5], "abc,cde->adbe"),
        // Another order of the result.
        (&[6, 2, 5], "abc,cde->abde"),
        // Another dimension is summed.
        (&[5, 3], "abc,bd->acd"),
    ];
    for (shape, labels) in shapes {
        let weight = graph.weight(shape);
        let product = graph.product(labels, x, weight);
        graph.output(product);
    }
    // What is multiplied differs; what it is multiplied by is no weight.
    let weight = graph.weight(&[6, 4, 3]);
    let product = graph.product("abc,cde->adbe", other, weight);
    graph.output(product);
    let given = graph.input(&[6, 4, 3]);
    let product = graph.product("abc,cde->adbe", x, given);
    graph.output(product);
    let before = blocks(&graph.0);
    assert_eq!(fused(&before, &|_| true), before);
}

#[test]
fn random_products_compute_the_same_when_fused() {
    arbtest::arbtest(|choices: &mut Unstructured<'_>| {
        let mut graph = Growing::default();
        let x = graph.input(&[2, 3, 4]);
        let mut y = x;
        for _ in 0..choices.int_in_range(2..=6)? {
            let of = if choices.ratio(3, 4)? { x } else { y };
            let d = choices.int_in_range(1..=3)?;
            let e = if choices.ratio(3, 4)? { 2 } else { 3 };
            // Weights stored in any order, on either side.
            let orders: [(&[u64], &str); 3] = [(&[4, d, e], "cde"), (&[d, e, 4], "dec"), (&[e, 4, d], "ecd")];
            let (shape, order) = orders[choices.choose_index(3)?];
            let weight = match choices.int_in_range(0..=2)? {
                0 => graph.weight(shape),
                1 => {
                    let whole = graph.weight(&[shape[0], 2 * shape[1], shape[2]]);
                    graph.part(whole, 1, choices.int_in_range(0..=1)? * shape[1], shape[1])
                }
                _ => {
                    let flat = graph.weight(&[shape.iter().product()]);
                    graph.reshape(flat, shape)
                }
            };
            let result = if choices.arbitrary()? { "adbe" } else { "eadb" };
            let product = match choices.arbitrary()? {
                true => graph.product(&format!("abc,{order}->{result}"), of, weight),
                false => graph.product(&format!("{order},abc->{result}"), weight, of),
            };
            let negative = graph.op(Op::Unary(Unary::Tanh), &[product]);
            graph.output(negative);
            y = graph.op(Op::Unary(Unary::Tanh), &[x]);
        }
        proven(&blocks(&graph.0), &|_| true);
        Ok(())
    });
}
