//! Small models: what becomes of functions, branches, lists, constants and dynamic shapes.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{Graph, Op, Source};

use super::evaluate::{evaluate, verified};
use super::make::{
    BOOL, FLOAT, INT64, bytes, floats, function, graph, graph_attribute, int, integers, model, node,
    reference, tensor_attribute, value,
};
use crate::proto::{GraphProto, ModelProto};
use crate::{Bindings, read};

/// The graph of a model, and its output `y` for these inputs.
fn run(proto: &ModelProto, inputs: &[(&str, Array)], bindings: &Bindings) -> (Graph, Array) {
    let model = read(bytes(proto)).unwrap();
    let graph = model.import(bindings).unwrap_or_else(|error| panic!("{error}"));
    let graph = verified(graph).unwrap_or_else(|error| panic!("{error}"));
    let inputs: BTreeMap<String, Array> =
        inputs.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
    let mut outputs = evaluate(&graph, &model, &inputs).unwrap();
    (graph, outputs.remove("y").unwrap())
}

fn run_graph(graph: GraphProto, inputs: &[(&str, Array)]) -> (Graph, Array) {
    run(&model(graph, Vec::new()), inputs, &Bindings::default())
}

fn vector(elements: &[f32]) -> Array {
    Array::of([u64::try_from(elements.len()).unwrap()], elements).unwrap()
}

fn weights(graph: &Graph) -> Vec<&str> {
    let names = graph.values.iter().filter_map(|value| match &value.source {
        Source::Weight(name) => Some(name.as_str()),
        _ => None,
    });
    names.collect()
}

fn regions(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|node| matches!(node.op, Op::Region(_))).count()
}

#[test]
fn nested_functions_are_inlined_with_their_attributes() {
    let functions = vec![
        function(
            "outer",
            &["p", "q"],
            &["r"],
            vec![node("inner p q -> r").of_domain("local").with(reference("at", "axis"))],
        ),
        function("inner", &["p", "q"], &["r"], vec![node("Concat p q -> r").with(reference("axis", "at"))]),
    ];
    let graph = graph(
        vec![value("a", FLOAT, &["1", "2"])],
        Vec::new(),
        vec![
            node("outer a a -> b").of_domain("local").with(int("axis", 0)),
            node("outer b b -> y").of_domain("local").with(int("axis", 1)),
        ],
        &["y"],
    );
    let a = Array::of([1, 2], &[1.0_f32, 2.0]).unwrap();
    let (_, y) = run(&model(graph, functions), &[("a", a)], &Bindings::default());
    assert_eq!(y, Array::of([2, 4], &[1.0_f32, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]).unwrap());
}

/// `y = if c { a + w } else { -a }`.
fn branches(condition: &str) -> GraphProto {
    let yes = graph(Vec::new(), vec![floats("w", &[2], &[10.0, 20.0])], vec![node("Add a w -> s")], &["s"]);
    let no = graph(Vec::new(), Vec::new(), vec![node("Neg a -> s")], &["s"]);
    graph(
        vec![value("a", FLOAT, &["2"]), value("c", BOOL, &[])],
        Vec::new(),
        vec![
            node(condition)
                .with(graph_attribute("then_branch", yes))
                .with(graph_attribute("else_branch", no)),
        ],
        &["y"],
    )
}

#[test]
fn branch_with_a_known_condition_is_the_only_one() {
    for (condition, expected) in [(true, [11.0, 22.0]), (false, [-1.0, -2.0])] {
        let mut bindings = Bindings::default();
        bindings.controls.insert("c".to_owned(), Array::of_truths([], &[condition]).unwrap());
        let proto = model(branches("If c -> y"), Vec::new());
        let (graph, y) = run(&proto, &[("a", vector(&[1.0, 2.0]))], &bindings);
        assert_eq!(y, vector(&expected));
        assert_eq!((graph.nodes.len(), regions(&graph)), (1, 0));
    }
}

