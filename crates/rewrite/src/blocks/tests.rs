//! Tests of repeated blocks.

use planner_ir::{
    Binary, Contract, DType, Graph, Label, NodeId, Op, Output, Real, Source, Type, Unary, ValueId,
};

use super::{Binding, Blocks, blocks, check, order};

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

    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Binary(Binary::Add), &[a, b])
    }

    fn number(&mut self, value: f64) -> ValueId {
        self.op(Op::Fill { result: Type::new(DType::F32, vec![]), value: Real(value) }, &[])
    }

    /// `x w^T`, with the transpose of the weight as a node of its own.
    fn linear(&mut self, x: ValueId, out: u64) -> ValueId {
        let width = *self.0.type_of(x).shape.last().unwrap();
        let weight = self.weight(&[out, width]);
        let turned = self.op(Op::Transpose { permutation: vec![1, 0] }, &[weight]);
        let [s, k, n] = [Label(0), Label(1), Label(2)];
        self.op(
            Op::Contract(Contract { left: vec![s, k], right: vec![k, n], result: vec![s, n] }),
            &[x, turned],
        )
    }

    /// A layer with a residual stream, a mask that all layers read, and a constant.
    fn layer(&mut self, x: ValueId, mask: ValueId, factor: f64) -> ValueId {
        let factor = self.number(factor);
        let scaled = self.op(Op::Binary(Binary::Mul), &[x, factor]);
        let (q, k) = (self.linear(scaled, 8), self.linear(scaled, 8));
        let mixed = self.add(q, k);
        let masked = self.add(mixed, mask);
        let x = self.add(x, masked);
        let wide = self.linear(x, 16);
        let active = self.op(Op::Unary(Unary::Gelu), &[wide]);
        let narrow = self.linear(active, 8);
        self.add(x, narrow)
    }

    fn output(&mut self, value: ValueId) {
        self.0.outputs.push(Output { name: format!("output.{}", self.0.outputs.len()), value });
    }

    /// The blocks found in any order of the nodes, which are right.
    fn blocks(self, seed: u64) -> Blocks {
        let found = blocks(&shuffled(&self.0, seed));
        check(&found).unwrap();
        found
    }
}

/// Layers between an embedding and a head; each layer reads a mask made of an input.
fn decoder(layers: u64, factors: &[f64]) -> Growing {
    let mut graph = Growing::default();
    let mask = graph.input(&[4, 8]);
    let mask = graph.op(Op::Unary(Unary::Neg), &[mask]);
    let mask = graph.op(Op::Unary(Unary::Exp), &[mask]);
    let input = graph.input(&[4, 8]);
    let mut x = graph.op(Op::Unary(Unary::Tanh), &[input]);
    for index in 0..usize::try_from(layers).unwrap() {
        x = graph.layer(x, mask, factors[index % factors.len()]);
    }
    let head = graph.linear(x, 32);
    graph.output(head);
    graph
}

/// The same graph with its nodes in another order that is allowed.
fn shuffled(graph: &Graph, seed: u64) -> Graph {
    let mut left: Vec<NodeId> = graph.node_ids().collect();
    let mut made = vec![false; graph.nodes.len()];
    let mut sequence = Vec::new();
    let mut state = seed;
    while !left.is_empty() {
        let ready = |id: &NodeId| {
            graph.node(*id).operands.iter().all(|it| match graph.value(*it).source {
                Source::Result { node, .. } => made[node.0],
                _ => true,
            })
        };
        let choices: Vec<usize> = (0..left.len()).filter(|&it| ready(&left[it])).collect();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pick = usize::try_from((state >> 33) % u64::try_from(choices.len()).unwrap()).unwrap();
        let id = left.remove(if seed == 0 { choices[0] } else { choices[pick] });
        made[id.0] = true;
        sequence.push(id);
    }
    order::reordered(graph, &sequence)
}

/// For each block, how often it occurs and how many nodes it has.
fn summary(blocks: &Blocks) -> Vec<(usize, usize)> {
    blocks.unique.iter().map(|block| (block.count, block.body.nodes.len())).collect()
}

