//! Rows sorted by expert.

use kernels::Array;
use planner_ir::{DType, Graph, Op, Type, parse_graph};

use super::regions;
use crate::raise::mixture::mixed;
use crate::raise::tests::evaluate::{Dice, difference, evaluate, tolerance};

/// Three experts of two hidden numbers and three units, and six rows.
const GATED: &str = r#"graph "gated" {
  %0 = input "x" : f32[6,2]
  %1 = input "end 0" : i64[]
  %2 = input "end 1" : i64[]
  %3 = input "end 2" : i64[]
  %4 = weight "wide" : f32[3,2,6]
  %5 = weight "down 0" : f32[3,2]
  %6 = weight "down 1" : f32[3,2]
  %7 = weight "down 2" : f32[3,2]
  %8 = input "shares" : f32[6,1]
  %9 = slice starts=[0,0,0] steps=[1,1,1] sizes=[1,2,6] %4 : f32[1,2,6]
  %10 = reshape shape=[2,6] %9 : f32[2,6]
  %11 = slice starts=[1,0,0] steps=[1,1,1] sizes=[1,2,6] %4 : f32[1,2,6]
  %12 = reshape shape=[2,6] %11 : f32[2,6]
  %13 = slice starts=[2,0,0] steps=[1,1,1] sizes=[1,2,6] %4 : f32[1,2,6]
  %14 = reshape shape=[2,6] %13 : f32[2,6]
  %15 = region body={
    takes 11
    %11 = fill type=i64[] value=0.0
    %12 = fill type=i64[] value=1.0
    %13 = fill type=i64[2] value=3.0
    %14 = dynamic_range %11 %1 %12
    %15 = gather dim=0 %0 %14
    %16 = contract "ab,bc->ac" %15 %4
    %17 = dynamic_range %1 %2 %12
    %18 = gather dim=0 %0 %17
    %19 = contract "ab,bc->ac" %18 %5
    %20 = dynamic_range %2 %3 %12
    %21 = gather dim=0 %0 %20
    %22 = contract "ab,bc->ac" %21 %6
    %23 = concat dim=0 %16 %19 %22
    %24, %25 = dynamic_split dim=1 %23 %13
    %26 = sigmoid %24
    %27 = mul %24 %26
    %28 = mul %27 %25
    %29 = gather dim=0 %28 %14
    %30 = contract "ab,bc->ac" %29 %7
    %31 = gather dim=0 %28 %17
    %32 = contract "ab,bc->ac" %31 %8
    %33 = gather dim=0 %28 %20
    %34 = contract "ab,bc->ac" %33 %9
    %35 = concat dim=0 %30 %32 %34
    %36 = mul %35 %10
    return %36 : f32[6,2]
  } %0 %1 %2 %3 %10 %12 %14 %5 %6 %7 %8 : f32[6,2]
  return "y" %15
}
"#;

/// The units of `GATED` without a gate.
fn plain() -> String {
    let cut = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let text = cut(GATED, "%13 = fill type=i64[2] value=3.0", "%13 = fill type=i64[2] value=6.0");
    let text = cut(&text, "%24, %25 = dynamic_split dim=1 %23 %13", "%24 = relu %23\n    %25 = relu %23");
    let text = cut(&text, "mul %27 %25", "gelu %23");
    (5..8).fold(text, |text, weight| {
        let number = weight - 5;
        cut(
            &text,
            &format!("%{weight} = weight \"down {number}\" : f32[3,2]"),
            &format!("%{weight} = weight \"down {number}\" : f32[6,2]"),
        )
    })
}

/// Values for a graph whose second to fourth are the ends of rows.
fn outside(graph: &Graph, ends: [i64; 3]) -> Vec<Array> {
    let mut dice = Dice { state: 7, below: 2 };
    let types: Vec<&Type> = graph.values[..9].iter().map(|it| &it.type_).collect();
    let end = |index: usize| Array::of(vec![], &[ends[index]]).unwrap();
    let array = |(index, type_): (usize, &&Type)| match type_.dtype {
        DType::I64 => end(index - 1),
        _ => dice.array(type_),
    };
    types.iter().enumerate().map(array).collect()
}

