//! Products that add to sums are equal to products and sums.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use kernels::{Array, evaluate};
use planner_ir::{
    Carried, Contract, DType, Label, Output, State, StateKind, Training, Type, Unary, verify, verify_layouts,
};

use super::*;
use crate::{Offer, Splits, Steps, space};

mod experts; // gradients of weights of experts

/// A step whose gradient is the sum of products of two inputs in these elements.
struct Draft {
    graph: Graph,
    product: ValueId,
    sum: ValueId,
}

fn labels(text: &str) -> Vec<Label> {
    text.bytes().map(|it| Label(it - b'a')).collect()
}

/// The extents of labels, from a on.
type Extents = [u64; 4];

fn shape(text: &str, extents: Extents) -> Vec<u64> {
    text.bytes().map(|it| extents[usize::from(it - b'a')]).collect()
}

impl Draft {
    fn new([left, right, result]: [&str; 3], extents: Extents, dtype: DType) -> Self {
        let mut graph = Graph::default();
        let a = graph.push_value(Type::new(dtype, shape(left, extents)), Source::Input("a".to_owned()));
        let b = graph.push_value(Type::new(dtype, shape(right, extents)), Source::Input("b".to_owned()));
        let state = State { kind: StateKind::Gradient, name: "w".to_owned() };
        let wide = Type::new(DType::F32, shape(result, extents));
        let state = graph.push_value(wide, Source::State(state));
        let contract = Contract { left: labels(left), right: labels(right), result: labels(result) };
        let mut draft = Self { graph, product: state, sum: state };
        draft.product = draft.op(Op::Contract(contract), &[a, b]);
        let more = match dtype {
            DType::F32 => draft.product,
            _ => draft.op(Op::Cast(DType::F32), &[draft.product]),
        };
        draft.sum = draft.op(Op::Binary(Binary::Add), &[state, more]);
        let carried = vec![Carried { state, next: draft.sum }];
        draft.graph.training = Some(Training { micro_batches: 2, carried });
        draft
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.graph.types_of(operands)).unwrap();
        let name = "layer".to_owned();
        self.graph.push_node_in(Phase::Gradient, op, operands.to_vec(), types, name)[0]
    }
}

/// What a program makes of values.
fn run(graph: &Graph, given: &[&Array]) -> Vec<Array> {
    let mut values: Vec<Option<Array>> = Vec::new();
    for value in &graph.values {
        let made = given.get(values.len()).filter(|_| !matches!(value.source, Source::Result { .. }));
        values.push(made.map(|it| Array::from_bytes(it.type_().clone(), it.bytes()).unwrap()));
    }
    for node in &graph.nodes {
        let operands: Vec<&Array> = node.operands.iter().map(|it| values[it.0].as_ref().unwrap()).collect();
        let made = evaluate(&node.op, &operands).unwrap();
        for (result, made) in node.results.iter().zip(made) {
            values[result.0] = Some(made);
        }
    }
    let carried = graph.training.iter().flat_map(|it| &it.carried);
    carried.map(|it| values[it.next.0].take().unwrap()).collect()
}

fn numbers(dtype: DType, shape: &[u64], seed: u64) -> Array {
    let of = |at: u64| {
        let mixed = (at + 31 * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        f64::from(u32::try_from(mixed).unwrap()) / 2048.0 - 1.0
    };
    let wide = Array::of::<f64>(shape, &(0..shape.iter().product()).map(of).collect::<Vec<_>>()).unwrap();
    evaluate(&Op::Cast(dtype), &[&wide]).unwrap().remove(0)
}

const FORMS: [[&str; 3]; 4] =
    [["ab", "ac", "bc"], ["ab", "ca", "bc"], ["bad", "ca", "cdb"], ["dab", "dac", "dbc"]];

#[test]
fn one_operation_is_as_the_three_but_for_rounding_in_between() {
    for (form, extents) in FORMS.into_iter().zip([[6, 5, 7, 1], [64, 3, 4, 1], [9, 2, 5, 3], [4, 3, 3, 2]]) {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let draft = Draft::new(form, extents, dtype);
            verify(&draft.graph).unwrap();
            let found = added(&draft.graph);
            assert_eq!(found.len(), 1);
            let Joined { graph, nodes, values } = joined(&draft.graph, &found);
            verify(&graph).unwrap();
            assert_eq!((graph.nodes.len(), &nodes[..]), (1, &[NodeId(0)][..]));
            assert_eq!(values.last(), Some(&draft.sum));
            assert_eq!(joined_as(&draft.graph, &graph).graph, graph);
            assert_eq!(joined_as(&draft.graph, &draft.graph).graph, draft.graph);
            let [a, b] = [(0, 7), (1, 8)].map(|(it, seed)| numbers(dtype, &shape(form[it], extents), seed));
            let state = numbers(DType::F32, &shape(form[2], extents), 3);
            let given = [&a, &b, &state];
            let (together, apart) = (run(&graph, &given).remove(0), run(&draft.graph, &given).remove(0));
            let wide = [&a, &b].map(|it| evaluate(&Op::Cast(DType::F32), &[it]).unwrap().remove(0));
            let exact = Draft::new(form, extents, DType::F32);
            let exact = run(&exact.graph, &[&wide[0], &wide[1], &state]).remove(0);
            // The product in the elements of the sum is not rounded before it is added.
            assert_eq!(together.bytes(), exact.bytes(), "{form:?} in {dtype}");
            let (together, apart) = (together.to_floats().unwrap(), apart.to_floats().unwrap());
            let near = together.iter().zip(&apart).all(|(a, b)| (a - b).abs() <= 0.02 * b.abs().max(1.0));
            assert!(near, "{form:?} in {dtype}: {together:?}, apart {apart:?}");
        }
    }
}

