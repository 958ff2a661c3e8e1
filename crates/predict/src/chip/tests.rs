//! Devices that are held to less power.

use super::*;
use crate::device::machine_of;
use cost_models::compute::{MatrixProduct, matrix_product};
use cost_models::machine::Precision;

/// Long products on an H100 with 500 of 700 W take (7/5)^⅓ = 1.119 times as long.
#[test]
fn less_power_is_a_lower_clock() {
    let time = |chip: Chip| {
        let mut machine = machine_of("H100-SXM5-80GB").unwrap();
        chip.set(&mut machine, "a test").unwrap();
        let product = MatrixProduct::forward(1, [16384, 16384, 16384], Precision::Bf16);
        matrix_product(&machine.device, &product).0
    };
    let with = |power| Chip { power: Some(power), ..Chip::default() };
    let usual = time(Chip::default());
    assert!((time(with(500.0)) / usual - 1.119).abs() < 0.02, "{}", time(with(500.0)) / usual);
    assert!((time(with(700.0)) / usual - 1.0).abs() < 1e-12);
    assert!(time(with(900.0)) < usual && time(with(9000.0)) > 0.8 * usual);
}

#[test]
fn power_of_an_unknown_device_is_refused() {
    let mut machine = machine_of("H100-SXM5-80GB").unwrap();
    machine.name = "mine".to_owned();
    let chip = Chip { power: Some(500.0), ..Chip::default() };
    let refused = chip.set(&mut machine, "a test").unwrap_err().to_string();
    assert_eq!(refused, "`mine` is held to a stated power, but the power of its data sheet is not known");
}
