//! Tests of ranges.

use planner_ir::{DType, Type};

use super::*;

/// Scores of 5 classes, labels that are shifted, and a table of 7 rows.
fn graph() -> Graph {
    let mut graph = Graph::default();
    let input =
        |graph: &mut Graph, name: &str, type_: Type| graph.push_value(type_, Source::Input(name.to_owned()));
    let ids = input(&mut graph, "ids", Type::new(DType::I64, [2, 3]));
    let labels = input(&mut graph, "labels", Type::new(DType::I64, [2, 3]));
    let other = input(&mut graph, "other", Type::new(DType::I64, [2, 3]));
    let table = graph.push_value(Type::new(DType::F32, [7, 5]), Source::Weight("table".to_owned()));
    let f32 = |shape: &[u64]| vec![Type::new(DType::F32, shape)];
    let i64 = |shape: &[u64]| vec![Type::new(DType::I64, shape)];
    let rows = graph.push_node(Op::Gather { dim: 0 }, vec![table, ids], f32(&[2, 3, 5]), String::new());
    let shift = Op::Slice { starts: vec![0, 1], steps: vec![1, 1], sizes: vec![2, 2] };
    let shifted = graph.push_node(shift, vec![labels], i64(&[2, 2]), String::new());
    let flat = graph.push_node(Op::Reshape { shape: vec![4] }, shifted, i64(&[4]), String::new());
    let cut = Op::Slice { starts: vec![0, 0, 0], steps: vec![1; 3], sizes: vec![2, 2, 5] };
    let scores = graph.push_node(cut, rows, f32(&[2, 2, 5]), String::new());
    let scores = graph.push_node(Op::Reshape { shape: vec![4, 5] }, scores, f32(&[4, 5]), String::new());
    graph.push_node(Op::CrossEntropy { ignored: -100 }, vec![scores[0], flat[0]], f32(&[4]), String::new());
    // What is computed from an input is not the input.
    let sum = Op::Binary(planner_ir::Binary::Add);
    let sum = graph.push_node(sum, vec![other, ids], i64(&[2, 3]), String::new());
    graph.push_node(Op::Gather { dim: 0 }, vec![table, sum[0]], f32(&[2, 3, 5]), String::new());
    graph
}

#[track_caller]
fn outcome(ids: [i64; 6], labels: [i64; 6]) -> Result<(), (usize, String)> {
    let arrays = [("ids", ids), ("labels", labels), ("other", [999; 6])];
    let inputs = arrays.map(|(name, it)| (name.to_owned(), Array::of::<i64>([2, 3], &it).unwrap()));
    check(&limits(&graph()), &inputs.into())
}

#[test]
fn numbers_that_index_are_found_through_moves_only() {
    let limit = |input: &str, what, count| Limit { input: input.to_owned(), what, count };
    let class = Indexed::Class { ignored: -100 };
    assert_eq!(limits(&graph()), [limit("ids", Indexed::Row, 7), limit("labels", class, 5)]);
}

#[test]
fn labels_of_a_loss_that_is_spelled_out_are_found() {
    let mut graph = Graph::default();
    let scores = graph.push_value(Type::new(DType::F32, [2, 24]), Source::Input("scores".to_owned()));
    let labels = graph.push_value(Type::new(DType::I64, [2]), Source::Input("labels".to_owned()));
    let loss = Op::CrossEntropy { ignored: -100 };
    let types = vec![Type::new(DType::F32, [2])];
    let value = graph.push_node(loss, vec![scores, labels], types, String::new())[0];
    graph.outputs.push(planner_ir::Output { name: "loss".to_owned(), value });
    let spelled = rewrite::spelled(&rewrite::blocks(&graph), &|_| true).graph;
    assert!(spelled.nodes.len() > 1);
    let all = Limit { input: "labels".to_owned(), what: Indexed::Class { ignored: -100 }, count: 24 };
    assert_eq!(limits(&spelled), limits(&graph));
    assert_eq!(limits(&graph), [all]);
}

#[test]
fn numbers_out_of_range_are_named_with_their_place() {
    assert_eq!(outcome([0, 6, -7, 1, 2, 3], [4, 0, -100, 1, 2, 3]), Ok(()));
    let wrong = |example, text: &str| Err((example, text.to_owned()));
    let rows = "the table that it indexes has 7 rows";
    assert_eq!(outcome([0, 7, 0, 0, 0, 9], [0; 6]), wrong(0, &format!("`ids` is 7 at [0, 1]: {rows}")));
    assert_eq!(outcome([0, 0, 0, 0, 0, -8], [0; 6]), wrong(1, &format!("`ids` is -8 at [1, 2]: {rows}")));
    let classes = "there are 5 classes, and -100 for none";
    for number in [5, -1, -101, i64::MAX] {
        let expected = wrong(1, &format!("`labels` is {number} at [1, 0]: {classes}"));
        assert_eq!(outcome([0; 6], [0, 0, 0, number, 0, 0]), expected);
    }
}