/// The number of nodes of a layer: its constant, four weights turned, and what it computes.
const LAYER: usize = 15;

#[test]
fn equal_layers_are_one_block_in_any_order() {
    for layers in [2, 3, 12] {
        for seed in 0..6 {
            let found = decoder(layers, &[0.5]).blocks(seed);
            let expected = vec![(1, 3), (usize::try_from(layers).unwrap(), LAYER), (1, 2)];
            assert_eq!(summary(&found), expected, "{layers} layers, seed {seed}");
        }
    }
}

#[test]
fn the_residual_stream_is_all_that_is_carried() {
    let found = decoder(6, &[0.5]).blocks(3);
    let bindings = &found.unique[1].bindings;
    let count = |wanted: fn(&Binding) -> bool| bindings.iter().filter(|it| wanted(it)).count();
    assert_eq!(count(|it| matches!(it, Binding::Carried(_))), 1);
    assert_eq!(count(|it| matches!(it, Binding::Shared)), 1);
    assert_eq!(count(|it| matches!(it, Binding::Private)), 4);
}

#[test]
fn a_constant_that_differs_makes_another_block() {
    let found = decoder(6, &[0.5, 0.5, 0.5, 0.25, 0.25, 0.25]).blocks(0);
    assert_eq!(summary(&found).iter().filter(|it| **it == (3, LAYER)).count(), 2, "{:?}", summary(&found));
}

#[test]
fn alternating_layers_are_one_block_of_two() {
    let found = decoder(8, &[0.5, 0.25]).blocks(1);
    assert_eq!(summary(&found), [(1, 3), (4, 2 * LAYER), (1, 2)]);
}

/// What is shared by some layers only ends a run.
#[test]
fn another_mask_makes_another_block() {
    let mut graph = Growing::default();
    let (first, second) = (graph.input(&[4, 8]), graph.input(&[4, 8]));
    let (first, second) =
        (graph.op(Op::Unary(Unary::Exp), &[first]), graph.op(Op::Unary(Unary::Exp), &[second]));
    let mut x = graph.input(&[4, 8]);
    for index in 0..6 {
        x = graph.layer(x, if index < 3 { first } else { second }, 0.5);
    }
    graph.output(x);
    let found = graph.blocks(0);
    assert_eq!(summary(&found).iter().filter(|it| **it == (3, LAYER)).count(), 2, "{:?}", summary(&found));
}

#[test]
fn encoder_and_decoder_are_two_runs() {
    let mut graph = Growing::default();
    let (source, target) = (graph.input(&[4, 8]), graph.input(&[4, 8]));
    let mask = graph.input(&[4, 8]);
    let mut x = graph.op(Op::Unary(Unary::Tanh), &[source]);
    for _ in 0..4 {
        x = graph.layer(x, mask, 0.5);
    }
    let encoded = graph.op(Op::Unary(Unary::Sin), &[x]);
    let mut y = graph.op(Op::Unary(Unary::Cos), &[target]);
    for _ in 0..5 {
        let own = graph.linear(y, 8);
        let other = graph.linear(encoded, 8);
        let crossed = graph.op(Op::Binary(Binary::Mul), &[own, other]);
        y = graph.add(y, crossed);
    }
    graph.output(y);
    for seed in 0..4 {
        let mut copy = Growing::default();
        copy.0.clone_from(&graph.0);
        let found = copy.blocks(seed);
        let summary = summary(&found);
        assert!(summary.contains(&(4, LAYER)) && summary.contains(&(5, 6)), "{summary:?}");
    }
}

#[test]
fn what_layers_leave_behind_belongs_to_them() {
    let mut graph = Growing::default();
    let (mut x, mask) = (graph.input(&[4, 8]), graph.input(&[4, 8]));
    let mut caches = Vec::new();
    for _ in 0..5 {
        x = graph.layer(x, mask, 0.5);
        let past = graph.input(&[3, 8]);
        let cache = graph.op(Op::Concat { dim: 0 }, &[past, x]);
        caches.push(graph.op(Op::Reshape { shape: vec![1, 7, 8] }, &[cache]));
    }
    graph.output(x);
    for cache in caches {
        graph.output(cache);
    }
    let found = graph.blocks(2);
    assert_eq!(summary(&found), [(5, LAYER + 2)]);
    assert_eq!(found.unique[0].body.outputs.len(), 2);
}

