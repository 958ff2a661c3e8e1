//! Tests of which way matrices lie.

use planner_ir::DType;

use super::*;

fn of(labels: [&str; 3], [left, right]: [&[u64]; 2]) -> Option<Turned> {
    let [left_labels, right_labels, result] = labels.map(|it| it.bytes().map(Label).collect());
    let contract = Contract { left: left_labels, right: right_labels, result };
    turned(&contract, &[left, right].map(|shape| Type::new(DType::F32, shape.to_vec())))
}

#[test]
fn the_operand_that_has_the_columns_lies_across_if_its_rows_run_along_the_sums() {
    assert_eq!(of(["mk", "kn", "mn"], [&[3, 5], &[5, 7]]), None);
    let turned = Some(Turned { all: Bytes(4 * 35), row: Bytes(20) });
    assert_eq!(of(["mk", "nk", "mn"], [&[3, 5], &[7, 5]]), turned);
    // The left one is read a column of a tile at a time, whichever way it lies.
    assert_eq!(of(["km", "kn", "mn"], [&[5, 3], &[5, 7]]), None);
    // Where the result lies the other way, so do the roles.
    let turned = Some(Turned { all: Bytes(4 * 15), row: Bytes(20) });
    assert_eq!(of(["mk", "kn", "nm"], [&[3, 5], &[5, 7]]), turned);
    assert_eq!(of(["km", "nk", "nm"], [&[5, 3], &[7, 5]]), None);
}

#[test]
fn batches_and_labels_with_one_element_are_passed_over() {
    let turned = Some(Turned { all: Bytes(4 * 70), row: Bytes(20) });
    assert_eq!(of(["bmk", "bnk", "mnb"], [&[2, 3, 5], &[2, 7, 5]]), turned);
    let turned = Some(Turned { all: Bytes(4 * 35), row: Bytes(20) });
    assert_eq!(of(["mk", "nko", "mno"], [&[3, 5], &[7, 5, 1]]), turned);
    assert_eq!(of(["k", "k", ""], [&[5], &[5]]), None);
}
