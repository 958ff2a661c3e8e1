//! Tests of arrays cut into micro-batches.

use planner_ir::DType;

use super::*;

fn input(name: &str, dtype: DType, shape: &[u64]) -> Input {
    Input { name: name.to_owned(), type_: Type::new(dtype, shape) }
}

fn counted(shape: &[u64]) -> Array {
    let count = i32::try_from(shape.iter().product::<u64>()).unwrap();
    Array::of::<i32>(shape, &(0..count).collect::<Vec<_>>()).unwrap()
}

fn given(arrays: &[(&str, Array)]) -> BTreeMap<String, Type> {
    arrays.iter().map(|(name, array)| ((*name).to_owned(), array.type_().clone())).collect()
}

#[test]
fn rows_are_taken_in_any_order_and_converted() {
    let inputs = [
        input("x", DType::I64, &[2, 3]),
        input("y", DType::I32, &[2]),
        input("same", DType::I32, &[1, 3]),
        input("number", DType::I32, &[]),
    ];
    let arrays =
        [("x", counted(&[5, 3])), ("y", counted(&[5])), ("same", counted(&[1, 3])), ("number", counted(&[]))];
    let (shares, examples, batch) = shares(&inputs, &given(&arrays)).unwrap();
    assert_eq!((examples, batch), (5, 2));
    let taken = |number: usize| {
        let column = Column { share: shares[number], array: arrays[number].1.clone() };
        column.of(&inputs[number].type_, &[4, 1]).unwrap()
    };
    assert_eq!(taken(0), Array::of::<i64>([2, 3], &[12, 13, 14, 3, 4, 5]).unwrap());
    assert_eq!(taken(1), Array::of::<i32>([2], &[4, 1]).unwrap());
    assert_eq!(taken(2), counted(&[1, 3]));
    assert_eq!(taken(3), counted(&[]));
}

#[test]
fn one_micro_batch_of_data_is_enough() {
    let inputs = [input("x", DType::I32, &[2, 3]), input("y", DType::I32, &[2])];
    let arrays = given(&[("x", counted(&[2, 3])), ("y", counted(&[2]))]);
    assert_eq!(shares(&inputs, &arrays).unwrap(), (vec![Share::Rows; 2], 2, 2));
}

#[test]
fn arrays_that_do_not_fit_are_named() {
    let inputs = [input("x", DType::I64, &[2, 3]), input("y", DType::I64, &[2])];
    let (x, y) = (counted(&[5, 3]), counted(&[5]));
    for (arrays, expected) in [
        (vec![("x", x.clone())], "has no array for input `y` i64[2]"),
        (
            vec![("x", x.clone()), ("y", counted(&[4]))],
            "`y` is i32[4], but `x` is i32[5,3]: expected as many",
        ),
        (
            vec![("x", x.clone()), ("y", counted(&[2]))],
            "`y` is i32[2], but `x` is i32[5,3]: expected as many",
        ),
        (vec![("x", counted(&[5, 4])), ("y", y.clone())], "`x` is i32[5,4], expected i64[examples,3]"),
        (
            vec![("x", x.clone()), ("y", y.clone()), ("z", y.clone())],
            "`z` is not an input, expected `x`, `y`",
        ),
        (
            vec![("x", x), ("y", Array::of::<f32>([5], &[0.0; 5]).unwrap())],
            "`y` is f32[5], expected i64[examples]",
        ),
    ] {
        let error = shares(&inputs, &given(&arrays)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