/// Whether the region of a graph became experts that compute the same.
fn assert_same(text: &str) {
    let graph = parse_graph(text).unwrap();
    let raised = mixed(&graph);
    planner_ir::verify(&raised).unwrap();
    assert_eq!((regions(&graph), regions(&raised)), (1, 0));
    for ends in [[2, 3, 6], [0, 4, 6], [3, 3, 6], [1, 6, 6], [0, 0, 6], [6, 6, 6]] {
        let values = outside(&graph, ends);
        let expected = evaluate(&graph, &values).unwrap();
        let found = evaluate(&raised, &values).unwrap();
        let apart = difference(&found[0], &expected[0]);
        assert!(apart <= tolerance(expected[0].dtype()), "{ends:?}: off by {apart:e}");
    }
}

#[test]
fn gated_units_over_uneven_rows_compute_the_same() {
    assert_same(GATED);
}

#[test]
fn either_half_may_be_the_activated_one() {
    let other = GATED.replace("sigmoid %24", "sigmoid %25").replace("mul %24 %26", "mul %26 %25");
    assert_same(&other.replace("mul %27 %25", "mul %24 %27"));
}

#[test]
fn narrow_numbers_stay_narrow() {
    for name in ["bf16", "f16"] {
        assert_same(&GATED.replace("f32", name));
    }
}

#[test]
fn units_without_a_gate_compute_the_same() {
    assert_same(&plain());
}

#[test]
fn conversions_after_the_products_are_kept() {
    let cast = GATED.replace(
        "%36 = mul %35 %10",
        "%36 = cast to=f64 %35\n    %37 = cast to=f32 %36\n    %38 = mul %10 %37",
    );
    assert_same(&cast.replace("return %36 :", "return %38 :"));
}

#[test]
fn weights_that_are_slices_of_one_value_are_that_value() {
    let raised = mixed(&parse_graph(GATED).unwrap());
    let whole = Type::new(DType::F32, vec![3, 2, 6]);
    let halved = |node: &&planner_ir::Node| {
        matches!(&node.op, Op::Slice { sizes, .. } if *sizes == [3, 2, 3])
            && *raised.type_of(node.operands[0]) == whole
            && matches!(raised.value(node.operands[0]).source, planner_ir::Source::Weight(_))
    };
    assert_eq!(raised.nodes.iter().filter(halved).count(), 2);
}

#[test]
fn other_regions_are_left_alone() {
    let others = [
        ("the first expert does not start at 0", "dynamic_range %11 %1", "dynamic_range %12 %1"),
        ("an expert does not start where the one before ends", "dynamic_range %2 %3", "dynamic_range %1 %3"),
        ("every second row", "%20 = dynamic_range %2 %3 %12", "%20 = dynamic_range %2 %3 %2"),
        ("the second products are of other rows", "gather dim=0 %28 %17", "gather dim=0 %28 %20"),
        ("the rows are not those of one value", "gather dim=0 %0 %17", "gather dim=0 %10 %17"),
        ("the gate is the activated half", "mul %27 %25", "mul %27 %24"),
        ("no activation", "mul %24 %26", "add %24 %26"),
        ("weights transposed", "contract \"ab,bc->ac\" %31", "contract \"ab,cb->ac\" %31"),
        ("another sum", "mul %35 %10", "add %35 %10"),
        ("parts that differ in size", "fill type=i64[2] value=3.0", "constant type=i64[2] data=[2,4]"),
    ];
    for (what, from, to) in others {
        let text = GATED.replace(from, to);
        assert_ne!(text, GATED, "{what}");
        let graph = parse_graph(&text).unwrap();
        assert_eq!(regions(&mixed(&graph)), 1, "{what}");
    }
}