#[test]
fn branches_with_an_unknown_condition_are_a_region() {
    for (condition, expected) in [(true, [11.0, 22.0]), (false, [-1.0, -2.0])] {
        let c = Array::of_truths([], &[condition]).unwrap();
        let (graph, y) = run_graph(branches("If c -> y"), &[("a", vector(&[1.0, 2.0])), ("c", c)]);
        assert_eq!(y, vector(&expected));
        assert_eq!((graph.nodes.len(), regions(&graph)), (1, 1));
    }
}

#[test]
fn lists_are_taken_apart() {
    let graph = graph(
        vec![value("a", FLOAT, &["5"])],
        vec![integers("two", &[], &[2]), integers("last", &[], &[-1]), integers("first", &[], &[0])],
        vec![
            node("SplitToSequence a two -> s"),
            node("SequenceAt s last -> p"),
            node("SequenceAt s first -> q"),
            node("SequenceConstruct p q -> t"),
            node("ConcatFromSequence t -> y").with(int("axis", 0)),
        ],
        &["y"],
    );
    let (_, y) = run_graph(graph, &[("a", vector(&[1.0, 2.0, 3.0, 4.0, 5.0]))]);
    assert_eq!(y, vector(&[5.0, 1.0, 2.0]));
}

#[test]
fn arithmetic_on_shapes_disappears() {
    let graph = graph(
        vec![value("a", FLOAT, &["2", "3", "4"])],
        vec![integers("i", &[], &[2]), integers("m", &[1], &[-1]), integers("z", &[1], &[0])],
        vec![
            node("Shape a -> s"),
            node("Gather s i -> d"),
            node("Unsqueeze d z -> u"),
            node("Concat m u -> t").with(int("axis", 0)),
            node("Reshape a t -> y"),
        ],
        &["y"],
    );
    let model = read(bytes(&model(graph, Vec::new()))).unwrap();
    let graph = model.import(&Bindings::default()).unwrap();
    assert_eq!(graph.nodes.len(), 1);
    assert_eq!(graph.nodes[0].op, Op::Reshape { shape: vec![6, 4] });
}

#[test]
fn small_weights_stay_weights_and_numbers_do_not() {
    let graph = graph(
        vec![value("a", FLOAT, &["2"])],
        vec![floats("scale", &[2], &[1.0, 1.0]), floats("epsilon", &[], &[0.5]), floats("one", &[], &[1.0])],
        vec![node("Mul a scale -> b"), node("Add epsilon one -> e"), node("Add b e -> y")],
        &["y"],
    );
    let (graph, y) = run_graph(graph, &[("a", vector(&[1.0, 2.0]))]);
    assert_eq!(weights(&graph), ["scale"]);
    assert_eq!(graph.nodes.len(), 3);
    assert_eq!(y, vector(&[2.5, 3.5]));
}

#[test]
fn large_constant_is_a_weight_and_large_repetition_is_not() {
    let elements: Vec<f32> = (0..2000_u16).map(f32::from).collect();
    let graph = graph(
        vec![value("a", FLOAT, &["2000"])],
        vec![integers("n", &[1], &[2000])],
        vec![
            node("Constant -> k").with(tensor_attribute("value", floats("", &[2000], &elements))),
            node("ConstantOfShape n -> f").with(tensor_attribute("value", floats("", &[1], &[3.0]))),
            node("Mul f f -> g"),
            node("Mul a k -> b"),
            node("Add b g -> y"),
        ],
        &["y"],
    );
    let (graph, y) = run_graph(graph, &[("a", vector(&[2.0; 2000]))]);
    assert_eq!(weights(&graph), ["k"]);
    let fills = graph.nodes.iter().filter(|node| matches!(node.op, Op::Fill { .. })).count();
    assert_eq!((graph.nodes.len(), fills), (3, 1));
    assert_eq!(y.to_floats().unwrap()[1999].to_bits(), 4007.0_f64.to_bits());
}

