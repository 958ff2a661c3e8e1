//! Loops: what becomes of their turns; and sizes that attention operators say.

use kernels::Array;
use planner_ir::{Graph, Op, Source};
use std::collections::BTreeMap;

use bytes::Bytes;

use super::evaluate::{evaluate, verified};
use super::make::{
    BOOL, FLOAT, INT64, bytes, floats, graph, graph_attribute, int, integers, model, node, opset, value,
};
use crate::proto::{GraphProto, NodeProto, TensorProto};
use crate::{Bindings, read};

/// `y` of a model for an input `x` of two numbers and, if there is one, a count `m`.
fn run(graph: GraphProto, x: [f32; 2], count: Option<i64>) -> (Graph, Array) {
    let model = read(bytes(&model(graph, Vec::new()))).unwrap();
    let graph =
        verified(model.import(&Bindings::default()).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let mut inputs = BTreeMap::from([("x".to_owned(), Array::of([2], &x).unwrap())]);
    inputs.extend(count.map(|count| ("m".to_owned(), Array::of(Vec::<u64>::new(), &[count]).unwrap())));
    let y = evaluate(&graph, &model, &inputs).unwrap().remove("y").unwrap();
    (graph, y)
}

fn regions(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|node| matches!(node.op, Op::Region(_))).count()
}

/// A loop over `x` whose body has a weight of its own.
fn looped(count: &str, condition: &str, body: Vec<NodeProto>, weights: &[f32]) -> NodeProto {
    let inner = GraphProto {
        input: vec![value("i", INT64, &[]), value("c", BOOL, &[]), value("s", FLOAT, &["2"])],
        ..graph(Vec::new(), vec![floats("w", &[2, 2], weights)], body, &["on", "t"])
    };
    let mut node = node(&format!("Loop {count} {condition} x -> y")).with(graph_attribute("body", inner));
    node.name = "turns".to_owned();
    node
}

const ONES: [f32; 4] = [1.0; 4];

#[test]
fn turns_of_a_known_count_are_one_after_another_and_have_one_weight() {
    let body = vec![node("MatMul s w -> t"), node("Identity c -> on")];
    let all = graph(
        vec![value("x", FLOAT, &["2"])],
        vec![integers("m", &[], &[3])],
        vec![looped("m", "_", body, &[2.0, 0.0, 0.0, 3.0])],
        &["y"],
    );
    let (graph, y) = run(all, [1.0, 1.0], None);
    assert_eq!(y.elements::<f32>().unwrap(), [8.0, 27.0]);
    let weights: Vec<_> = graph.values.iter().filter(|it| matches!(it.source, Source::Weight(_))).collect();
    assert_eq!((weights.len(), regions(&graph), graph.nodes.len()), (1, 0, 3), "{graph}");
}

#[test]
fn turns_that_depend_on_data_are_a_region() {
    // While the sum of squares is below 100.
    let body = vec![
        node("MatMul s w -> t"),
        node("ReduceSumSquare t -> q").with(int("keepdims", 0)),
        node("Less q limit -> on"),
    ];
    let weights = vec![floats("limit", &[], &[100.0])];
    let until = graph(vec![value("x", FLOAT, &["2"])], weights, vec![looped("_", "_", body, &ONES)], &["y"]);
    let (made, y) = run(until, [1.0, 0.5], None);
    assert_eq!((regions(&made), y.elements::<f32>().unwrap()), (1, &[12.0, 12.0][..]), "{made}");

    let body = vec![node("MatMul s w -> t"), node("Identity c -> on")];
    let inputs = vec![value("x", FLOAT, &["2"]), value("m", INT64, &[])];
    let given = graph(inputs, Vec::new(), vec![looped("m", "_", body, &ONES)], &["y"]);
    for (count, expected) in [(0, [1.0, 0.5]), (1, [1.5, 1.5]), (4, [12.0, 12.0])] {
        let (made, y) = run(given.clone(), [1.0, 0.5], Some(count));
        assert_eq!((regions(&made), y.elements::<f32>().unwrap()), (1, &expected[..]), "{count}");
    }
}

