//! Tests of measurements: what must hold on any machine.

use planner_ir::DType;

use super::{half_work, message, product};

#[test]
fn half_of_the_best_rate_is_reached_by_the_smallest_product_that_does() {
    let rates = [(16.0, 1.0), (128.0, 4.9), (1024.0, 5.0), (8192.0, 10.0)];
    assert_eq!(half_work(&rates, 10.0).to_bits(), 1024.0_f64.to_bits());
    assert_eq!(half_work(&[], 10.0).to_bits(), 1.0_f64.to_bits());
}

#[test]
fn larger_messages_take_longer_and_products_have_a_rate() {
    let [small, large] = [message(64).unwrap(), message(1 << 24).unwrap()];
    assert!(0.0 < small && small < large, "{small} {large}");
    let (work, rate) = product(DType::F32, 16).unwrap();
    assert!(work.to_bits() == 8192.0_f64.to_bits() && rate > 0.0, "{work} {rate}");
}