#[test]
fn a_graph_without_repetition_is_one_block() {
    let mut graph = Growing::default();
    let x = graph.input(&[4, 8]);
    let y = graph.op(Op::Unary(Unary::Tanh), &[x]);
    let z = graph.op(Op::Unary(Unary::Sin), &[y]);
    graph.output(z);
    assert_eq!(summary(&graph.blocks(0)), [(1, 2)]);
    assert_eq!(summary(&blocks(&Graph::default())), []);
}

#[test]
fn weights_that_all_layers_read_are_shared() {
    let mut graph = Growing::default();
    let mut x = graph.input(&[8]);
    let weight = graph.weight(&[8]);
    for _ in 0..40 {
        let y = graph.op(Op::Binary(Binary::Mul), &[x, weight]);
        x = graph.op(Op::Unary(Unary::Tanh), &[y]);
    }
    graph.output(x);
    let found = graph.blocks(0);
    assert_eq!(summary(&found), [(40, 2)]);
    assert!(found.unique[0].bindings.contains(&Binding::Shared));
}

#[test]
fn the_check_finds_every_wrong_field() {
    let right = decoder(3, &[0.5]).blocks(0);
    let rule = |change: &dyn Fn(&mut Blocks)| {
        let mut wrong = right.clone();
        change(&mut wrong);
        check(&wrong).map_err(|error| error.rule)
    };
    assert_eq!(rule(&|_| ()), Ok(()));
    assert_eq!(rule(&|it| it.unique[1].count = 2), Err("count"));
    assert_eq!(rule(&|it| drop(it.segments.pop())), Err("cover"));
    assert_eq!(rule(&|it| it.segments[2].nodes.end += 1), Err("shape"));
    assert_eq!(rule(&|it| it.segments[2].operands.swap(0, 1)), Err("operand"));
    assert_eq!(rule(&|it| it.segments[2].results[0] = ValueId(0)), Err("result"));
    assert_eq!(rule(&|it| it.unique[1].body.nodes[0].op = Op::Select), Err("node"));
    let at = |wanted: fn(&Binding) -> bool| right.unique[1].bindings.iter().position(wanted).unwrap();
    let (carried, shared) =
        (at(|it| matches!(it, Binding::Carried(_))), at(|it| matches!(it, Binding::Shared)));
    assert_eq!(rule(&|it| it.unique[1].bindings[carried] = Binding::Shared), Err("shared"));
    assert_eq!(rule(&|it| it.unique[1].bindings[carried] = Binding::Private), Err("private"));
    assert_eq!(rule(&|it| it.unique[1].bindings[shared] = Binding::Carried(0)), Err("carried"));
    let unexported = |it: &mut Blocks| {
        it.unique[0].body.outputs.clear();
        it.segments[0].results.clear();
    };
    assert_eq!(rule(&unexported), Err("result"));
}

/// Whatever the graph, the blocks reproduce one with as many needed nodes.
#[test]
fn random_graphs_are_reproduced() {
    arbtest::arbtest(|choices| {
        let mut graph = Growing::default();
        let mut values = vec![graph.input(&[4]), graph.weight(&[4]), graph.weight(&[4])];
        for _ in 0..choices.int_in_range(0..=40)? {
            let pick = |choices: &mut arbtest::arbitrary::Unstructured<'_>| choices.choose(&values).copied();
            let (a, b) = (pick(choices)?, pick(choices)?);
            let made = match choices.int_in_range(0..=3)? {
                0 => graph.op(Op::Unary(Unary::Tanh), &[a]),
                1 => graph.number(0.5),
                2 => graph.op(Op::Binary(Binary::Mul), &[a, b]),
                _ => graph.add(a, b),
            };
            if graph.0.type_of(made).rank() == 1 {
                values.push(made);
            }
        }
        let output = *choices.choose(&values)?;
        graph.output(output);
        let found = blocks(&graph.0);
        assert_eq!(found.graph.outputs.len(), 1);
        Ok(())
    });
}

