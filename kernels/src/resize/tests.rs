//! Resampling of short rows, worked out by hand.

use planner_ir::{Interpolation, Op, Real, Resize};

use crate::Array;
use crate::naive::{check_blocks, one};

fn resized(row: &[f32], length: u64, half_pixel: bool, interpolation: Interpolation) -> Vec<f32> {
    let extent = u16::try_from(row.len()).unwrap();
    let scale = Real(f64::from(u16::try_from(length).unwrap()) / f64::from(extent));
    let x = Array::of([1, extent.into()], row).unwrap();
    let scales = vec![Real(1.0), scale];
    let op = Op::Resize(Resize { shape: vec![1, length], scales, half_pixel, interpolation });
    one(&op, &[&x]).elements::<f32>().unwrap().to_vec()
}

#[test]
fn samples_are_where_the_formula_says() {
    use Interpolation::{Linear, NearestFloor, NearestPreferFloor};
    let row = [1.0, 2.0, 3.0];
    assert_eq!(resized(&row, 6, false, NearestFloor), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    // At 0.5 both neighbours are equally near, and the lower one is taken.
    assert_eq!(resized(&row, 6, false, NearestPreferFloor), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    assert_eq!(resized(&row, 6, true, NearestPreferFloor), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    assert_eq!(resized(&row, 6, false, Linear), [1.0, 1.5, 2.0, 2.5, 3.0, 3.0]);
    assert_eq!(resized(&row, 6, true, Linear), [1.0, 1.25, 1.75, 2.25, 2.75, 3.0]);
    assert_eq!(resized(&[1.0, 2.0, 3.0, 5.0], 2, true, Linear), [1.5, 4.0]);
}

#[test]
fn dimensions_are_resampled_one_by_one() {
    let x = Array::of([2, 2], &[0.0_f32, 2.0, 4.0, 6.0]).unwrap();
    let op = Op::Resize(Resize {
        shape: vec![4, 4],
        scales: vec![Real(2.0); 2],
        half_pixel: false,
        interpolation: Interpolation::Linear,
    });
    let found = one(&op, &[&x]);
    assert_eq!(found.elements::<f32>().unwrap()[..8], [0.0, 1.0, 2.0, 2.0, 2.0, 3.0, 4.0, 4.0]);
    check_blocks(&op, &[(&x, None)], &[Some(1)], 2);
}