#[test]
fn what_is_used_otherwise_stays_apart() {
    let form = FORMS[0];
    let draft = || Draft::new(form, [6, 5, 7, 1], DType::BF16);
    let mut used = draft();
    used.op(Op::Unary(Unary::Neg), &[used.product]);
    assert_eq!(added(&used.graph), []);
    let mut returned = draft();
    returned.graph.outputs.push(Output { name: "p".to_owned(), value: returned.product });
    assert_eq!(added(&returned.graph), []);
    let mut forward = draft();
    forward.graph.nodes[0].phase = Phase::Backward;
    assert_eq!(added(&forward.graph), []);
    let mut answers = draft();
    answers.graph.training = None;
    assert_eq!(added(&answers.graph), []);
    // No rows or no columns: a pass over memory.
    for form in [["ab", "a", "b"], ["ab", "ab", ""], ["ab", "ab", "b"]] {
        assert_eq!(added(&Draft::new(form, [6, 5, 7, 1], DType::BF16).graph), []);
    }
    // What it is added to is made after it.
    let mut late = draft();
    let other = late.op(Op::Binary(Binary::Add), &[late.sum, late.sum]);
    let state = late.graph.training.as_ref().unwrap().carried[0].state;
    let more = late.op(Op::Cast(DType::BF16), &[state]);
    assert_eq!(added(&late.graph).len(), 1, "{other:?} {more:?}");
    let adds = late.graph.nodes.iter().position(|it| it.results == [late.sum]).unwrap();
    late.graph.nodes[adds].operands[0] = other;
    assert_eq!(added(&late.graph), []);
}

fn extents(u: &mut Unstructured) -> Result<Extents> {
    let mut one = || u.choose(&[1, 2, 4, 6]).copied();
    Ok([one()?, one()?, one()?, one()?])
}

#[test]
fn partitions_are_equal_where_layouts_are_those_of_the_one_operation() {
    let mut seen = [0; 2];
    arbtest(|u| {
        let form = *u.choose(&FORMS)?;
        let dtype = *u.choose(&[DType::F32, DType::BF16])?;
        let mesh = Mesh::of_sizes(u.choose(&[&[2][..], &[4], &[2, 2]])?);
        let draft = Draft::new(form, extents(u)?, dtype);
        let graph = &draft.graph;
        let offer = Offer { splits: Splits::All, steps: Steps::Offered, striped: None };
        let space = space(graph, &mesh, &[], offer).unwrap();
        let [found] = &added(graph)[..] else { return Ok(()) };
        let node = |it: NodeId| graph.node(it);
        let layout = |value: ValueId, number: usize| &space.layouts[value.0][number];
        for product in &*space.choices[found.product.0] {
            let made = layout(draft.product, product.results[0]);
            for sum in &*space.choices[found.sum.0] {
                let ends = [
                    layout(node(found.sum).operands[found.before], sum.operands[found.before]),
                    layout(draft.sum, sum.results[0]),
                ];
                // Nothing moves in between.
                if layout(node(found.sum).operands[1 - found.before], sum.operands[1 - found.before]) != made
                {
                    continue;
                }
                let is_equal = found.is_equal(&mesh, &product.partition, ends);
                let (types, results) = found.one.types();
                let used = found.one.node.operands.iter().zip(&product.operands);
                let mut used: Vec<Layout> = used.map(|(it, &number)| layout(*it, number).clone()).collect();
                used.push(ends[0].clone());
                let made = [ends[1].clone()];
                // The verifier of layouts, which is held to arithmetic.
                let verdict = verify_layouts(&mesh, &found.one.node.op, types, results, &used, &made);
                let timed = product.partition.steps > 1;
                assert!(!(is_equal && timed));
                assert!(timed || is_equal == verdict.is_ok(), "{:?}: {verdict:?}", product.partition);
                seen[usize::from(is_equal)] += 1;
            }
        }
        Ok(())
    })
    .budget_ms(1_500);
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}
