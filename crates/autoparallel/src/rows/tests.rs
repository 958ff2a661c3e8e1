//! Tests of where splitting rows may gain something.

use cost_models::machine::shipped;
use plan::{Copy, MachineName, ModelFile, Plan, Proof, Recipe, SpaceSize, Term, Transfer};
use planner_ir::{
    DType, Digit, Graph, Layout, Mesh, Move, Op, Optimizer, Real, Source, Type, Unary, ValueId,
};
use search::MachinePrices;

use super::{brings_together, may_be_split};

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

/// A plan of nothing that takes so long.
pub(crate) fn of_seconds(seconds: f64) -> Plan {
    Plan {
        model: ModelFile { path: String::new(), sha256: String::new(), dims: vec![] },
        machine: MachineName { name: String::new(), devices: 4, sha256: None },
        mesh: Mesh::of_sizes(&[2, 2]),
        graph: Graph::default(),
        layouts: vec![],
        assignments: vec![],
        transfers: vec![],
        outputs: vec![],
        carried: vec![],
        recipe: None,
        pins: vec![],
        controls: vec![],
        estimate: vec![Term { name: "all".to_owned(), seconds }],
        hidden: plan::Hidden::default(),
        memory: vec![],
        capacity: 0,
        proof: Proof::Optimal,
        space: SpaceSize::default(),
    }
}

/// A plan of a norm that takes 100 seconds, of which this move of its input takes so many for each
/// micro-batch.
fn moving(step: Move, seconds: f64) -> Plan {
    let mut plan = of_seconds(100.0);
    let x = Type::new(DType::F32, [8, 512, 4096]);
    let [x, scale] = [x, Type::new(DType::F32, [4096])]
        .map(|type_| plan.graph.push_value(type_, Source::Input("given".to_owned())));
    let types = NORM.infer(&plan.graph.types_of(&[x, scale])).unwrap();
    plan.graph.push_node(NORM, vec![x, scale], types, String::new());
    let moved = Transfer {
        value: x,
        from: Copy::Made,
        moves: vec![step],
        layout: Layout::replicated(3),
        bytes: vec![1],
        seconds: vec![seconds],
        waits: false,
    };
    plan.transfers.push(moved);
    plan
}

#[test]
fn rows_are_brought_together_where_that_takes_more_than_a_hundredth() {
    let gather = |dim| Move::AllGather { dim, digits: 1 };
    assert!(!brings_together(&moving(gather(2), 0.99)));
    assert!(brings_together(&moving(gather(2), 1.01)));
    let digits = vec![Digit::axis(&Mesh::of_sizes(&[2, 2]), planner_ir::AxisId(0))];
    let exchange = |from, to| Move::AllToAll { from, to, digits: digits.clone() };
    assert!(brings_together(&moving(exchange(2, 0), 50.0)));
    // Rows that come together of their examples or tokens are whole before.
    assert!(!brings_together(&moving(gather(0), 50.0)));
    assert!(!brings_together(&moving(exchange(0, 2), 50.0)));
    assert!(!brings_together(&moving(Move::Slice { dim: 2, digits: digits.clone() }, 50.0)));
}

#[test]
fn what_is_no_row_of_a_norm_is_not_counted_and_what_is_of_every_micro_batch_is() {
    let gather = Move::AllGather { dim: 2, digits: 1 };
    let mut plan = moving(gather.clone(), 50.0);
    plan.transfers[0].value = ValueId(1);
    plan.transfers[0].moves = vec![Move::AllGather { dim: 0, digits: 1 }];
    assert!(!brings_together(&plan));
    let mut plan = moving(gather, 0.3);
    assert!(!brings_together(&plan));
    plan.recipe = Some(Recipe {
        precision: plan::Precision::F32,
        micro_batches: 4,
        ..Recipe::new(plan::Loss::Output("loss".to_owned()), Optimizer::Sgd { decay: Real(0.0) })
    });
    assert!(brings_together(&plan));
}
