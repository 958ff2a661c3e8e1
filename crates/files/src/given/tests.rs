//! Tests of inputs against what is expected.

use std::collections::BTreeMap;

use expect_test::expect;
use kernels::Array;
use planner_ir::{DType, Graph, Source, Type};

use super::{check, converted, converts};

fn program() -> Graph {
    let mut graph = Graph::default();
    graph.push_value(Type::new(DType::I64, [2, 3]), Source::Input("ids".to_owned()));
    graph.push_value(Type::new(DType::F16, [2]), Source::Input("scale".to_owned()));
    graph
}

#[test]
fn numbers_are_converted_if_that_loses_nothing_that_counts() {
    let ids = Array::of([2, 3], &[1_i32, 2, 3, 4, 5, -6]).unwrap();
    let scale = Array::of([2], &[0.5_f32, 2.0]).unwrap();
    let given = [("ids", &ids), ("scale", &scale)].map(|(name, it)| (name.to_owned(), it.type_().clone()));
    check(&program(), &given.into(), &[]).unwrap();
    let ids = converted(ids, &Type::new(DType::I64, [2, 3])).unwrap();
    assert_eq!(ids.to_integers().unwrap(), [1, 2, 3, 4, 5, -6]);
    let scale = converted(scale, &Type::new(DType::F16, [2])).unwrap();
    assert_eq!(scale.dtype(), DType::F16);
    assert_eq!(scale.to_floats().unwrap(), [0.5, 2.0]);
}

#[test]
fn every_fault_is_in_one_message_with_what_is_expected() {
    let ids = Type::new(DType::I64, [3, 2]);
    let more = Type::new(DType::I64, [1]);
    let given = BTreeMap::from([("ids".to_owned(), ids), ("more".to_owned(), more.clone())]);
    let error = check(&program(), &given, &[]).expect_err("three faults");
    expect!["`ids` is i64[3,2], `scale` is missing, `more` is not an input; expected `ids` i64[2,3], `scale` f16[2]"]
        .assert_eq(&error);
    let wrong = Type::new(DType::F32, [2, 3]);
    let given = BTreeMap::from([("ids".to_owned(), wrong), ("more".to_owned(), more)]);
    let error = check(&program(), &given, &["more"]).expect_err("two faults");
    expect!["`ids` is f32[2,3], `scale` is missing; expected `ids` i64[2,3], `scale` f16[2]"]
        .assert_eq(&error);
}

#[test]
fn integers_only_widen() {
    assert!(converts(DType::U32, DType::I64) && converts(DType::U8, DType::U16));
    for (from, to) in [
        (DType::I64, DType::I32),
        (DType::I32, DType::U64),
        (DType::U64, DType::I64),
        (DType::Bool, DType::I64),
        (DType::I64, DType::F32),
        (DType::F32, DType::I64),
    ] {
        assert!(!converts(from, to), "{from} to {to}");
    }
}