/// A chain of equal layers.
fn equal_layers() -> Graph {
    let mut made = Growing::default();
    let mut x = made.input(&[4, 8]);
    for _ in 0..10 {
        let wide = made.linear(x, 64);
        let active = made.op(Op::Unary(Unary::Gelu), &[wide]);
        x = made.linear(active, 8);
    }
    made.0.outputs.push(Output { name: "y".to_owned(), value: x });
    made.0
}

/// Layers each of which is of other sizes than all others: nothing repeats.
fn of_other_sizes(layers: u64) -> Graph {
    let mut made = Growing::default();
    let mut x = made.input(&[4, 8]);
    for layer in 1..=layers {
        let wide = made.linear(x, 128 + layer);
        let active = made.op(Op::Unary(Unary::Gelu), &[wide]);
        x = made.linear(active, 8 + layer % 2);
    }
    made.0.outputs.push(Output { name: "y".to_owned(), value: x });
    made.0
}

/// What does not repeat is cut where one narrow value is alive, and what repeats is left as it is.
#[test]
fn stretches_that_do_not_repeat_are_cut_where_little_is_alive() {
    let whole = blocks(&of_other_sizes(60));
    assert_eq!(whole.segments.len(), 1);
    let found = super::narrowed(&whole);
    assert!(found.segments.len() > 3, "{}", found.segments.len());
    assert_eq!(found.graph, whole.graph);
    for segment in &found.segments {
        assert!(segment.nodes.len() >= 16);
        let wide = |it: &&ValueId| found.graph.type_of(**it).shape[1] > 128;
        assert_eq!(segment.results.iter().filter(wide).count(), 0, "a wide value crosses");
    }
    let repeated = blocks(&equal_layers());
    assert!(repeated.segments.len() > 2, "layers are found");
    let counts = |of: &Blocks| of.unique.iter().map(|it| it.count).filter(|it| *it > 1).collect::<Vec<_>>();
    assert_eq!(counts(&super::narrowed(&repeated)), counts(&repeated));
}

/// Blocks of more nodes than there may be are cut, repeated ones as well, and shorter ones are not.
#[test]
fn blocks_have_no_more_nodes_than_there_may_be() {
    for graph in [equal_layers(), of_other_sizes(60)] {
        let whole = blocks(&graph);
        for most in [2, 3, 7, 40] {
            let found = super::bounded(whole.clone(), most);
            assert_eq!(found.graph, whole.graph);
            assert!(found.unique.iter().all(|it| it.body.nodes.len() <= most));
            assert_eq!(found == whole, whole.unique.iter().all(|it| it.body.nodes.len() <= most));
        }
    }
    // The narrow value between two layers is what is cut, not a wide one within them.
    let found = super::bounded(blocks(&of_other_sizes(60)), 40);
    let wide = |it: &&ValueId| found.graph.type_of(**it).shape[1] > 128;
    assert!(found.segments.iter().all(|segment| segment.results.iter().filter(wide).count() == 0));
}

/// Other forms of no segment, and of all segments the same form, leave everything as it was: also names, of
/// which several operations of one layer may have one where those of another have several.
#[test]
fn segments_that_keep_their_form_keep_their_names() {
    for seed in 0..8 {
        let mut graph = shuffled(&decoder(4, &[1.0]).0, seed);
        for (number, node) in graph.nodes.iter_mut().enumerate() {
            node.origin = format!("origin{}", number * number % 7);
        }
        let found = blocks(&graph);
        assert!(found.unique.iter().any(|block| block.count > 2));
        assert_eq!(super::reformed(&found, &|_| true, &|_| None), found);
        assert_eq!(super::reformed(&found, &|it| it % 2 == 0, &|body| Some(body.clone())).graph, found.graph);
    }
}