#[test]
fn values_whose_shape_depends_on_data_are_enclosed() {
    // The elements of a where m is not zero, doubled, put back at their places into a.
    let graph = graph(
        vec![value("a", FLOAT, &["4"]), value("m", BOOL, &["4"])],
        vec![integers("z", &[1], &[0])],
        vec![
            node("NonZero m -> places"),
            node("Squeeze places z -> p"),
            node("Gather a p -> some"),
            node("Add some some -> twice"),
            node("ScatterElements a p twice -> b"),
            node("Neg b -> y"),
        ],
        &["y"],
    );
    let m = Array::of_truths([4], &[true, false, false, true]).unwrap();
    let (graph, y) = run_graph(graph, &[("a", vector(&[1.0, 2.0, 3.0, 4.0])), ("m", m)]);
    assert_eq!((graph.nodes.len(), regions(&graph)), (2, 1));
    assert_eq!(y, vector(&[-2.0, -2.0, -3.0, -8.0]));
}

#[test]
fn what_lies_between_operations_of_a_region_is_in_it() {
    // The count of true elements leaves the region as a number and comes back as a shape.
    let graph = graph(
        vec![value("a", FLOAT, &["4"]), value("m", BOOL, &["4"])],
        vec![integers("z", &[1], &[0]), integers("one", &[], &[1]), integers("minus", &[1], &[-1])],
        vec![
            node("NonZero m -> places"),
            node("Squeeze places z -> p"),
            node("Shape p -> s"),
            node("Neg s -> n"),
            node("Neg n -> t"),
            node("Gather a p -> some"),
            node("Reshape some t -> same"),
            node("ScatterElements a p same -> y"),
        ],
        &["y"],
    );
    let m = Array::of_truths([4], &[true, false, false, true]).unwrap();
    let (graph, y) = run_graph(graph, &[("a", vector(&[1.0, 2.0, 3.0, 4.0])), ("m", m)]);
    assert_eq!((graph.nodes.len(), regions(&graph)), (1, 1));
    assert_eq!(y, vector(&[1.0, 2.0, 3.0, 4.0]));
}

#[test]
fn extents_that_are_known_survive_arithmetic_on_unknown_shapes() {
    // Some rows of a, reshaped to their own shape taken apart, and summed: the second extent is
    // known, so the sum is not dynamic.
    let graph = graph(
        vec![value("a", FLOAT, &["3", "2"]), value("m", BOOL, &["3"])],
        vec![integers("z", &[1], &[0]), integers("zero", &[], &[0]), integers("one", &[], &[1])],
        vec![
            node("NonZero m -> places"),
            node("Squeeze places z -> p"),
            node("Gather a p -> some"),
            node("Shape some -> s"),
            node("Gather s zero -> rows"),
            node("Gather s one -> columns"),
            node("Unsqueeze rows z -> r"),
            node("Unsqueeze columns z -> c"),
            node("Concat r c -> t").with(int("axis", 0)),
            node("Reshape some t -> same"),
            node("ReduceSum same z -> y").with(int("keepdims", 0)),
        ],
        &["y"],
    );
    let a = Array::of([3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let m = Array::of_truths([3], &[true, false, true]).unwrap();
    let (_, y) = run_graph(graph, &[("a", a), ("m", m)]);
    assert_eq!(y, vector(&[6.0, 8.0]));
}

#[test]
fn inputs_that_decide_shapes_can_be_controls() {
    let graph = graph(
        vec![value("a", FLOAT, &["1"]), value("n", INT64, &["1"])],
        Vec::new(),
        vec![node("Expand a n -> y")],
        &["y"],
    );
    let mut bindings = Bindings::default();
    bindings.controls.insert("n".to_owned(), Array::of([1], &[3_i64]).unwrap());
    let (_, y) = run(&model(graph, Vec::new()), &[("a", vector(&[7.0]))], &bindings);
    assert_eq!(y, vector(&[7.0, 7.0, 7.0]));
}

#[test]
fn typed_data_are_little_endian_bytes() {
    let mut half = floats("h", &[2], &[]);
    (half.raw_data, half.data_type, half.int32_data) = (None, 10, vec![0x3c00, 0xc000]);
    let graph = graph(Vec::new(), vec![half], vec![node("Neg h -> y")], &["y"]);
    let (graph, y) = run_graph(graph, &[]);
    assert_eq!(weights(&graph), ["h"]);
    assert_eq!(
        y.to_floats().unwrap().iter().map(|it| it.to_bits()).collect::<Vec<_>>(),
        [(-1.0_f64).to_bits(), 2.0_f64.to_bits()]
    );
}
