//! Tests of what does not need a model. Steps of real models are held against PyTorch in the tests
//! of the whole.

use plan::Tie;
use planner_ir::parse_graph;

use crate::late::late_conversions;
use crate::{TrainError, tied};

/// A copy becomes a use of the original, and what cannot be a copy is refused.
#[test]
fn copies_become_uses_of_the_original() {
    let graph = parse_graph(
        "graph \"\" {
  %0 = weight \"a\" : f32[3,2]
  %1 = weight \"b\" : f32[2,3]
  %2 = weight \"c\" : f32[3,2]
  return \"a\" %0, \"b\" %1, \"c\" %2
}
",
    )
    .unwrap();
    let tie = |copy: &str, original: &str, transposed| Tie {
        copy: copy.to_owned(),
        original: original.to_owned(),
        transposed,
    };
    let expected = "graph \"\" {\n  %0 = weight \"a\" : f32[3,2]\n  %1 = weight \"c\" : f32[3,2]
  %2 = transpose permutation=[1,0] %0 : f32[2,3] # origin \"b\"
  return \"a\" %0, \"b\" %2, \"c\" %1\n}\n";
    assert_eq!(tied(&graph, &[tie("b", "a", true)]), Ok(parse_graph(expected).unwrap()));
    for wrong in [
        vec![tie("b", "a", false)],
        vec![tie("b", "x", true)],
        vec![tie("x", "a", true)],
        vec![tie("a", "a", false)],
        vec![tie("b", "a", true), tie("a", "c", false)],
        vec![tie("b", "a", true), tie("b", "c", true)],
    ] {
        assert!(matches!(tied(&graph, &wrong), Err(TrainError::Tie(..))), "{wrong:?}");
    }
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