#[test]
fn turns_that_are_too_many_are_a_region() {
    let body = vec![node("Add s i2 -> t"), node("Cast i -> i2").with(int("to", 1)), node("Identity c -> on")];
    let weights = vec![integers("m", &[], &[30_000])];
    let all = graph(vec![value("x", FLOAT, &["2"])], weights, vec![looped("m", "_", body, &ONES)], &["y"]);
    let (made, y) = run(all, [0.0, 0.0], None);
    assert_eq!(regions(&made), 1);
    assert!((y.elements::<f32>().unwrap()[0] - 449_985_000.0).abs() < 1e5, "{y:?}");
}

#[test]
fn a_loop_without_an_end_is_refused() {
    let body = vec![node("MatMul s w -> t"), node("Identity c -> on")];
    let all = graph(vec![value("x", FLOAT, &["2"])], Vec::new(), vec![looped("_", "_", body, &ONES)], &["y"]);
    let error = read(bytes(&model(all, Vec::new()))).unwrap().import(&Bindings::default()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("`turns` (Loop)") && error.contains("never ends"), "{error}");
}

/// Attention whose keys come from these nodes.
fn attending(keys: Vec<NodeProto>, weights: Vec<TensorProto>) -> Bytes {
    let attention =
        NodeProto { name: "attend".to_owned(), ..node("GroupQueryAttention q k v pk pv l t -> y") }
            .of_domain("com.microsoft")
            .with(int("num_heads", 4))
            .with(int("kv_num_heads", 2));
    let past = |name: &str| value(name, FLOAT, &["batch", "2", "past", "head"]);
    let mut all = graph(
        vec![value("x", FLOAT, &["batch", "1", "3"]), past("pk"), past("pv"), value("l", 6, &["batch"])],
        vec![integers("t", &[], &[5]), integers("s", &[3], &[0, 0, 16])],
        keys.into_iter().chain([attention]).collect(),
        &["y"],
    );
    all.initializer.extend(weights);
    let mut proto = model(all, Vec::new());
    proto.opset_import.push(opset("com.microsoft", 1));
    bytes(&proto)
}

#[test]
fn attention_says_the_size_of_a_head() {
    let project = |made: &str, weight: &str| node(&format!("MatMul x {weight} -> {made}"));
    let weight = |name: &str, width: i64| {
        let count = usize::try_from(3 * width).unwrap();
        floats(name, &[3, width], &vec![0.5; count])
    };
    let plain = attending(
        vec![project("q", "wq"), project("k0", "wk"), project("v", "wv"), node("Reshape k0 s -> k")],
        vec![weight("wq", 32), weight("wk", 16), weight("wv", 16)],
    );
    // One product that is split, and norms of the heads of queries and keys, as Qwen3 has them.
    let normed = |last: i64| {
        attending(
            vec![
                project("qkv", "w"),
                node("Split qkv parts -> q0 k0 v").with(int("axis", 2)),
                node("Reshape q0 heads -> q1"),
                node("SimplifiedLayerNormalization q1 scale -> q2"),
                node("Reshape q2 queries -> q"),
                node("Reshape k0 heads -> k1"),
                node("SimplifiedLayerNormalization k1 scale -> k2"),
                node("Reshape k2 keys -> k"),
            ],
            vec![
                weight("w", 64),
                floats("scale", &[8], &[1.0; 8]),
                integers("parts", &[3], &[32, 16, 16]),
                integers("heads", &[4], &[0, 0, -1, 8]),
                integers("queries", &[3], &[0, 0, 32]),
                integers("keys", &[3], &[0, 1, last]),
            ],
        )
    };
    let dims = |more: &[(&str, u64)]| Bindings {
        dims: [("batch", 1), ("past", 4)]
            .iter()
            .chain(more)
            .map(|&(name, size)| (name.to_owned(), size))
            .collect(),
        ..Bindings::default()
    };
    for bytes in [plain, normed(16), normed(-1)] {
        let model = read(bytes).unwrap();
        let made = model.import(&dims(&[])).unwrap_or_else(|error| panic!("{error}"));
        assert!(made.values.iter().any(|it| it.type_.shape == [1, 2, 4, 8]), "{made}");
        let error = model.import(&dims(&[("head", 7)])).unwrap_err().to_string();
        assert!(
            error.contains("a head of `attend`") && error.contains('8') && error.contains('7'),
            "{error}"
        );
    }
}
