//! Tests of where splitting rows may gain something.

use cost_models::machine::shipped;
use planner_ir::{DType, Graph, Mesh, Op, Real, Source, Type, Unary};
use search::MachinePrices;

use super::may_be_split;

/// Whether the rows of an operation on a value of this shape may be split on a mesh.
fn split(op: &Op, shape: &[u64], mesh: &str) -> bool {
    let mut graph = Graph::default();
    let mut given = |type_: Type, name: &str| graph.push_value(type_, Source::Input(name.to_owned()));
    let x = given(Type::new(DType::F32, shape), "x");
    let operands = match op {
        Op::CrossEntropy { .. } => vec![x, given(Type::new(DType::I64, &shape[..shape.len() - 1]), "labels")],
        Op::Unary(_) => vec![x],
        _ => vec![x, given(Type::new(DType::F32, &shape[shape.len() - 1..]), "scale")],
    };
    let types = op.infer(&graph.types_of(&operands)).unwrap();
    graph.push_node(op.clone(), operands, types, String::new());
    let mesh = Mesh::parse(mesh).unwrap();
    let machine = shipped::named(&format!("cpu-{}x", mesh.devices())).unwrap();
    may_be_split(&graph, &mesh, &MachinePrices::new(&machine, &mesh).unwrap())
}

const NORM: Op = Op::LayerNorm { dims: 1, epsilon: Real(1e-5) };
const LOSS: Op = Op::CrossEntropy { ignored: -100 };

#[test]
fn rows_that_are_long_may_be_split_on_two_axes() {
    assert!(split(&NORM, &[8, 512, 4096], "2x2"));
    assert!(split(&Op::RmsNorm { dims: 1, epsilon: Real(1e-5) }, &[8, 512, 4096], "2x2"));
    assert!(split(&LOSS, &[8, 512, 32768], "2x2"));
}

#[test]
fn what_gains_nothing_is_not_offered() {
    // Few numbers: a sum over devices takes as long as bringing the row together.
    assert!(!split(&NORM, &[2, 4, 64], "2x2"));
    // One axis, as often as it is written.
    assert!(!split(&NORM, &[8, 512, 4096], "4"));
    assert!(!split(&NORM, &[8, 512, 4096], "4x1"));
    // Rows that do not fall into blocks.
    assert!(!split(&NORM, &[8, 512, 4095], "2x2"));
    assert!(!split(&Op::Unary(Unary::Gelu), &[8, 512, 4096], "2x2"));
}
