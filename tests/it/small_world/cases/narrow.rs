//! Cases of numbers of 8 bits with scales.

use planner_ir::DType;

use super::Elements::{self, Floats, Positive, Thirds, Within};
use super::{Case, case};

pub(crate) fn narrow() -> Vec<Case> {
    vec![
        case("amax parts=[4,2]", &[Floats(&[4, 4])]),
        case("quantize to=f8e4m3fn", &[Floats(&[4, 4]), Positive(&[2])]),
        case("quantize to=f8e4m3fn parts=[2,2]", &[Floats(&[4, 8]), Positive(&[3])]),
        case("remember", &[Positive(&[4]), Floats(&[2, 2])]),
        case("quantize_blocks to=f8e4m3fn dim=1 block=2", &[Thirds(&[4, 8])]),
        case("amax parts=[4,2] rotated=1", &[Floats(&[4, 64])]),
        case("quantize_nvfp4 dim=1", &[Floats(&[4, 64]), Positive(&[2])]),
        case("quantize_nvfp4 dim=0 rotated=true", &[Floats(&[32, 4]), Positive(&[2])]),
        case(
            "scaled_contract \"ab,bc->ac\" to=f32",
            // A value of one row of blocks, and a weight of squares of them.
            &[
                pairs(&[4, 32]),
                pairs(&[32, 32]),
                fours(&[4, 4]),
                fours(&[4, 2]),
                Positive(&[]),
                Positive(&[]),
            ],
        ),
        case(
            "scaled_contract \"ac,bc->ab\" to=f32",
            // The gradient by the same numbers of the weight.
            &[
                pairs(&[4, 16]),
                pairs(&[16, 32]),
                fours(&[4, 2]),
                fours(&[2, 2]),
                Positive(&[]),
                Positive(&[]),
            ],
        ),
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

/// Numbers of 4 bits, two in a byte.
fn pairs(shape: &[u64]) -> Elements<'_> {
    Within(DType::U8, [0, 256], shape)
}

/// Scales of blocks of 16.
fn fours(shape: &[u64]) -> Elements<'_> {
    Within(DType::F8E4M3FN, [1, 16], shape)
}

/// Exponents of scales, plus 127.
fn exponents(shape: &[u64]) -> Elements<'_> {
    Within(DType::U8, [125, 130], shape)
}
