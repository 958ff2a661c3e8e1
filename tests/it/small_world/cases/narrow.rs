//! Cases of numbers of 8 bits with scales.

use planner_ir::DType;

use super::Elements::{self, Floats, Positive, Thirds, Within};
use super::{Case, case};

pub(crate) fn narrow() -> Vec<Case> {
    vec![
        case("amax parts=[4,2]", &[Floats(&[4, 4])]),
        case("quantize to=f8e4m3fn", &[Floats(&[4, 4]), Positive(&[2])]),
        case("quantize_blocks to=f8e4m3fn dim=1 block=2", &[Thirds(&[4, 8])]),
        case(
            "scaled_contract \"ab,bc->ac\" to=f32",
            &[codes(&[4, 4]), codes(&[4, 2]), Positive(&[]), Positive(&[])],
        ),
        case(
            "scaled_contract \"ab,bc->ac\" to=f32",
            // Blocks of three: those of an even number stay whole, though a sum could be cut in them.
            &[codes(&[4, 12]), codes(&[12, 2]), exponents(&[4, 4]), exponents(&[4, 2])],
        ),
    ]
}

fn codes(shape: &[u64]) -> Elements<'_> {
    Within(DType::F8E4M3FN, [-15, 16], shape)
}

/// Exponents of scales, plus 127.
fn exponents(shape: &[u64]) -> Elements<'_> {
    Within(DType::U8, [125, 130], shape)
}
