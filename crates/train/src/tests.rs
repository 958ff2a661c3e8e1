//! Tests of what does not need a model. Steps of real models are held against PyTorch in the tests
//! of the whole.

use planner_ir::{DType, Graph, Output, Source, Type, parse_graph};

use crate::late::late_conversions;
use crate::{Tie, tied, ties};

/// Two matrices of three rows and two columns, of which one is the other's transpose, and ones.
#[test]
fn copies_are_found_and_become_uses_of_the_original() {
    let mut graph = Graph::default();
    let shapes: [&[u64]; 5] = [&[3, 2], &[2, 3], &[3, 2], &[3, 2], &[2, 3]];
    let data = [vec![1., 2., 3., 4., 5., 6.], vec![1., 3., 5., 2., 4., 6.], vec![1.0; 6], vec![1.0; 6]];
    let data: Vec<Vec<u8>> =
        data.iter().map(|it| it.iter().flat_map(|x: &f32| x.to_le_bytes()).collect()).collect();
    for (name, shape) in ["a", "b", "c", "d", "e"].into_iter().zip(shapes) {
        let value = graph.push_value(Type::new(DType::F32, shape), Source::Weight(name.to_owned()));
        graph.outputs.push(Output { name: name.to_owned(), value });
    }
    let weight = |name: &str| data.get(usize::from(name.as_bytes()[0] - b'a')).map(Vec::as_slice);
    let found = ties(&graph, &weight);
    let tie = Tie { copy: "b".to_owned(), original: "a".to_owned(), transposed: true };
    assert_eq!(found, [tie]);
    let expected = "graph \"\" {\n  %0 = weight \"a\" : f32[3,2]\n  %1 = weight \"c\" : f32[3,2]
  %2 = weight \"d\" : f32[3,2]\n  %3 = weight \"e\" : f32[2,3]
  %4 = transpose permutation=[1,0] %0 : f32[2,3] # origin \"b\"
  return \"a\" %0, \"b\" %4, \"c\" %1, \"d\" %2, \"e\" %3\n}\n";
    assert_eq!(tied(&graph, &found), parse_graph(expected).unwrap());
}

/// What is made wider stands right before what reads it first, in the same block alone.
#[test]
fn conversions_stand_where_they_are_read() {
    let graph = parse_graph(
        "graph \"\" {
  %0 = input \"x\" : bf16[4]
  %1 = input \"y\" : f32[4]
  %2 = cast to=f32 %0 : f32[4]
  %3 = cast to=bf16 %1 : bf16[4]
  %4 = neg %1 : f32[4]
  %5 = cast to=f64 %2 : f64[4]
  %6 = neg %3 : bf16[4]
  %7 = neg %5 : f64[4]
  %8 = neg %2 : f32[4]
  return \"a\" %4, \"b\" %6, \"c\" %7, \"d\" %8
}
",
    )
    .unwrap();
    let in_one = late_conversions(&graph, &[0; 7]);
    assert_eq!(in_one, [1, 2, 4, 0, 3, 5, 6]);
    // What the last block but one reads is converted in the first, which does not read it.
    let in_two = late_conversions(&graph, &[0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(in_two, [0, 1, 2, 4, 3, 5, 6]);
}
