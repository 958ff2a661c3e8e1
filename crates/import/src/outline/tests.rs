//! What operations make of types with unknown extents.

use expect_test::{Expect, expect};
use planner_ir::{Binary, Contract, DType, Label, Op, Reduction, Scatter, Unary};

use super::{Outline, infer};

/// A type of floats whose unknown extents are written `?`.
fn floats(extents: &str) -> Outline {
    Outline::new(DType::F32, extents.split_whitespace().map(|it| it.parse().ok()).collect())
}

fn indices(extents: &str) -> Outline {
    Outline { dtype: DType::I64, ..floats(extents) }
}

fn check(op: &Op, operands: &[Outline], expected: Expect) {
    let Some(results) = infer(op, operands) else { return expected.assert_eq("none") };
    let shown = results.iter().map(|result| {
        let extents = result.extents.iter().map(|it| it.map_or_else(|| "?".to_owned(), |it| it.to_string()));
        format!("{} {}", result.dtype, extents.collect::<Vec<_>>().join(" "))
    });
    expected.assert_eq(&shown.collect::<Vec<_>>().join("; "));
}

#[test]
fn unknown_extent_beside_a_known_one_is_that_or_one() {
    let add = Op::Binary(Binary::Add);
    check(&add, &[floats("? 4"), floats("4")], expect!["f32 ? 4"]);
    check(&add, &[floats("? 4"), floats("7 1")], expect!["f32 7 4"]);
    check(&add, &[floats("1 4"), floats("? 1")], expect!["f32 ? 4"]);
    check(&add, &[floats("? ?"), floats("? ?")], expect!["f32 ? ?"]);
    check(&add, &[floats("? 3"), floats("? 4")], expect!["none"]);
    check(&Op::Binary(Binary::Less), &[floats("?"), floats("5")], expect!["bool 5"]);
    check(&Op::Unary(Unary::Not), &[floats("?")], expect!["bool ?"]);
}

#[test]
fn indices_bring_their_extents() {
    check(&Op::Gather { dim: 1 }, &[floats("2 9 4"), indices("? 3")], expect!["f32 2 ? 3 4"]);
    check(&Op::Gather { dim: 0 }, &[floats("? 4"), indices("3")], expect!["f32 3 4"]);
    check(&Op::Gather { dim: 2 }, &[floats("? 4"), indices("3")], expect!["none"]);
    check(&Op::GatherNd { batch_dims: 0 }, &[floats("? 4 5"), indices("? 2")], expect!["f32 ? 5"]);
    check(&Op::GatherNd { batch_dims: 0 }, &[floats("? 4 5"), indices("3 ?")], expect!["none"]);
    check(&Op::GatherNd { batch_dims: 1 }, &[floats("4 5"), indices("4 9")], expect!["none"]);
    let scatter = Op::ScatterNd { scatter: Scatter::Add };
    check(&scatter, &[floats("6 4"), indices("? 1"), floats("? 4")], expect!["f32 6 4"]);
}

#[test]
fn sums_and_products_keep_what_is_known() {
    let matmul = Op::Contract(Contract {
        left: vec![Label(0), Label(1)],
        right: vec![Label(1), Label(2)],
        result: vec![Label(0), Label(2)],
    });
    check(&matmul, &[floats("? 4"), floats("4 8")], expect!["f32 ? 8"]);
    check(&Op::Reduce { reduction: Reduction::Sum, dims: vec![0] }, &[floats("? 8")], expect!["f32 1 8"]);
    check(&Op::Concat { dim: 0 }, &[floats("2 ?"), floats("3 8")], expect!["f32 5 8"]);
    check(&Op::Concat { dim: 0 }, &[floats("2 8"), floats("? 8")], expect!["f32 ? 8"]);
    check(&Op::Transpose { permutation: vec![1, 0] }, &[floats("? 8")], expect!["f32 8 ?"]);
}

#[test]
fn operations_that_say_extents_are_not_inferred() {
    check(&Op::Reshape { shape: vec![4] }, &[floats("?")], expect!["none"]);
}
